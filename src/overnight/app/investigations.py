"""Use cases of `overnight run`: check a plan, carry it out, stop and resume it."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
import pathlib
import platform
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from overnight import errors
from overnight.app import reservations
from overnight.model import data_home, times
from overnight.model.investigation import Investigation, Note, Occurrence, Phase
from overnight.model.plan import Plan  # noqa: TC001 - operations read the hints
from overnight.model.reservation import Preflight  # noqa: TC001 - operations read the hints
from overnight.model.text import plural

if TYPE_CHECKING:
    from overnight.app import investigation_evidence, rehearsal_arm
    from overnight.database import engine
    from overnight.fleet import control as fleet_control
    from overnight.investigations import context, control, hosts
    from overnight.model.investigation import ArmRun
    from overnight.model.plan import ArmPlan
    from overnight.model.reservation import Order, Reservation

FOLDER = "investigations"
MARK = "OVERNIGHT_RESERVATION"  # in the environment of tasks: the reservation knows and ends them
POLL_SECONDS = 2.0

Progress = Callable[[str], None]


def _quiet(_: str) -> None:
    return


@dataclasses.dataclass(frozen=True)
class Report:
    """An investigation, the last lines of its log, and how long its arms take at most."""

    investigation: Investigation
    notes: tuple[Note, ...]
    left_s: float
    home: str = ""  # data home with what was recorded, if it is on this machine

    @property
    def summary(self) -> str:
        """The first part of the report as text, with the answer; '' where it is not on this machine."""
        path = pathlib.Path(self.investigation.report)
        if not self.home or path.suffix != ".html":
            return ""
        with contextlib.suppress(OSError):
            return path.with_suffix(".txt").read_text().partition("\n\nArms\n")[0]
        return ""

    @property
    def events(self) -> tuple[Occurrence, ...]:
        arms = [*self.investigation.arms]
        arms += [self.investigation.experiment.arm] if self.investigation.experiment else []
        return tuple(occurrence for arm in arms for occurrence in arm.occurrences)

    def as_json(self) -> dict[str, Any]:
        return {
            **self.investigation.as_json(),
            "left_s": round(self.left_s, 1),
            "notes": [vars(note) for note in self.notes],
        }


@dataclasses.dataclass(frozen=True)
class DryRun:
    """What a plan would do, and where."""

    steps: tuple[str, ...]
    hosts: Preflight
    seconds: float  # of all arms, at most

    def as_json(self) -> dict[str, Any]:
        hosts = self.hosts.as_json()
        return {"schema": "overnight.run-plan/1", "steps": list(self.steps), "seconds": self.seconds, "reservation": hosts}  # fmt: skip


def find_home(home: pathlib.Path, investigation_id: str) -> pathlib.Path:
    """Return the data home of an investigation, with what its tasks record on this machine."""
    return home / FOLDER / investigation_id


def load_plan(path: pathlib.Path, seconds: float | None = None) -> Plan:
    """Read a plan file; `seconds` replaces how long each arm is observed."""
    from overnight.investigations import plan_file

    plan = plan_file.load(path)
    # It may be resumed from another folder.
    if plan.load and plan.load.profile:
        profile = str(path.parent.absolute() / plan.load.profile)
        plan = dataclasses.replace(plan, load=dataclasses.replace(plan.load, profile=profile))
    if plan.report:
        plan = dataclasses.replace(plan, report=str(pathlib.Path(plan.report).absolute()))
    if seconds is None:
        return plan
    arms = tuple(dataclasses.replace(arm, seconds=0.0) for arm in plan.arms)
    return dataclasses.replace(plan, arms=arms, wait=dataclasses.replace(plan.wait, seconds=seconds))  # fmt: skip


def parse_plan(text: str) -> Plan:
    """Read a plan from text; a file that it names would be read on another machine."""
    from overnight.investigations import plan_file

    plan = plan_file.parse(text.encode())
    if (plan.load and plan.load.profile) or plan.report:
        raise errors.UsageError(
            "load.profile and report cannot be used here",
            why="they name files, and the plan did not come from one",
            todo="leave them out, or run it where the files are: overnight run PLAN",
        )
    return plan


def check(plan: Plan) -> None:
    """Raise UsageError for names that no host could know: hours may pass before an arm needs them."""
    from overnight import instruments
    from overnight.app import age, rehearsal_arm
    from overnight.load import workloads

    states = ((state, "arms: age", [*age.kinds()]) for arm in plan.arms for state in arm.age)
    loads = [(plan.load.kind, "load: kind", [*workloads.discover()])] if plan.load else []
    traced = ((each.name, "instruments:", [*instruments.discover()]) for each in plan.instruments if plan.is_local)  # fmt: skip
    for name, where, known in (*states, *loads, *traced):
        if name not in known:
            raise errors.UsageError(
                f"{where} {name!r} is unknown",
                why=f"known: {', '.join(known)}",
                todo="correct the plan",
            )
    if plan.rehearsal is not None:
        rehearsal_arm.check(plan.rehearsal.name)


def find_example(name: str) -> str:
    """Return the text of an example plan."""
    from overnight.investigations import plan_file

    known = plan_file.examples()
    if name not in known:
        raise errors.UsageError(
            f"no example {name!r}", why=f"examples: {', '.join(known)}", todo="choose one of them"
        )
    return known[name]


class Investigations:
    """The investigations of a data home, or of the database at `url`; opened on first use.

    `operations` lists the methods that a server publishes, and that `remote_operations` has from it.
    """

    def __init__(self, home: pathlib.Path, url: str = "", *, served: Served | None = None) -> None:
        self.home = home
        self._url = url
        self._served = served
        self._local: dict[str, hosts.LocalHost] = {}
        self._incidents: dict[str, rehearsal_arm.Process] = {}

    @functools.cached_property
    def plane(self) -> control.ControlPlane:
        from overnight.database import engine
        from overnight.investigations import context, control

        if not self._url or self.home.exists():
            data_home.prepare(self.home, trusted=())
        served = self._served
        database = served.database if served else engine.Database(self._url or engine.default_url(self.home))  # fmt: skip
        use = served.reservations if served else reservations.Reservations(self.home, self._url, database)  # fmt: skip
        hooks = served.evidence.hooks() if served else self._make_hooks(use)
        endpoint = served.endpoint if served else lambda: ""
        of_hosts = _HostReservations(use, drives=served is None)
        return control.ControlPlane(
            context.Context(database, of_hosts, self._hosts, hooks, endpoint=endpoint)
        )

    # what a server publishes

    def preflight(self, plan: Plan) -> DryRun:
        """Return what a plan would do, and where; change nothing."""
        from overnight.investigations import decisions

        check(plan)
        example = Investigation(id="i-" + "0" * 12, plan=plan, made_us=time.time_ns() // 1000)
        order = decisions.make_order(example, example.made_us, self.plane.context.endpoint())
        use = self.plane.context.reservations
        assert isinstance(use, _HostReservations)
        seconds = decisions.left_seconds(example, example.made_us)
        return DryRun(tuple(_describe(plan)), use.use.preflight(order), seconds)

    def create(self, plan: Plan, *, confirmed: bool, owner: str = "") -> Report:
        """Write the record of an investigation, which `run` or the servers of the database carry out.

        Raise UnconfirmedError, unless `confirmed`, if others are disturbed or a host is not like production.
        """
        reservations.check_consent(self.preflight(plan).hosts, confirmed=confirmed)
        return self.show(self.plane.create(plan, owner).id)

    def list(self, *, ended: bool = False) -> tuple[Investigation, ...]:
        """List open investigations, the newest first."""
        return self.plane.list(ended=ended)

    def show(self, investigation_id: str, *, recent: int = 100) -> Report:
        """Show an investigation with its arms, events and log."""
        from overnight.investigations import decisions

        found = self.plane.show(investigation_id)
        left = decisions.left_seconds(found, self.plane.context.clock())
        home = str(find_home(self.home, investigation_id)) if found.plan.is_local else ""
        return Report(found, self.plane.notes(investigation_id, recent), left, home)

    def stop(self, investigation_id: str) -> Report:
        """Ask for a clean end with what was learnt; every host is given back."""
        return self.show(self.plane.stop(investigation_id).id)

    def tick(self, progress: Progress = _quiet) -> tuple[Investigation, ...]:
        """Drive every investigation with hosts elsewhere one step; a server calls it every few seconds."""
        return self.plane.tick(progress)

    # here

    def run(
        self,
        investigation_id: str,
        stop: threading.Event,
        on_step: Callable[[Report], None] = lambda _: None,
        progress: Progress = _quiet,
    ) -> Report:
        """Carry an investigation out until it has ended; `stop` ends it cleanly with what was learnt.

        On KeyboardInterrupt it is left as it is, its tasks included: `run` again resumes it.
        """
        begun = self.plane.show(investigation_id)
        if begun.phase is Phase.ENDED:
            raise errors.ConflictError(
                f"{investigation_id} has ended",
                why=f"its outcome is {begun.outcome}",
                todo=f"overnight run status {investigation_id}",
            )
        if not begun.plan.is_local:
            return self.follow(investigation_id, stop, on_step, progress)
        host, wait = self._open_local(begun), self._wait_for(investigation_id, stop)
        try:
            self.plane.run(
                investigation_id, lambda _: on_step(self.show(investigation_id)), wait, progress
            )
        except KeyboardInterrupt:
            raise
        except BaseException:
            self._close(investigation_id, host)
            raise
        self._close(investigation_id, host)
        return self.show(investigation_id)

    def _close(self, investigation_id: str, host: hosts.LocalHost) -> None:
        if investigation_id in self._incidents:
            self._incidents.pop(investigation_id).end()
        host.close()
        self._local.pop(investigation_id, None)

    def _wait_for(self, investigation_id: str, stop: threading.Event) -> Callable[[float], None]:
        """Return a function that waits, and that asks once for the end when `stop` is set."""
        asked = False

        def wait(seconds: float) -> None:
            nonlocal asked
            if asked:
                time.sleep(min(seconds, 1.0))
            elif stop.wait(seconds):
                asked = True
                self.stop(investigation_id)

        return wait

    def finish(
        self,
        investigation_id: str,
        on_step: Callable[[Report], None] = lambda _: None,
        progress: Progress = _quiet,
    ) -> Report:
        """Stop an investigation, and wait until it has ended; without a driver it is driven here."""
        from overnight.investigations import hosts

        report, never = self.stop(investigation_id), threading.Event()
        if report.investigation.phase is Phase.ENDED:
            return report
        with contextlib.suppress(hosts.DrivenError):
            return self.run(investigation_id, never, on_step, progress)
        return self.follow(investigation_id, never, on_step, progress)

    def follow(
        self,
        investigation_id: str,
        stop: threading.Event,
        on_step: Callable[[Report], None] = lambda _: None,
        progress: Progress = _quiet,
    ) -> Report:
        """Show what another driver does until the investigation has ended; `stop` asks for that."""
        shown, wait = 0, self._wait_for(investigation_id, stop)
        while True:
            report = self.show(investigation_id)
            for note in report.notes:
                if note.at_us > shown:
                    progress(f"{note.host}: {note.text}" if note.host else note.text)
            shown = max((note.at_us for note in report.notes), default=0)
            on_step(report)
            if report.investigation.phase is Phase.ENDED:
                return report
            wait(POLL_SECONDS)

    # what the plane asks

    def _open_local(self, investigation: Investigation) -> hosts.LocalHost:
        from overnight.investigations import hosts

        if investigation.id not in self._local:
            self._local[investigation.id] = hosts.LocalHost(
                find_home(self.home, investigation.id),
                platform.node() or "host",
                investigation.plan,
            )
        return self._local[investigation.id]

    def _hosts(self, investigation: Investigation) -> context.HostControl:
        if self._served is not None:
            return self._served.hosts(investigation)
        if investigation.reservations:
            os.environ[MARK] = investigation.reservations[0]
        return self._open_local(investigation)

    def _make_hooks(self, use: reservations.Reservations) -> context.Hooks:
        from overnight.app import investigation_evidence, rehearsal_arm

        def home_of(investigation: Investigation) -> pathlib.Path:
            return find_home(self.home, investigation.id)

        def begin(investigation: Investigation, arm: ArmPlan, run: ArmRun) -> bool:
            if investigation.plan.rehearsal is None:
                return True
            process = self._incidents.setdefault(investigation.id, rehearsal_arm.Process(home_of(investigation)))  # fmt: skip
            return process.begin(investigation.plan.rehearsal, arm.kind, run.changes)

        def end(investigation: Investigation) -> None:
            if investigation.id in self._incidents:
                self._incidents[investigation.id].end()

        evidence = investigation_evidence.Evidence(
            home_of=home_of,
            reservation=use.plane.show,
            read_fleet=lambda each: investigation_evidence.read_home(home_of(each)),
        )
        return dataclasses.replace(evidence.hooks(), begin_incident=begin, end_incident=end)


@dataclasses.dataclass(frozen=True)
class Served:
    """What the investigations of a server have from it."""

    database: engine.Database
    reservations: reservations.Reservations
    fleet: fleet_control.ControlPlane
    endpoint: Callable[[], str]  # URL that agents of reserved hosts report to
    evidence: investigation_evidence.Evidence
    _known: dict[str, context.HostControl] = dataclasses.field(default_factory=dict)

    def hosts(self, investigation: Investigation) -> context.HostControl:
        from overnight.investigations import hosts

        return self._known.setdefault(investigation.id, hosts.FleetHosts(self.fleet, investigation.id))  # fmt: skip


class _HostReservations:
    """The use cases of reservations as an investigation asks them; `drives`: no server does."""

    def __init__(self, use: reservations.Reservations, *, drives: bool) -> None:
        self.use, self._drives = use, drives

    def find(self, purpose: str) -> Sequence[Reservation]:
        return [each for each in self.use.list() if each.order.purpose == purpose]

    def create(self, order: Order) -> Reservation:
        # Whoever started the investigation has agreed to what this disturbs.
        return self.use.create(order, confirmed=True).reservation

    def show(self, reservation_id: str) -> Reservation:
        return self.use.plane.show(reservation_id)

    def drive(self, reservation_id: str) -> None:
        if self._drives:
            self.use.drive(reservation_id)

    def compare(self, reservation: Reservation) -> Mapping[str, Sequence[str]]:
        return self.use.compare_hosts(reservation)

    def release(self, reservation_id: str, reason: str) -> Reservation:
        return self.use.plane.release(reservation_id, reason)


def _describe(plan: Plan) -> Iterator[str]:
    from overnight.investigations import decisions

    count = decisions.count_hosts(plan)
    where = f"{plan.hosts.provider} {plan.hosts.where}".rstrip()
    hours = times.format_duration(round(plan.budget.hours * 3600))
    yield f"reserve {plural(count, 'host')} from {where}, for at most {hours}"
    if plan.hosts.like:
        also = "or stop" if plan.hosts.require_equal else "or note what differs"
        yield f"check that each has the image, kernel and packages of {plan.hosts.like}, {also}"
    for arm in plan.arms:
        on = plural(arm.hosts, "host") if arm.hosts else "all hosts, after the arms before"
        steps = [f"{kind} {name}" for kind, name in decisions.list_preparation(plan, arm)]
        runs = [f"{kind} {name}".rstrip() for kind, name in decisions.list_observation(plan, arm.kind)]  # fmt: skip
        lasting = times.format_duration(arm.seconds or plan.wait.seconds)
        kinds = ", ".join(plan.wait.events) or "any kind that is at least a warning"
        until = f", or until {plural(plan.wait.count, 'event')} of {kinds}" if plan.wait.count else ""  # fmt: skip
        yield f"arm {arm.kind} on {on}: {', '.join(steps)}; then {', '.join(runs)} for {lasting}{until}"
    if plan.experiment.allow:
        yield f"experiment: at most one of {', '.join(plan.experiment.allow)}, undone afterwards"
    yield f"report to {plan.report or 'the data home'}"
    yield "give every host back"
