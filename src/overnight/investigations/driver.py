"""Drives one investigation from the reservation of hosts to their release, one step at a time.

Every write names the fence with which the driver took the investigation. What a step is about to ask of a host or a
platform is written first and may be repeated, so a driver that is killed anywhere is replaced by another one.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING

from overnight import errors
from overnight.database import fences
from overnight.investigations import arms, context, decisions
from overnight.investigations.sql import investigation_rows
from overnight.model.investigation import (
    ArmRun,
    ArmState,
    ExperimentRun,
    Investigation,
    Note,
    Phase,
)
from overnight.model.plan import ArmKind
from overnight.model.reservation import (
    Check,
    CheckState,
    Reservation,
    ReservationState,
    ReservedHost,
)
from overnight.model.times import SECOND_US

if TYPE_CHECKING:
    from overnight.model.investigation import Occurrence
    from overnight.model.plan import Plan

Progress = Callable[[str], None]
AGENT_SECONDS = 300.0  # until the agents of all hosts must have reported
RELEASE_SECONDS = 900.0  # then reservations and janitors go on alone
RELEASE_RETRY_US = 15 * SECOND_US
DRIVE_US = 30 * SECOND_US
KEPT_NOTES = 10_000
AGENT = "agent"  # the check of a reservation
FenceLostError = fences.FenceLostError


def take(control: context.Context, read: Investigation, progress: Progress) -> Driver:
    """Become the driver of an investigation as it was read; raise FenceLostError."""
    until_us = control.clock() + context.DRIVER_SECONDS * SECOND_US
    with control.database.write("take investigation") as connection:
        investigation_rows.take(connection, read, until_us)
        found = investigation_rows.find(connection, read.id)
    assert found is not None
    return Driver(control, found, progress)


class Driver:
    def __init__(
        self, control: context.Context, investigation: Investigation, progress: Progress
    ) -> None:
        self.investigation = investigation
        self.control = control
        self._progress = progress
        self._driven_us = 0  # when the reservations were last driven

    def step(self) -> Investigation:
        """Do once what is due now; raise FenceLostError. What fails is noted, tried again, and then given up."""
        self.keep()
        steps = {
            Phase.RESERVE: self._reserve,
            Phase.CHECK: self._check,
            Phase.ARMS: self._run_arms,
            Phase.EXPERIMENT: self._experiment,
            Phase.RELEASE: self._release,
            Phase.REPORT: self._report,
        }
        before = self.investigation.phase
        if before is Phase.ENDED:
            return self.investigation
        try:
            steps[before]()
        except fences.FenceLostError:
            raise
        except Exception as error:  # hosts are given back whatever happens
            self._note_failure(_describe(error))
        else:
            if self.investigation.attempts and self.investigation.phase is before:
                self.save(attempts=0, next_us=0)
        return self.investigation

    def free(self) -> Investigation:
        """Let another driver take the investigation."""
        self.save(driver_until_us=0)
        return self.investigation

    # the record

    @property
    def now_us(self) -> int:
        return self.control.clock()

    @property
    def hosts(self) -> context.HostControl:
        return self.control.hosts(self.investigation)

    def save(self, *notes: Note, **changes: object) -> None:
        if changes.get("phase", self.investigation.phase) is not self.investigation.phase:
            changes = {"phase_us": self.now_us, "attempts": 0, "next_us": 0, **changes}
        changed = dataclasses.replace(self.investigation, **changes)  # type: ignore[arg-type]  # its fields
        with self.control.database.write("save investigation") as connection:
            investigation_rows.save(connection, changed, notes)
        self.investigation = changed
        for note in notes:
            self._progress(str(note))

    def note(self, text: str, host: str = "") -> Note:
        return Note(self.now_us, text, host)

    def keep(self) -> None:
        """Extend the lease before something that may take long; see whether somebody asked to stop."""
        until_us = self.now_us + context.DRIVER_SECONDS * SECOND_US
        with self.control.database.write("keep investigation") as connection:
            stop = investigation_rows.keep(connection, self.investigation, until_us)
        self.investigation = dataclasses.replace(
            self.investigation, stop=stop, driver_until_us=until_us
        )

    def _note_failure(self, text: str) -> None:
        now, attempts = self.investigation, self.investigation.attempts + 1
        notes = [self.note(text)] if attempts == 1 else []
        if attempts < decisions.MAX_ATTEMPTS or now.phase is Phase.RELEASE:
            self.save(*notes, attempts=attempts, next_us=decisions.retry_at(attempts, self.now_us))
        elif now.phase is Phase.REPORT:
            self.save(self.note("the report could not be written"), phase=Phase.ENDED)
        else:
            self._conclude(text)

    def _conclude(self, reason: str) -> None:
        """Give the hosts back, then report what was learnt."""
        reason = self.investigation.reason or reason
        self.save(self.note(f"ending: {reason}"), phase=Phase.RELEASE, reason=reason)

    # phases

    def _reserve(self) -> None:
        now = self.investigation
        if why := decisions.why_end(now, self.now_us):
            self._conclude(why)
        elif len(now.reservations) < len(now.plan.groups):
            self._order_hosts()
        else:
            reservations = self._drive_reservations()
            states = {reservation.state for reservation in reservations}
            if states == {ReservationState.ACTIVE}:
                names = ", ".join(host.name for each in reservations for host in each.held)
                self.save(self.note(f"reserved {names}"), phase=Phase.CHECK)
            elif states - {ReservationState.ACTIVE, ReservationState.PREPARING}:
                self._conclude(_explain_lost(reservations, "could not be made"))

    def _order_hosts(self) -> None:
        known = self.investigation.reservations
        orders = decisions.make_orders(self.investigation, self.now_us, self.control.endpoint())
        try:
            # A driver that was killed may have made it.
            made = next((r for r in self._find_reservations() if r.id not in known), None)
            made = made or self.control.hooks.reserve(orders[len(known)])
        except errors.UsageError as error:
            self._conclude(f"{error.what}: {error.why}")
            return
        self.save(self.note(f"reserving hosts as {made.id}"), reservations=(*known, made.id))

    def _find_reservations(self) -> list[Reservation]:
        listed = self.control.reservations.list()
        return [each for each in listed if each.order.purpose == self.investigation.id]

    def _drive_reservations(self) -> list[Reservation]:
        """Return the reservations; on this machine, where no server does so, renew them and check their host."""
        found = [self.control.reservations.show(each) for each in self.investigation.reservations]
        soon = self.investigation.phase is Phase.RESERVE
        if self.investigation.plan.is_local and (soon or self.now_us - self._driven_us >= DRIVE_US):
            self._driven_us = self.now_us
            found = [self.control.reservations.drive(each) or each for each in found]
        return found

    def _check(self) -> None:
        now, like = self.investigation, self.investigation.plan.hosts.like
        if why := self._why_end():
            self._conclude(why)
            return
        reservations = [self.control.reservations.show(each) for each in now.reservations]
        held = [host for reservation in reservations for host in reservation.held]
        waited = (self.now_us - now.phase_us) / SECOND_US
        without = [host for host in held if not _has_agent(host)]
        if without and not now.plan.is_local and waited < AGENT_SECONDS:
            return
        notes = [
            self.note(f"{check.name}: {check.detail}; {check.advice}".rstrip("; "), host.name)
            for host in held
            for check in host.checks
            if _is_noted(check, now.plan)
        ]
        compared = map(self.control.hooks.compare, reservations if like else ())
        different = {host: texts for each in compared for host, texts in each.items()}
        notes += [
            self.note(f"differs from {like}: {text}", host)
            for host, texts in different.items()
            for text in texts
        ]
        if any(different.values()) and now.plan.hosts.require_equal:
            self.save(*notes)
            self._conclude(f"a host is not like {like}")
            return
        hosts = tuple(host.name for host in held)
        self.save(*notes, phase=Phase.ARMS, arms=decisions.assign_hosts(now.plan, hosts))

    def _run_arms(self) -> None:
        why = self._why_end()
        for at in decisions.choose_arms(self.investigation):
            arms.Arm(self, at).step(why)
        if decisions.choose_arms(self.investigation):
            return
        if why:
            self._conclude(why)
        else:
            self.save(phase=Phase.EXPERIMENT)

    def _why_end(self) -> str:
        disk = self.investigation.plan.budget.disk
        used = self.hosts.used_bytes() if disk else 0
        reservations = self._drive_reservations()
        why = decisions.why_end(self.investigation, self.now_us, used)
        return why or _explain_lost(reservations, "has ended")

    def _experiment(self) -> None:
        now, why = self.investigation, self._why_end()
        if now.experiment is None:
            self._begin_experiment(why)
            return
        if now.experiment.arm.state is not ArmState.ENDED:
            arms.Arm(self, None).step(why)
            return
        before = now.arms[decisions.find_compared(now, now.experiment.event)]
        judged = self.control.hooks.judge(now, before, now.experiment.arm)
        undone = not decisions.list_left(now.experiment.arm)
        self.save(
            self.note(f"experiment {judged.answer}: {judged.says}"),
            phase=Phase.RELEASE,
            experiment=dataclasses.replace(now.experiment, **vars(judged), undone=undone),
            reason=now.reason or why,
        )

    def _begin_experiment(self, why_end: str) -> None:
        now = self.investigation
        seen = any(arm.occurrences for arm in now.arms)
        if not seen or not now.plan.experiment.allow or why_end:
            self.save(phase=Phase.RELEASE, reason=now.reason or why_end)
            return
        chosen = self.control.hooks.choose_experiment(now)
        if not chosen.steps:
            self.save(self.note(f"no experiment: {chosen.why}"), phase=Phase.RELEASE)
            return
        like = decisions.find_compared(now, chosen.event)
        changes = (*now.plan.arms[like].changes, *chosen.steps)
        arm = ArmRun(kind=ArmKind.FIXED, hosts=now.arms[like].hosts, changes=changes)
        made = ExperimentRun(change=chosen.change, why=chosen.why, arm=arm, event=chosen.event)
        self.save(self.note(f"experiment: {chosen.change}; {chosen.why}"), experiment=made)

    def diagnose(self, seen: Occurrence) -> Occurrence | None:
        """Return an event with its first verdict, or the reason why there is none; None while its window is missing."""
        self.keep()
        try:
            return self.control.hooks.diagnose(self.investigation, seen)
        except Exception as error:  # the night goes on
            return dataclasses.replace(seen, headline=f"not diagnosed: {_describe(error)}")

    def _release(self) -> None:
        now = self.investigation
        left = []
        for reservation_id in sorted(
            {*now.reservations, *(r.id for r in self._find_reservations())}
        ):
            self.keep()
            released = self.control.reservations.release(reservation_id, f"{now.id} has ended")
            if released.state is not ReservationState.RELEASED:
                left.append(reservation_id)
        if left and (self.now_us - now.phase_us) / SECOND_US < RELEASE_SECONDS:
            self.save(next_us=self.now_us + RELEASE_RETRY_US)
            return
        texts = [
            f"{each} is not released yet; `overnight release {each}` tries again" for each in left
        ]
        self.save(*map(self.note, texts or ["every host is given back"]), phase=Phase.REPORT)

    def _report(self) -> None:
        outcome = decisions.find_outcome(self.investigation)
        if self.investigation.outcome is not outcome:
            self.save(outcome=outcome)
        with self.control.database.read() as connection:
            notes = investigation_rows.list_notes(connection, self.investigation.id, KEPT_NOTES)
        report, next_plan = self.control.hooks.write_report(self.investigation, notes)
        self.save(phase=Phase.ENDED, report=report, next_plan=next_plan)


def _explain_lost(reservations: list[Reservation], what: str) -> str:
    """Return which reservation is not held any more, '' if all are."""
    lost = [r for r in reservations if r.state not in (ReservationState.ACTIVE, ReservationState.PREPARING)]  # fmt: skip
    return f"{lost[0].id} {what}: {lost[0].reason}" if lost else ""


def _describe(error: Exception) -> str:
    if isinstance(error, errors.OvernightError):
        return f"{error.what}: {error.why}"
    return f"{type(error).__name__}: {error}"


def _is_noted(check: Check, plan: Plan) -> bool:
    """Return whether a check of a host goes into the log; on this machine the tasks of an arm record, no agent."""
    if check.name == AGENT:
        return not plan.is_local and check.state is not CheckState.PASSED
    return check.state is CheckState.FAILED


def _has_agent(host: ReservedHost) -> bool:
    return any(check.name == AGENT and check.state is CheckState.PASSED for check in host.checks)
