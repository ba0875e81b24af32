"""Drives one reservation: prepares hosts, watches them, gives them back.

Each write names the fence with which the driver took the reservation, and so does the renewal of its lease
before each call to the platform. A driver that finds another fence stops.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable
from typing import TypeVar

from overnight import errors, reservations
from overnight.model.reservation import (
    Check,
    HostState,
    Order,
    Preflight,
    Reservation,
    ReservationEvent,
    ReservationState,
    ReservedHost,
    Unseen,
)
from overnight.model.times import SECOND_US
from overnight.reservations import acceptance, context, decisions, preflight
from overnight.reservations.sql import reservation_rows

T = TypeVar("T")
State = ReservationState
FOUND, STARTED = "found", "started"  # values of ReservedHost.agent


class FenceLostError(Exception):
    """Another driver has the reservation."""


def take(
    control: context.Context, reservation: Reservation, progress: reservations.Progress, **changes: object
) -> Driver:  # fmt: skip
    """Become the driver of a reservation as it was read; raises FenceLostError."""
    until_us = control.clock() + context.DRIVER_SECONDS * SECOND_US
    with control.database.write("take reservation") as connection:
        changes |= {"driver_until_us": until_us, "fence": reservation.fence + 1}
        taken = reservation_rows.change(connection, reservation, **changes)
        found = reservation_rows.find(connection, reservation.id)
    if not taken or found is None:
        raise FenceLostError(reservation.id)
    return Driver(control, found, progress)


class Driver:
    def __init__(
        self, control: context.Context, reservation: Reservation, progress: reservations.Progress
    ) -> None:
        self.reservation = reservation
        self._control = control
        self._progress = progress
        self._failed = False  # in this step
        self._marked: set[str] = set()
        # Why nothing is evicted in this step; None: not looked yet.
        self._blocked: str | None = None
        self._touched = ""  # the host of the last call, which may have left a mark

    def step(self) -> Reservation:
        """Do once what is due now; raises FenceLostError. What the platform refuses is in the result."""
        self._failed = False
        try:
            action = decisions.next_action(self.reservation, self._control.clock())
            if action is decisions.Action.PREPARE:
                self._prepare()
            elif action is decisions.Action.GIVE_UP:
                blocked = [f"{h.name}: {h.detail or h.state}" for h in self.reservation.open]
                self.end("not every host could be held in time: " + "; ".join(blocked))
            elif action is decisions.Action.EXPIRE:
                self.end("the lease ended", "expired")
            elif action is decisions.Action.WATCH:
                self._watch()
            if self.reservation.state is State.RELEASING:
                self._give_back()
            self._note_attempt(watched=action is decisions.Action.WATCH)
        except FenceLostError:
            self._clean_after_loss()
            raise
        return self.reservation

    def end(self, reason: str, kind: str = "failed") -> None:
        """Write that the hosts are to be given back, which this step does, too."""
        self._save(self._event(kind, "", reason), state=State.RELEASING, reason=reason)

    def free(self) -> Reservation:
        """Let another driver take the reservation."""
        self._save(driver_until_us=0)
        return self.reservation

    # the record

    @property
    def _now(self) -> int:
        return self._control.clock()

    def _save(self, *events: ReservationEvent, **changes: object) -> None:
        changed = dataclasses.replace(self.reservation, **changes)  # type: ignore[arg-type]  # its fields
        with self._control.database.write("save reservation") as connection:
            if not reservation_rows.save(connection, changed):
                raise FenceLostError(changed.id)
            reservation_rows.add_events(connection, changed.id, events)
        self.reservation = changed

    def _save_host(self, name: str, *events: ReservationEvent, **changes: object) -> None:
        hosts = tuple(
            dataclasses.replace(host, **changes) if host.name == name else host  # type: ignore[arg-type]
            for host in self.reservation.hosts
        )
        self._save(*events, hosts=hosts)

    def _event(self, kind: str, host: str, detail: str = "") -> ReservationEvent:
        return ReservationEvent(self._now, kind, host, detail)

    def _note_attempt(self, *, watched: bool) -> None:
        """Count failed steps in a row, and set the time of the next one."""
        attempts = self.reservation.attempts + 1 if self._failed else 0
        tried = dataclasses.replace(self.reservation, attempts=attempts)
        next_us = decisions.next_step_at(tried, self._now, watched=watched)
        if (attempts, next_us) != (self.reservation.attempts, self.reservation.next_us):
            self._save(attempts=attempts, next_us=next_us)

    # the platform

    def _call(self, method: Callable[..., T], host: str, *more: object) -> T:
        """Call the provider while the fence is ours; any failure is an OvernightError."""
        what, order = method.__name__, self.reservation.order
        until_us = self._now + context.DRIVER_SECONDS * SECOND_US
        with self._control.database.write("keep reservation") as connection:
            kept = reservation_rows.change(connection, self.reservation, driver_until_us=until_us)
        if not kept:
            raise FenceLostError(self.reservation.id)
        # `_save` writes the whole record.
        self.reservation = dataclasses.replace(self.reservation, driver_until_us=until_us)
        self._touched = host
        self._control.database.steps(f"{what} {host}: before")
        try:
            answer = method(host, order, *more)
        except errors.OvernightError:
            raise
        except Exception as error:  # of a client library
            raise reservations.PlatformError(
                f"{order.provider} failed: {what} {host}",
                why=f"{type(error).__name__}: {error}",
                todo="repeat it with --debug to see where",
            ) from error
        self._control.database.steps(f"{what} {host}: after")
        return answer

    @property
    def _provider(self) -> reservations.Provider:
        return self._control.provider(self.reservation.order.provider)

    def _note_failure(self, host: str, error: errors.OvernightError) -> None:
        self._failed = True
        self._progress(f"{host}: {error.what}: {error.why}")
        self._save_host(host, detail=f"{error.what}: {error.why}")

    def _clean_after_loss(self) -> None:
        """Remove what a call left that came after another driver had released the reservation."""
        with self._control.database.read() as connection:
            now = reservation_rows.find(connection, self.reservation.id)
        if self._touched and (now is None or now.state in (State.RELEASING, State.RELEASED)):
            order = self.reservation.order
            with contextlib.suppress(Exception):  # a janitor removes it when the lease ends
                self._provider.release(self._touched, order, self.reservation.id)

    # steps

    def _prepare(self) -> None:
        # No host is emptied before all are claimed, or while a workload of one cannot be evicted.
        for step in (self._claim, self._empty):
            self._blocked = None
            for host in self._planned:
                if self.reservation.state is State.PREPARING:
                    self._prepare_host(host, step)
        enough = len(self.reservation.held) >= self.reservation.order.wanted
        if enough and self.reservation.state is State.PREPARING:
            self._activate()

    def _prepare_host(self, host: ReservedHost, step: Callable[[ReservedHost], bool]) -> None:
        try:
            if step(host):
                held = self._event("held", host.name)
                self._save_host(host.name, held, state=HostState.HELD, detail="")
        except reservations.TakenError as error:
            self._replace(host, error.what)
        except reservations.NotEmptyError as error:
            self.end(f"{host.name}: {error.what}: {error.why}")
        except errors.OvernightError as error:
            self._note_failure(host.name, error)
            if not getattr(error, "retry", True):
                self.end(f"{host.name}: {error.what}: {error.why}")

    def _claim(self, host: ReservedHost) -> bool:
        """Claim and mark a host, unless this driver did; it is not held before it is empty."""
        name, lease = host.name, self.reservation.lease
        if name not in self._marked:
            self._progress(f"{name}: claiming")
            self._call(self._provider.claim, name, lease)
            self._call(self._provider.mark, name, lease)
            self._marked.add(name)
        return False

    def _empty(self, host: ReservedHost) -> bool:
        """Take one step to empty a host, if all are claimed; return whether it is empty."""
        name, lease, said = host.name, self.reservation.lease, ""
        if any(other.name not in self._marked for other in self._planned):
            return False

        def note(text: str) -> None:
            nonlocal said
            said = text
            self._progress(f"{name}: {text}")

        if self._blocked is None:
            self._blocked = self._find_blocked()
        if self._blocked:
            note(self._blocked)
            empty = False
        else:
            empty = self._call(self._provider.empty, name, lease, note)
        if not empty and said != host.detail:
            self._save_host(name, detail=said)
        return empty

    @property
    def _planned(self) -> list[ReservedHost]:
        return [host for host in self.reservation.open if host.state is HostState.PLANNED]

    def _find_blocked(self) -> str:
        """Return why a workload of one of the hosts cannot be evicted now, or ''."""
        for host in self._planned if self.reservation.order.evict else ():
            found = self._call(self._provider.list_workloads, host.name, self.reservation.lease)
            for work in () if isinstance(found, Unseen) else found:
                if work.blocked:
                    return f"cannot evict {work.kind} {work.name} from {host.name}: {work.blocked}"
        return ""

    def _replace(self, host: ReservedHost, why: str) -> None:
        """Take the next candidate in place of a host that another reservation has."""
        self._progress(f"{host.name}: {why}")
        known = {known.name for known in self.reservation.hosts}

        def find_other(_: str, order: Order) -> Preflight:
            return preflight.plan_hosts(
                self._provider, order, self._now, wanted=1, without=known, undisturbed=True
            )

        try:
            # Marks of an older attempt, if a janitor removed the claim meanwhile.
            self._call(self._provider.release, host.name, self.reservation.id)
            if self.reservation.order.hosts:
                self.end(f"{host.name}: {why}")
                return
            found = self._call(find_other, host.name)
        except errors.OvernightError as error:
            self._note_failure(host.name, error)
            return
        if not found.hosts:
            self.end(f"{host.name}: {why}, and no other host fits")
            return
        [plan] = found.hosts
        new = ReservedHost.planned(plan)
        gone = dataclasses.replace(host, state=HostState.RELEASED, detail=why)
        hosts = tuple(gone if old.name == host.name else old for old in self.reservation.hosts)
        self._save(self._event("replaced", host.name, f"by {new.name}: {why}"), hosts=(*hosts, new))
        self._prepare_host(new, self._claim)

    def _activate(self) -> None:
        """Write the whole lease on every host, then call the reservation active."""
        until_us = decisions.active_until(self.reservation, self._now)
        self._save(until_us=until_us)
        for host in self.reservation.held:
            try:
                if problem := self._renew(host.name):
                    self.end(f"{host.name}: {problem}")
                    return
            except errors.OvernightError as error:
                self._note_failure(host.name, error)
                return
        self._save(self._event("active", ""), state=State.ACTIVE)

    def _watch(self) -> None:
        until_us = decisions.renewed_until(self.reservation, self._now)
        if until_us != self.reservation.until_us:
            self._save(self._event("renewed", ""), until_us=until_us)
        for host in self.reservation.held:
            checks, detail = [], ""
            for name, check in (
                ("marks", self._check_marks),
                ("foreign-workload", self._check_workloads),
                ("agent", self._check_agent),
            ):
                try:
                    checks += check(host)
                except errors.OvernightError as error:
                    self._failed = True
                    detail = f"{error.what}: {error.why}"
                    self._progress(f"{host.name}: {detail}")
                    checks.append(acceptance.unknown(name, detail))
            self._save_checks(host, checks, detail)

    def _save_checks(self, host: ReservedHost, checks: list[Check], detail: str) -> None:
        kinds = {"marks": "mark_lost", "foreign-workload": "foreign_workload"}
        events = [
            self._event(kinds[check.name], host.name, check.detail)
            for check in checks
            if check.name in kinds and acceptance.newly_failed(host, check)
        ]
        merged = acceptance.merge(host, checks, self._now)
        self._save_host(host.name, *events, checks=merged, detail=detail)

    def _renew(self, host: str) -> str:
        """Write the expiry on a host, and lost marks again; return why that is not possible, or ''."""
        provider, lease = self._provider, self.reservation.lease
        try:
            if self._call(provider.renew, host, lease):
                return ""
            self._call(provider.claim, host, lease)
            self._call(provider.mark, host, lease)
        except reservations.TakenError as error:
            return f"its marks are gone, and {error.what}"
        self._save_host(host, self._event("mark_lost", host, "written again"))
        return ""

    def _check_marks(self, host: ReservedHost) -> list[Check]:
        return [acceptance.check_marks(self._renew(host.name))]

    def _check_workloads(self, host: ReservedHost) -> list[Check]:
        found = self._call(self._provider.list_workloads, host.name, self.reservation.lease)
        return [acceptance.check_workloads(found)]

    def _check_agent(self, host: ReservedHost) -> list[Check]:
        order = self.reservation.order
        heard = self._call(self._control.hear, host.name)
        runs = heard.agent_us is not None and self._now - heard.agent_us <= acceptance.AGENT_US
        if runs and not host.agent:
            self._save_host(host.name, agent=FOUND)
        elif order.start_agent and not host.agent:
            setup = self._control.hooks.agent_setup(host.name, order.agent_server)
            setup = dataclasses.replace(setup, tasks=order.agent_tasks if setup.server else None)
            self._call(self._provider.start_agent, host.name, self.reservation.lease, setup)
            self._save_host(host.name, self._event("agent_started", host.name), agent=STARTED)
            heard = self._call(self._control.hear, host.name)
            if heard.agent_us is None:
                return [acceptance.unknown("agent", "started, and not heard yet")]
        return [acceptance.check_agent(heard, self._now), acceptance.check_clock(heard)]

    def _give_back(self) -> None:
        for host in self.reservation.open:
            try:
                self._progress(f"{host.name}: releasing")
                self._call(self._provider.release, host.name, self.reservation.id)
            except errors.OvernightError as error:
                self._note_failure(host.name, error)
            else:
                if host.agent == STARTED:
                    self._control.hooks.agent_ended(host.name)
                released = self._event("released", host.name)
                self._save_host(host.name, released, state=HostState.RELEASED, detail="")
        if not self.reservation.open:
            self._save(self._event("released", ""), state=State.RELEASED)
