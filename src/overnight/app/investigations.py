"""Use cases of `overnight run`: check a plan, carry it out, stop and resume it."""

from __future__ import annotations

import contextlib
import dataclasses
import difflib
import functools
import os
import pathlib
import platform
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from overnight import errors
from overnight.app import report_files, reservations
from overnight.model import times
from overnight.model.investigation import Investigation, Note, Occurrence
from overnight.model.plan import HostGroup, Plan  # noqa: TC001 - operations read the hints
from overnight.model.reservation import HostPlan, Order, Preflight
from overnight.model.text import plural

if TYPE_CHECKING:
    from overnight.investigations import context, control, hosts, plan_file

FOLDER = "investigations"
MARK = "OVERNIGHT_RESERVATION"  # in the environment of tasks: the reservation knows and ends them
POLL_SECONDS = 2.0

Progress = Callable[[str], None]


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
        return tuple(seen for _, arm in self.investigation.list_arms() for seen in arm.occurrences)

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
    notes: tuple[str, ...] = ()
    unchecked: tuple[str, ...] = ()
    is_asked: bool = True  # False: no server was, and `hosts` has none

    def as_json(self) -> dict[str, Any]:
        return {
            "schema": "overnight.run-plan/1",
            "steps": list(self.steps),
            "seconds": self.seconds,
            "notes": list(self.notes),
            "unchecked": list(self.unchecked),
            "reservation": self.hosts.as_json() if self.is_asked else None,
        }


def load_plan(path: pathlib.Path, seconds: float | None = None) -> Plan:
    """Read a plan file; `seconds` replaces how long each arm is observed."""
    from overnight.investigations import plan_file

    def check(plan: Plan) -> Iterator[plan_file.Problem]:
        yield from find_problems(plan, reservations.list_providers())
        if why := plan.report and report_files.find_obstacle(pathlib.Path(plan.report)):
            yield plan_file.Problem("report", why, "use another name, or move the file away")

    plan = plan_file.load(path, check)
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

    plan = plan_file.parse(text.encode(), check=find_problems)
    if (plan.load and plan.load.profile) or plan.report:
        raise errors.UsageError(
            "load.profile and report cannot be used here",
            why="they name files, and the plan did not come from one",
            todo="leave them out, or run the plan on the machine that has the files",
        )
    return plan


def find_problems(plan: Plan, providers: Sequence[str] = ()) -> Iterator[plan_file.Problem]:
    """Yield why a plan cannot be carried out; also names that no host knows: hours may pass before an arm needs them.

    `providers` are the known ones; a server that lacks one of them says so itself.
    """
    from overnight import instruments
    from overnight.agent import signals
    from overnight.app import age, event_kinds
    from overnight.investigations import plan_file
    from overnight.load import workloads

    yield from plan_file.find_problems(plan)
    named = [("load.kind", plan.load.kind, [*workloads.discover()])] if plan.load else []
    named += [("hosts.provider", plan.hosts.provider, [*providers])] if providers else []
    for n, arm in enumerate(plan.arms):
        named += [(f"arms.{n}.age.{state}", state, [*age.kinds()]) for state in arm.age]
    for n, instrument in enumerate(plan.instruments):
        named.append((f"instruments.{n}.name", instrument.name, [*instruments.discover()]))
    if plan.record.every:
        of_host = sorted(signal.name for signal in signals.discover_signals())
        named += [(f"record.every.{name}", name, of_host) for name in plan.record.every]
    for where, name, known in named:
        if name not in known:
            near = difflib.get_close_matches(name, known, 1)
            hint = f"; did you mean {near[0]}?" if near else ""
            yield plan_file.Problem(where, f"unknown name {name}{hint}", f"use one of {', '.join(known)}")  # fmt: skip
    for kind in plan.wait.events:
        if why := event_kinds.find_mistake(kind):
            yield plan_file.Problem("wait.events", f"wait.events: {why}", "choose one of `overnight rules list`, or your own, such as job.failed")  # fmt: skip


def list_notes(plan: Plan) -> Iterator[str]:
    """Yield what a valid plan leaves to others."""
    from overnight.app import event_kinds

    for kind in plan.wait.events:
        if not event_kinds.is_found(kind):
            name = kind + "NAME" * kind.endswith(".")
            yield f"no detector reports {kind}; add each one on its host: `overnight event add --kind {name}`"


def check_alone(plan: Plan) -> DryRun:
    """Return what a plan for hosts elsewhere would do; its server is not asked."""
    hosts = Preflight(Order(provider=plan.hosts.provider), (), {})
    return _make_dry_run(plan, hosts, is_asked=False)


def _make_dry_run(plan: Plan, hosts: Preflight, home: str = "", *, is_asked: bool = True) -> DryRun:
    from overnight.investigations import decisions

    example = _make_example(plan)
    seconds = decisions.left_seconds(example, example.made_us)
    notes, unchecked = (*list_notes(plan),), (*_list_unchecked(plan, asked=is_asked),)
    return DryRun((*_describe(plan, home),), hosts, seconds, notes, unchecked, is_asked)


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
    """The investigations of a data home, whose hosts are this machine; opened on first use.

    `operations` lists the methods that a server publishes, and that `remote_operations` has from it.
    """

    def __init__(self, home: pathlib.Path, use: reservations.Reservations | None = None) -> None:
        self.home = home
        self.reservations = use or reservations.Reservations(home)
        self._host: hosts.LocalHost | None = None

    @functools.cached_property
    def plane(self) -> control.ControlPlane:
        from overnight.investigations import control

        return control.ControlPlane(self._make_context())

    def _make_context(self) -> context.Context:
        from overnight.app import investigation_evidence
        from overnight.investigations import context

        use = self.reservations.plane
        evidence = investigation_evidence.Evidence(self.home / FOLDER, self.reservations)
        return context.Context(use.context.database, use, self._open_host, evidence)

    # what a server publishes

    def preflight(self, plan: Plan) -> DryRun:
        """Return what a plan would do, and where; change nothing."""
        from overnight.app import rehearsal_arm
        from overnight.investigations import decisions

        for problem in find_problems(plan):
            raise errors.UsageError(
                f"{problem.where}: {problem.why}", why="the plan is not valid", todo=problem.todo
            )
        if plan.rehearsal is not None:
            rehearsal_arm.check(plan.rehearsal.name)
        example = _make_example(plan)
        orders = decisions.make_orders(example, example.made_us, self.plane.context.endpoint())
        home = str(self.home / FOLDER) if plan.is_local else ""
        return _make_dry_run(plan, self._plan_hosts(orders), home)

    def _plan_hosts(self, orders: Sequence[Order]) -> Preflight:
        """Return what all orders would do together; each gets hosts that the ones before it do not."""
        chosen: dict[str, HostPlan] = {}
        left_out: dict[str, str] = {}
        for order in orders:
            more = dataclasses.replace(order, count=order.count + len(chosen))
            found = self.reservations.preflight(more)
            free = [each for each in found.hosts if each.host.name not in chosen]
            chosen |= {each.host.name: each for each in free[: order.wanted]}
            left_out |= found.left_out
        whole = dataclasses.replace(orders[0], count=sum(order.count for order in orders))
        left_out = {name: why for name, why in left_out.items() if name not in chosen}
        return Preflight(whole, tuple(chosen.values()), left_out)

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
        home = str(self.home / FOLDER / investigation_id) if found.plan.is_local else ""
        return Report(found, self.plane.notes(investigation_id, recent), left, home)

    def stop(self, investigation_id: str) -> Report:
        """Ask for a clean end with what was learnt; every host is given back."""
        return self.show(self.plane.stop(investigation_id).id)

    def tick(self, progress: Progress) -> tuple[Investigation, ...]:
        """Drive every investigation with hosts elsewhere one step; a server calls it every few seconds."""
        return self.plane.tick(progress)

    # until its end

    def run(
        self,
        investigation_id: str,
        stop: threading.Event,
        on_step: Callable[[Report], None],
        progress: Progress,
    ) -> Report:
        """Carry an investigation out, or follow its driver, until it has ended; `stop` ends it cleanly.

        On KeyboardInterrupt it is left as it is, its tasks included: `run` again resumes it.
        """
        begun, shown_us, pause, asked = self.show(investigation_id), 0, 0.0, False
        if begun.investigation.is_ended:
            raise errors.ConflictError(
                f"{investigation_id} has ended",
                why=f"its outcome is {begun.investigation.outcome}",
                todo=f"overnight run status {investigation_id}",
            )
        with self._drive(begun.investigation) as step:
            report = begun
            while True:
                for note in report.notes:
                    if note.at_us > shown_us:
                        progress(str(note))
                shown_us = max((note.at_us for note in report.notes), default=0)
                on_step(report)
                if report.investigation.is_ended:
                    return report
                if asked:
                    time.sleep(min(pause, 1.0))
                elif stop.wait(pause):
                    asked = True
                    self.stop(investigation_id)
                pause = step()
                report = self.show(investigation_id)

    def finish(
        self, investigation_id: str, on_step: Callable[[Report], None], progress: Progress
    ) -> Report:
        """Stop an investigation, and wait until it has ended; without a driver it is driven here."""
        report = self.stop(investigation_id)
        if report.investigation.is_ended:
            return report
        return self.run(investigation_id, threading.Event(), on_step, progress)

    @contextlib.contextmanager
    def _drive(self, begun: Investigation) -> Iterator[Callable[[], float]]:
        """Yield a function that takes the next step, unless another driver does, and returns the time until the next."""
        try:
            host = self._open_host(begun) if begun.plan.is_local else None
        except BlockingIOError:
            host = None
        if host is None:
            yield lambda: POLL_SECONDS
            return
        left = False
        try:
            with self.plane.drive(begun) as step:
                yield step
        except KeyboardInterrupt:
            left = True
            raise
        finally:
            if not left:
                self.plane.context.hooks.end_incident()
                host.close()
                self._host = None

    def _open_host(self, investigation: Investigation) -> hosts.LocalHost:
        from overnight.investigations import hosts

        if investigation.reservations:
            os.environ[MARK] = investigation.reservations[0]
        if self._host is None:
            home, name = self.home / FOLDER / investigation.id, platform.node() or "host"
            self._host = hosts.LocalHost(home, name, investigation.plan)
        return self._host


def _make_example(plan: Plan) -> Investigation:
    return Investigation(id="i-" + "0" * 12, plan=plan, made_us=times.now_us())


def _describe_group(group: HostGroup) -> str:
    bounds = [
        f"{word} {times.format_duration(seconds)}"
        for word, seconds in (("at least", group.up_at_least), ("at most", group.up_at_most))
        if seconds
    ]
    up = f" that {'has' if group.count == 1 else 'have'} been up for {' and '.join(bounds)}"
    return plural(group.count, "host") + (up if bounds else "")


def _list_unchecked(plan: Plan, *, asked: bool) -> Iterator[str]:
    if plan.is_local:
        return
    where = f"{plan.hosts.provider} {plan.hosts.where}".rstrip()
    if not asked:
        yield f"which hosts of {where} can be reserved, and what that disturbs"
        if plan.hosts.like:
            yield f"whether they have the image, kernel and packages of {plan.hosts.like}"
    yield "whether each host accepts these tasks (its /etc/overnight/agent.toml)"
    if plan.instruments:
        names = ", ".join(each.name for each in plan.instruments)
        yield f"whether the hosts have the instruments {names}"


def _describe(plan: Plan, home: str = "") -> Iterator[str]:
    from overnight.investigations import decisions

    where = f"{plan.hosts.provider} {plan.hosts.where}".rstrip()
    hours = times.format_duration(round(plan.budget.hours * 3600))
    groups = " and ".join(map(_describe_group, plan.groups))
    yield f"reserve {groups} from {where} for at most {hours}"
    if plan.hosts.like:
        also = "or stop" if plan.hosts.require_equal else "or note what differs"
        yield f"check that each has the image, kernel and packages of {plan.hosts.like}, {also}"
    turn = ""
    for arm in plan.arms:
        on = plural(arm.hosts, "host") if arm.hosts else f"all hosts{turn}"
        turn = f", after arm {arm.kind}"
        steps = [f"{kind} {name}" for kind, name in decisions.list_preparation(plan, arm) if name != decisions.NOTE_ARM]  # fmt: skip
        first = f"{', '.join(steps)}; then " if steps else ""
        runs = [f"{kind} {name}".rstrip() for kind, name in decisions.list_observation(plan, arm.kind)]  # fmt: skip
        lasting = times.format_duration(plan.observed_seconds(arm))
        kinds = ", ".join(plan.wait.events) or "severity warning or above"
        until = f", or until {plural(plan.wait.count, 'event')} of {kinds}" if plan.wait.count else ""  # fmt: skip
        yield f"arm {arm.kind} on {on}: {first}{', '.join(runs)} for {lasting}{until}"
    if plan.experiment.allow:
        yield f"test the cause with {' or '.join(plan.experiment.allow)}, and undo the change"
    yield "give every host back"
    replaced = ", in place of the last one" if plan.report and os.path.lexists(plan.report) else ""
    kept = f"{home}/ID/report.html" if home else "the server"
    yield f"write the report to {plan.report or kept}{replaced}"
