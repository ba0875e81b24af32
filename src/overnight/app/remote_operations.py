"""The pools and reservations of a server: the methods of their use cases, each as a request."""

from __future__ import annotations

import contextlib
import functools
import inspect
import secrets
import time
import typing
from collections.abc import Callable, Iterator
from typing import Any

from overnight import errors, http_client
from overnight.app import (
    clusters,
    confirmations,
    investigations,
    operations,
    pools,
    reservations,
    server_requests,
)
from overnight.model.confirmation import (
    Confirmation,
    ConfirmationNeededError,
    NoConfirmationNeededError,
)
from overnight.model.reservation import Order, Preflight, Reservation, ReservationState

if typing.TYPE_CHECKING:
    import pathlib

    from overnight.model.investigation import Investigation

ANSWER_SECONDS = 300.0  # a provider may be slow
POLL_SECONDS = 1.0
CHECK_SECONDS = 60.0  # for the first checks of hosts that are held
RELEASE_SECONDS = 600.0
UNCONFIRMED = ("claims-affected", "unconfirmed")


class Remote:
    """Use cases behind a server; `operations` lists what it answers. `why` is for its audit log."""

    look = ""  # command that shows what a server has done

    def __init__(self, api: server_requests.Requests, why: str = "") -> None:
        self._api = api
        self.why = why
        self.assistant = ""  # `operations.CALL` or `ASK`: what is asked for an assistant

    def send(self, operation: operations.Operation, given: dict[str, Any]) -> Any:
        """Send a request, and return the answer as the type that the local method returns."""
        path = [part.format(**given) for part in operation.path.strip("/").split("/")]
        rest = {n: operations.encode(given[n]) for n in given.keys() - {*operation.path_names}}
        try:
            if operation.method == "GET":
                pairs = [(n, str(v).lower()) for n, v in rest.items()]
                document = self._api.get(*path, parameters=pairs)
            else:
                document = self._change(operation, path, rest)
        except http_client.RefusedError as error:
            if error.problem in UNCONFIRMED:
                raise errors.UnconfirmedError(error.what, why=error.why, todo=error.todo) from None
            if error.problem == "confirmation-needed":
                pending = self._api.decode(Confirmation, error.document.get("confirmation"))
                raise ConfirmationNeededError(pending, error.why) from None
            if error.problem == "no-confirmation-needed":
                raise NoConfirmationNeededError(operation.action) from None
            raise
        is_page = typing.get_origin(operation.answer) is tuple
        value = document.get("items") if is_page else document
        return self._api.decode(operation.answer, value, **operations.names())

    def _change(
        self, operation: operations.Operation, path: list[str], body: dict[str, Any]
    ) -> dict[str, Any]:
        request = body.get("request", {})
        wait = request.get("wait_seconds", 0.0)
        if request.get("cold") or body.get("load"):
            wait = operations.MAX_WAIT_SECONDS
        key = request.get("idempotency_key") or body.get("idempotency_key")
        again = not operation.changes or bool(key)
        sent = {operations.WHY: self.why, operations.ASSISTANT: self.assistant}
        headers = {name: text for name, text in sent.items() if text}
        try:
            return self._api.send(
                operation.method, path, body, headers, seconds=ANSWER_SECONDS + wait, again=again
            )
        except http_client.ServerAwayError as error:
            if not again:
                error.todo += f"; the change may have been made: {self.look}"
            raise


def _make(operation: operations.Operation) -> Any:
    signature = inspect.signature(operation.call)

    @functools.wraps(operation.call)
    def call(self: Remote, *arguments: Any, **named: Any) -> Any:
        bound = signature.bind(self, *arguments, **named)
        bound.apply_defaults()
        sent = {n: v for n, v in bound.arguments.items() if n not in operations.HERE}
        return self.send(operation, sent)

    return call


def _publish(of: tuple[operations.Operation, ...]) -> Any:
    return type("Published", (), {operation.name: _make(operation) for operation in of})


class RemotePools(Remote, _publish(operations.POOLS), pools.Pools):  # type: ignore[misc]  # a base made at run time
    look = "overnight pool list"


class RemoteClusters(Remote, _publish(operations.CLUSTERS), clusters.Clusters):  # type: ignore[misc]  # as above
    look = "overnight cluster list"


class RemoteConfirmations(
    Remote,
    _publish(operations.CONFIRMATIONS),  # type: ignore[misc]  # as above
    confirmations.Confirmations,
):
    look = "overnight confirmations"


class RemoteInvestigations(
    Remote,
    _publish(operations.INVESTIGATIONS),  # type: ignore[misc]  # as above
    investigations.Investigations,
):
    """Investigations that the server carries out."""

    look = "overnight run list"

    @contextlib.contextmanager
    def _drive(self, _: Investigation) -> Iterator[Callable[[], float]]:
        yield lambda: investigations.POLL_SECONDS  # the server takes the steps


class RemoteReservations(Remote, _publish(operations.RESERVATIONS), reservations.Reservations):  # type: ignore[misc]  # as above
    """Reservations that the server makes and gives back; these methods follow what it does."""

    look = "overnight reservations list"

    def preflight(self, order: Order, reference: pathlib.Path | None = None) -> Preflight:
        if reference is not None:
            raise errors.UsageError(
                "--reference FILE cannot be used with --server",
                why="a server compares with what agents have reported",
                todo="name a host of production: --reference HOST",
            )
        plan: Preflight = super().preflight(order)
        return plan

    def reserve(
        self,
        order: Order,
        *,
        confirmed: bool,
        plan: Preflight | None = None,
        progress: Callable[[str], None] = lambda _: None,
    ) -> reservations.Report:
        from overnight.reservations import control

        if plan is not None:
            reservations.check_consent(plan, confirmed=confirmed)
            confirmed = True
        made: Reservation = self.create(
            order,
            confirmed=confirmed,
            agreed=None if plan is None else plan.concerns,  # the server plans again
            idempotency_key=secrets.token_hex(16),
        ).reservation
        progress(f"created {made.id}")

        try:
            limit = order.prepare_seconds + CHECK_SECONDS
            report = self._follow(made.id, lambda now: now.is_prepared, limit, progress)
        except KeyboardInterrupt:
            self.end(made.id)
            raise
        control.accept(report.reservation)
        return report

    def drive(
        self, reservation_id: str, progress: Callable[[str], None] = lambda _: None
    ) -> reservations.Report:
        """Follow what the server drives."""
        return self._follow(reservation_id, lambda _: True, 0.0, progress)

    def release(
        self, reservation_id: str, *, progress: Callable[[str], None] = lambda _: None
    ) -> reservations.Report:
        def is_ended(now: Reservation) -> bool:
            return now.state is ReservationState.RELEASED or now.attempts > 0

        self.end(reservation_id)
        return self._follow(reservation_id, is_ended, RELEASE_SECONDS, progress)

    def release_marks(self, order: Order, *, confirmed: bool) -> reservations.Cleaning:  # noqa: ARG002  refused
        raise errors.UsageError(
            "--all-marks cannot be used with --server",
            why="it removes marks that the server does not know",
            todo="run it where the platform is reached, with --database of the server",
        )

    def _follow(
        self,
        reservation_id: str,
        is_done: Callable[[Reservation], bool],
        seconds: float,
        progress: Callable[[str], None],
    ) -> reservations.Report:
        """Show what the server does with a reservation until `is_done`, or for so long."""
        until = time.monotonic() + seconds
        while True:
            try:
                report: reservations.Report = self.show(reservation_id)
            except http_client.ServerAwayError as error:
                error.todo += f"; the reservation goes on: `overnight reservations show {reservation_id}`"  # fmt: skip
                raise
            for host in report.reservation.hosts:
                progress(f"{host.name}: {host.detail or host.state}")
            if is_done(report.reservation) or time.monotonic() >= until:
                return report
            time.sleep(POLL_SECONDS)
