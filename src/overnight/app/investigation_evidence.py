"""What an investigation asks of the rest: hosts, incidents of rehearsals, verdicts, experiments and the final report.

Here the evidence is in the data home of the investigation; `investigation_serving` has that of a server.
"""

from __future__ import annotations

import dataclasses
import functools
import pathlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from overnight.app import rehearsal_arm
from overnight.investigations import context, hosts
from overnight.model import files

if TYPE_CHECKING:
    from overnight.app import diagnose as diagnoses
    from overnight.app import reservations
    from overnight.model.fleet import Fleet
    from overnight.model.investigation import ArmRun, Investigation, Note, Occurrence
    from overnight.model.plan import ArmPlan
    from overnight.model.reservation import Order, Reservation


class Evidence(context.Hooks):
    """`folder` has a data home for each investigation."""

    def __init__(self, folder: pathlib.Path, use: reservations.Reservations) -> None:
        self.folder, self._use = folder, use
        self._incident = rehearsal_arm.Process()

    def reserve(self, order: Order) -> Reservation:
        return self._use.create(order, confirmed=True).reservation

    def compare(self, reservation: Reservation) -> Mapping[str, Sequence[str]]:
        return self._use.compare_hosts(reservation)

    def begin_incident(self, investigation: Investigation, arm: ArmPlan, run: ArmRun) -> bool:
        rehearsal = investigation.plan.rehearsal
        if rehearsal is None:
            return True
        return self._incident.begin(
            self.folder / investigation.id, rehearsal, arm.kind, run.changes
        )

    def end_incident(self) -> None:
        self._incident.end()

    def diagnose(self, investigation: Investigation, seen: Occurrence) -> Occurrence | None:
        found = self._read_verdict(investigation, seen)
        if found is None:
            return None
        path = self.folder / investigation.id / "verdicts" / f"{seen.event}.html"
        files.make_folder(path.parent)
        with files.replace(path) as out:
            found.write("html", out)
        headline = found.verdict.narrative.headline
        return dataclasses.replace(seen, headline=headline, report=str(path))

    def choose_experiment(self, investigation: Investigation) -> context.Proposal:
        """Return the change that tests the cause that the report will name."""
        # Here and below, not above: a server starts without numpy and DuckDB.
        from overnight.app import experiments, investigation_reports

        read = functools.partial(self._read_verdict, investigation)
        fleet, home = self._read_fleet(investigation), self.folder / investigation.id
        found = investigation_reports.find_leading(investigation, fleet, home, read)
        if found is None:
            return context.Proposal("its window has not been uploaded")
        seen, verdict = found
        plan = investigation.plan
        # The machine of a rehearsal offers what its process can do; a server does not know what hosts offer.
        known = plan.is_local and not plan.rehearsal
        offered = hosts.own_config(plan).changes if known else None
        chosen = experiments.choose(verdict, plan.experiment.allow, offered)
        return dataclasses.replace(chosen, event=seen.event)

    def judge(
        self, investigation: Investigation, before: ArmRun, after: ArmRun
    ) -> context.Judgement:
        from overnight.app import experiments

        return experiments.judge(before, after, investigation.plan.wait.events)

    def write_report(self, investigation: Investigation, notes: Sequence[Note]) -> tuple[str, str]:
        from overnight.app import investigation_reports

        written = investigation_reports.write(
            investigation,
            self._read_fleet(investigation),
            self.folder / investigation.id,
            reservations=[self._use.plane.show(each) for each in investigation.reservations],
            notes=notes,
            diagnose=functools.partial(self._read_verdict, investigation),
        )
        next_plan = self._link(investigation, written.next_plan) if written.next_plan else ""
        return self._link(investigation, written.html), next_plan

    # where the evidence is

    def _read_verdict(
        self,
        investigation: Investigation,
        seen: Occurrence,
        ask: diagnoses.AskFleet | None = None,
    ) -> diagnoses.Diagnosis | None:
        """Diagnose an event; None while what was recorded around it is not here."""
        from overnight.app import investigation_reports

        home = self.folder / investigation.id
        return investigation_reports.diagnose_here(investigation, home, seen, ask)

    def _read_fleet(self, investigation: Investigation) -> Fleet:
        """Return the hosts of an investigation with their events."""
        from overnight.queries import fleet

        return fleet.read_fleet(self.folder / investigation.id, snapshots=False)

    def _link(self, _: Investigation, path: pathlib.Path) -> str:
        return str(path)
