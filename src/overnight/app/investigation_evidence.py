"""What an investigation asks of the evidence: first verdicts, the experiment of a verdict, and the final report.

On this machine the evidence is in the data home of the investigation. On a server it is in the fleet's tables and in
the windows that hosts have uploaded.
"""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from overnight.app import diagnose as diagnoses
from overnight.app import experiments, investigation_reports
from overnight.investigations import context, decisions, hosts
from overnight.model import files
from overnight.queries import fleet as fleets

if TYPE_CHECKING:
    from overnight.model.fleet import Fleet
    from overnight.model.investigation import ArmRun, Investigation, Note, Occurrence
    from overnight.model.reservation import Reservation


@dataclasses.dataclass(frozen=True, kw_only=True)
class Evidence:
    """Where the evidence of investigations is, and where their reports go."""

    home_of: Callable[[Investigation], pathlib.Path]
    reservation: Callable[[str], Reservation]
    read_fleet: Callable[[Investigation], Fleet]
    # The window of an event that a host has uploaded; None: the data home has it.
    find_window: Callable[[Occurrence], pathlib.Path | None] | None = None
    first_verdict: Callable[[Investigation, Occurrence], context.FirstVerdict | None] | None = None
    link: Callable[[Investigation, pathlib.Path], str] = lambda _, path: str(path)

    def hooks(self) -> context.Hooks:
        return context.Hooks(
            diagnose=self.first_verdict or self._write_verdict,
            choose_experiment=self._choose_experiment,
            judge=self._judge,
            write_report=self._write_report,
        )

    def _write_verdict(
        self, investigation: Investigation, seen: Occurrence
    ) -> context.FirstVerdict | None:
        home = self.home_of(investigation)
        found = investigation_reports.diagnose_here(investigation, home, seen)
        path = home / "verdicts" / f"{seen.event}.html"
        files.make_folder(path.parent)
        with path.open("wb") as out:
            found.write("html", out)
        return context.FirstVerdict(found.verdict.narrative.headline, str(path))

    def _diagnose(
        self, investigation: Investigation, seen: Occurrence
    ) -> diagnoses.Diagnosis | None:
        if self.find_window is None:
            home = self.home_of(investigation)
            return investigation_reports.diagnose_here(investigation, home, seen)
        bundle = self.find_window(seen)
        if bundle is None:
            return None
        return diagnoses.diagnose(diagnoses.Request(bundle.parent, bundle, event_id=seen.event))

    def _choose_experiment(self, investigation: Investigation) -> context.Proposal:
        """Return the change that tests the cause of the last event: by then the host's state was the oldest."""
        arm = investigation.arms[decisions.find_compared(investigation) or 0]
        seen = max(arm.occurrences, key=lambda each: each.time_us)
        found = self._diagnose(investigation, seen)
        if found is None:
            return context.Proposal("", "its window has not been uploaded", ())
        plan = investigation.plan
        # The machine of a rehearsal offers what its process can do; a server does not know what hosts offer.
        known = plan.is_local and not plan.rehearsal
        offered = hosts.own_config(plan).changes if known else None
        choice = experiments.choose(found.verdict, plan.experiment.allow, offered)
        steps = (f"{step.name} {step.change.target}".rstrip() for step in choice.steps)
        return context.Proposal(str(choice), choice.why, tuple(steps))

    @staticmethod
    def _judge(investigation: Investigation, before: ArmRun, after: ArmRun) -> context.Judgement:
        judged = experiments.judge(before, after, investigation.plan.wait.events)
        return context.Judgement(judged.answer, judged.says, judged.needs_hours)

    def _write_report(self, investigation: Investigation, notes: Sequence[Note]) -> context.Written:
        read = investigation_reports.read_windows(self.find_window) if self.find_window else None
        written = investigation_reports.write(
            investigation,
            self.read_fleet(investigation),
            self.home_of(investigation),
            reservations=[self.reservation(each) for each in investigation.reservations],
            notes=notes,
            diagnose=read,
        )
        following = self.link(investigation, written.next_plan) if written.next_plan else ""
        return context.Written(self.link(investigation, written.html), following)


def read_home(home: pathlib.Path) -> Fleet:
    """Return the host of a data home with its events."""
    return fleets.read_fleet(home, snapshots=False)


def rename_hosts(fleet: Fleet, names: Mapping[str, str]) -> Fleet:
    """Return the reserved hosts by the names of their platform; `names` has those by the names of their agents."""
    found = (dataclasses.replace(h, name=names[h.name]) for h in fleet.hosts if h.name in names)
    return dataclasses.replace(fleet, hosts=tuple(found))
