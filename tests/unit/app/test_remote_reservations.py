"""What the client of a server's reservations does while the server works."""

from __future__ import annotations

import dataclasses
import pathlib
from typing import TYPE_CHECKING, Any, cast

import pytest

from overnight import errors, http_client
from overnight.app import operations, remote_operations, reservations
from overnight.model.reservation import (
    Candidate,
    Check,
    CheckState,
    HostPlan,
    HostState,
    Order,
    Preflight,
    Reservation,
    ReservationState,
    ReservedHost,
)

if TYPE_CHECKING:
    from overnight.app import server_requests

ORDER = Order(provider="played")
CHECKED = (Check("marks", CheckState.PASSED),)


def step(state: str, /, *, attempts: int = 0, **host: Any) -> Reservation:
    """Return the reservation as the server shows it at a time."""
    held = ReservedHost(name="a", **{"state": HostState.PLANNED, **host})
    return Reservation(
        id="r-1", order=ORDER, state=ReservationState(state), made_us=0, until_us=1, cap_us=1,
        hosts=(held,), attempts=attempts, reason="the host is taken",
    )  # fmt: skip


class Client(remote_operations.RemoteReservations):
    """Shows one step after the other, as if a server had done it."""

    def __init__(self, *steps: Reservation | BaseException) -> None:
        super().__init__(cast("server_requests.Requests", None))
        self.steps = [*steps]
        self.sent: list[str] = []

    def send(self, operation: operations.Operation, given: dict[str, Any]) -> Any:
        self.sent.append(operation.name)
        if operation.name == "create":
            self.given = given
        if operation.name == "list":
            return (step("active"),)
        if operation.name != "show":
            return reservations.Report(step("preparing"), ())
        now = self.steps.pop(0)
        if isinstance(now, BaseException):
            raise now
        return reservations.Report(now, ())


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_operations, "POLL_SECONDS", 0.0)


ACTIVE = step("active", state=HostState.HELD)
READY = step("active", state=HostState.HELD, checks=CHECKED)


def test_reserve_follows_the_server_until_the_first_checks() -> None:
    notes: list[str] = []
    client = Client(step("preparing", detail="web-1 still runs"), ACTIVE, READY)
    assert client.reserve(ORDER, confirmed=True, progress=notes.append).reservation == READY
    assert notes == ["created r-1", "a: web-1 still runs", "a: held", "a: held"]
    assert client.sent == ["create", "show", "show", "show"]


def test_a_reservation_that_failed_is_an_error() -> None:
    with pytest.raises(errors.CannotError) as failed:
        Client(step("releasing")).reserve(ORDER, confirmed=True)
    assert failed.value.why == "the host is taken"


def test_a_client_does_not_wait_for_ever() -> None:
    order = dataclasses.replace(ORDER, prepare_seconds=-1000)
    with pytest.raises(errors.CannotError) as waited:
        Client(step("preparing")).reserve(order, confirmed=True)
    assert waited.value.what == "r-1 is still being prepared"
    assert "the server goes on: `overnight reservations show r-1" in waited.value.todo


def test_ctrl_c_asks_for_the_release() -> None:
    client = Client(step("preparing"), KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        client.reserve(ORDER, confirmed=True)
    assert client.sent[-1] == "end"


def test_a_lost_connection_leaves_the_reservation() -> None:
    client = Client(http_client.ServerAwayError("away", why="", todo="wait"))
    with pytest.raises(http_client.ServerAwayError) as lost:
        client.reserve(ORDER, confirmed=True)
    assert "the reservation goes on: `overnight reservations show r-1" in lost.value.todo
    assert "end" not in client.sent


def test_what_was_confirmed_is_sent() -> None:
    host = HostPlan(host=Candidate(name="a"), disrupts=("launches another instance",))
    plan = Preflight(ORDER, (host,), {})
    client = Client(READY)
    with pytest.raises(errors.UnconfirmedError, match="disturbs others"):
        client.reserve(ORDER, confirmed=False, plan=plan)
    assert client.sent == []
    client.reserve(ORDER, confirmed=True, plan=plan)
    assert client.given["agreed"] == ("launches another instance",)
    assert client.given["idempotency_key"]


def test_a_lost_answer_of_create_is_asked_for_again() -> None:
    class Requests:
        def send(self, *words: Any, again: bool, **more: Any) -> dict[str, Any]:
            sent.append(again)
            return {}

        def decode(self, *words: Any, **names: Any) -> None:
            return None

    sent: list[bool] = []
    client = remote_operations.RemoteReservations(cast("server_requests.Requests", Requests()))
    client.create(ORDER, confirmed=True, idempotency_key="k")
    client.create(ORDER, confirmed=True)
    assert sent == [True, False]


@pytest.mark.parametrize("last", [step("released"), step("releasing", attempts=1)])
def test_release_follows_the_server_until_it_has_tried(last: Reservation) -> None:
    client = Client(step("releasing"), last)
    assert client.release("r-1").reservation == last


def test_all_are_released_one_by_one_after_a_confirmation() -> None:
    client = Client(step("released"))
    with pytest.raises(errors.UnconfirmedError):
        client.release_all(confirmed=False)
    assert [each.state for each in client.release_all(confirmed=True)] == ["released"]


def test_what_needs_the_platform_is_refused() -> None:
    with pytest.raises(errors.UsageError):
        Client().preflight(ORDER, pathlib.Path("snapshot.json"))
    with pytest.raises(errors.UsageError):
        Client().release_marks(ORDER, confirmed=True)
