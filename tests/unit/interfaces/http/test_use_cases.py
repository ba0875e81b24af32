"""Changes of pools have threads of their own, and each operation is described."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Callable
from typing import Any

import pytest

from overnight import errors
from overnight.app import (
    clusters,
    confirmations,
    investigations,
    operations,
    pools,
    remote_operations,
    reservations,
)
from overnight.interfaces.http import application, problems, use_cases

CLIENTS = {
    pools.Pools: remote_operations.RemotePools,
    clusters.Clusters: remote_operations.RemoteClusters,
    reservations.Reservations: remote_operations.RemoteReservations,
    investigations.Investigations: remote_operations.RemoteInvestigations,
    confirmations.Confirmations: remote_operations.RemoteConfirmations,
}
# Of published ones; the last two are for the host where the platform is reached.
COMBINED = {
    pools.Pools: {"autoscale", "follow"},
    clusters.Clusters: {"follow"},
    reservations.Reservations: {
        "compare_hosts",
        "reserve",
        "drive",
        "release",
        "release_all",
        "release_marks",
        "tick",
    },
    investigations.Investigations: {"run", "finish", "follow", "tick"},
    confirmations.Confirmations: set(),
}


async def stays() -> bool:
    return False


async def left() -> bool:
    return True


def test_more_changes_than_slots_are_refused_until_one_ends() -> None:
    slots, go = use_cases.Slots(1), threading.Event()

    async def scene() -> None:
        first = asyncio.create_task(slots.run(lambda _: go.wait(10), stays))
        await asyncio.sleep(0)
        with pytest.raises(problems.HttpError) as refused:
            await slots.run(lambda _: 2, stays)
        assert refused.value.status == 503
        go.set()
        assert await first
        assert await slots.run(lambda _: 2, stays) == 2

    asyncio.run(scene())


def test_an_error_of_a_change_is_the_caller_s() -> None:
    def fail(_: Callable[[], bool]) -> None:
        raise errors.CannotError("x", why="y", todo="z")

    with pytest.raises(errors.CannotError):
        asyncio.run(use_cases.Slots().run(fail, stays))


def test_a_change_whose_thread_cannot_start_frees_its_slot(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    async def scene() -> None:
        slots = use_cases.Slots(1)
        with monkeypatch.context() as changed:
            changed.setattr(threading.Thread, "start", fail)
            with pytest.raises(RuntimeError):
                await slots.run(lambda _: 1, stays)
        assert await slots.run(lambda _: 2, stays) == 2

    asyncio.run(scene())


@pytest.mark.parametrize("how", ["disconnected", "cancelled"])
def test_a_change_learns_that_its_caller_left(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(use_cases, "POLL_SECONDS", 0.01)
    learned = threading.Event()

    def wait(is_gone: Callable[[], bool]) -> str:
        while not is_gone():
            pass_time.wait(0.01)
        learned.set()
        return "gone"

    pass_time = threading.Event()

    async def scene() -> None:
        slots = use_cases.Slots(1)
        task = asyncio.create_task(slots.run(wait, left if how == "disconnected" else stays))
        if how == "disconnected":
            assert await task == "gone"
            return
        await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await asyncio.to_thread(learned.wait, 10)

    asyncio.run(scene())


def test_a_claim_that_comes_too_late_is_given_back() -> None:
    from overnight.model.pool import Claim, Grant, Member, MemberState, Request

    class Fake(pools.Pools):
        returned: tuple[str, ...] = ()

        def __init__(self) -> None: ...

        def acquire(self, name: str, request: Request, *, is_gone: object = None) -> tuple[Grant, ...]:  # fmt: skip
            member = Member(id="m-1", pool_id="p-1", state=MemberState.CLAIMED)
            return (Grant(member, Claim(id="c-1", pool_id="p-1", member_id="m-1")),)

        def give_back(self, claim_id: str) -> Member:
            self.returned += (claim_id,)
            return Member(id="m-1", pool_id="p-1", state=MemberState.DRAINING)

    [acquire] = [o for o in operations.OPERATIONS if o.name == "acquire"]
    where = Fake()
    asked = {"name": "ci", "request": Request()}
    with pytest.raises(errors.CannotError, match="given back"):
        operations.run(where, acquire, asked, lambda: True)
    assert where.returned == ("c-1",)
    asked["request"] = Request(idempotency_key="k")
    assert operations.run(where, acquire, asked, lambda: True)
    assert where.returned == ("c-1",)


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    return application.build().openapi()


@pytest.mark.parametrize("operation", operations.OPERATIONS, ids=lambda o: f"{o.area} {o.name}")
def test_an_operation_is_described_and_the_client_has_it(
    operation: operations.Operation, document: dict[str, Any]
) -> None:
    entry = document["paths"][f"/api/v1{operation.path}"][operation.method.lower()]
    assert entry["summary"]
    assert entry["responses"]["200"]["content"]["application/json"]["schema"]
    kinds = (operation.of, CLIENTS[operation.of])
    here, there = (getattr(kind, operation.name) for kind in kinds)
    assert here is not there
    assert inspect.signature(here) == inspect.signature(there)


@pytest.mark.parametrize("kind", CLIENTS)
def test_every_public_use_case_has_a_remote_form(kind: type) -> None:
    published = {operation.name for operation in operations.OPERATIONS if operation.of is kind}
    own = {n for n, call in vars(kind).items() if inspect.isfunction(call) and n[0] != "_"}
    assert own - COMBINED[kind] == published
