"""Reservations of a server: whose they are, what drives them, and their metrics."""

from __future__ import annotations

import collections
import dataclasses
import time
from typing import TYPE_CHECKING, Any

from overnight import errors
from overnight.app import driving
from overnight.model.control_plane import Principal, Role
from overnight.model.investigation import INVESTIGATION_ID
from overnight.model.reservation import Order, Reservation, ReservationState
from overnight.model.times import DAY_US, SECOND_US
from overnight.reservations import control

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from overnight.app import reservations
    from overnight.model import openmetrics

FORGET_SECONDS = 3600.0
State = ReservationState


def admit(
    where: reservations.Reservations, given: Mapping[str, Any], by: Principal, endpoint: str
) -> dict[str, Any]:
    """Return a request as the server carries it out; raise NotAllowedError where it concerns somebody else's hosts.

    The owner is the name of the token, so that a new token of the same name may give the hosts back. Agents report to
    this server: their token must not be sent elsewhere.
    """
    if "order" in given:
        return {**given, "order": _own(given["order"], by, endpoint)}
    check_owner("reservation", where.plane.show(given["reservation_id"]).order.owner, by)
    return dict(given)


def _own(order: Order, by: Principal, endpoint: str) -> Order:
    check_owner("reservation", order.owner or by.name, by)
    if INVESTIGATION_ID.fullmatch(order.purpose):
        raise errors.UsageError(
            f"invalid purpose {order.purpose}",
            why="an investigation takes the reservations with its id as its own, and changes their hosts",
            todo="use another purpose",
        )
    if order.agent_server not in ("", endpoint):
        raise errors.UsageError(
            f"agents cannot report to {order.agent_server}",
            why=f"agents that this server starts report to {endpoint}",
            todo="leave out --agent-server, or reserve without --server",
        )
    server = endpoint if order.start_agent else ""
    return dataclasses.replace(order, owner=order.owner or by.name, agent_server=server)


def check_owner(what: str, owner: str, by: Principal) -> None:
    """Raise NotAllowedError if somebody else owns it, unless an admin asks."""
    if owner != by.name and not by.role.allows(Role.ADMIN):
        raise errors.NotAllowedError(
            f"the {what} belongs to {owner}" if owner else f"the {what} has no owner",
            why=f"token {by.name} has the role {by.role}, which may change its own {what}s only",
            todo="ask the owner or an admin",
        )


class Driver(driving.Loop[Reservation]):
    """Drives the reservations of a database; several servers do so at once, each reservation has one driver."""

    def __init__(
        self,
        where: reservations.Reservations,
        interval: float,
        progress: Callable[[str], None],
        keep_days: int,
    ) -> None:
        self._where = where
        self._keep_us = keep_days * DAY_US
        self._forgot = -FORGET_SECONDS  # on the monotonic clock
        super().__init__(
            "reservations", self._drive, _is_awaited,
            interval=interval, soon=control.POLL_SECONDS, progress=progress,
        )  # fmt: skip

    def _drive(self, progress: driving.Progress) -> tuple[Reservation, ...]:
        driven = self._where.tick(progress)
        self._forget()
        return driven

    def _forget(self) -> None:
        """Delete reservations that are too old, once an hour."""
        if time.monotonic() - self._forgot >= FORGET_SECONDS:
            self._forgot = time.monotonic()
            plane = self._where.plane
            plane.forget(plane.context.clock() - self._keep_us)


def _is_awaited(reservation: Reservation) -> bool:
    """Return whether a caller waits for the next step."""
    return not reservation.attempts and not reservation.is_prepared


def add_metrics(page: openmetrics.Page, where: reservations.Reservations) -> None:
    listed = where.list()
    now_us = where.plane.context.clock()
    states = collections.Counter(each.state for each in listed)
    page.family(
        "overnight_reservations", "gauge", "Reservations that are not released, by state.",
        [({"state": state}, states[state]) for state in State if state is not State.RELEASED],
    )  # fmt: skip
    page.family(
        "overnight_reservation_hosts", "gauge", "Hosts that are held.",
        [({}, sum(len(each.held) for each in listed))],
    )  # fmt: skip
    failed = [each for each in listed if each.state is State.RELEASING and each.attempts]
    page.family(
        "overnight_reservation_failed_releases", "gauge", "Reservations whose last release failed.",
        [({}, len(failed))],
    )  # fmt: skip
    ends = [each.until_us for each in listed if each.state is not State.RELEASING]
    page.family(
        "overnight_reservation_expiry_seconds", "gauge", "Time until the next lease ends.",
        [({}, (min(ends) - now_us) / SECOND_US)] if ends else [],
    )  # fmt: skip
