"""Investigations of a server: whose they are, what drives them, and where their evidence is."""

from __future__ import annotations

import dataclasses
import functools
import json
import pathlib
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from overnight import errors
from overnight.agent import event_pins
from overnight.app import (
    answer_process,
    driving,
    fleet_windows,
    investigation_evidence,
    investigations,
    reservation_serving,
)
from overnight.investigations import context, hosts
from overnight.model.investigation import INVESTIGATION_ID, Investigation, Occurrence, Phase
from overnight.model.selection import Window

if TYPE_CHECKING:
    from overnight.app import diagnose as diagnoses
    from overnight.app import reservations
    from overnight.fleet import control
    from overnight.model.control_plane import Principal
    from overnight.model.fleet import Fleet
    from overnight.model.plan import Plan

STEP_SECONDS = 5.0
REPORT_FILE = re.compile(r"report(-verdict-\d{1,3})?\.(html|json|txt)|report-next-plan\.yaml")
MEDIA = {
    ".html": "text/html",
    ".json": "application/json",
    ".txt": "text/plain",
    ".yaml": "application/yaml",
}


class FleetEvidence(investigation_evidence.Evidence):
    """The evidence that the fleet of a server has; reports go to the folder that all its servers share."""

    def __init__(
        self,
        folder: pathlib.Path,
        use: reservations.Reservations,
        fleet: control.ControlPlane,
        endpoint: Callable[[], str],
        diagnosis: Callable[[str, str], pathlib.Path],
    ) -> None:
        super().__init__(folder, use)
        self.fleet, self.endpoint, self._diagnosis = fleet, endpoint, diagnosis

    def diagnose(self, _: Investigation, seen: Occurrence) -> Occurrence | None:
        if self._find_window(seen) is None:
            return None
        try:
            document = json.loads(self._diagnosis(seen.event, "json").read_bytes())
        except (fleet_windows.WindowMissingError, answer_process.BusyError):
            return None
        link = f"{self.endpoint()}/reports/{seen.event}"
        return dataclasses.replace(seen, headline=document["verdict"]["headline"], report=link)

    def _read_verdict(
        self, _: Investigation, seen: Occurrence, ask: diagnoses.AskFleet | None = None
    ) -> diagnoses.Diagnosis | None:
        from overnight.app import investigation_reports

        return investigation_reports.read_windows(self._find_window)(seen, ask)

    def _find_window(self, seen: Occurrence) -> pathlib.Path | None:
        try:
            event = self.fleet.event(seen.event)
            # Not the first window of an event, which ends seconds after it.
            end_us = event.time_us + event_pins.AFTER_US
            held = fleet_windows.find_held(self.fleet, event.host, event.id, least_end_us=end_us)
        except errors.NotFoundError:
            return None
        return self.fleet.open_window(held.sha256)

    def _read_fleet(self, investigation: Investigation) -> Fleet:
        """Return the reserved hosts, by the names of their platform."""
        window = Window(investigation.made_us, self.fleet.context.clock())
        known = self.fleet.fleet(investigation.plan.wait.events or None, window)
        reserved = {host for arm in investigation.arms for host in arm.hosts}
        names = hosts.FleetHosts(self.fleet, investigation.id).find_names(sorted(reserved))
        found = (dataclasses.replace(h, name=names[h.name]) for h in known.hosts if h.name in names)
        return dataclasses.replace(known, hosts=tuple(found))

    def _link(self, investigation: Investigation, path: pathlib.Path) -> str:
        return f"{self.endpoint()}/investigations/{investigation.id}/{path.name}"


class ServedInvestigations(investigations.Investigations):
    """Investigations whose hosts report to the fleet of a server."""

    def __init__(self, use: reservations.Reservations, evidence: FleetEvidence) -> None:
        super().__init__(use.home, use)
        self._evidence = evidence

    def _make_context(self) -> context.Context:
        use, evidence = self.reservations.plane, self._evidence
        open_hosts = functools.cache(functools.partial(hosts.FleetHosts, evidence.fleet))
        return context.Context(
            use.context.database,
            use,
            lambda investigation: open_hosts(investigation.id),
            evidence,
            endpoint=evidence.endpoint,
        )


def make_loop(
    where: investigations.Investigations, interval: float, progress: Callable[[str], None]
) -> driving.Loop[Investigation]:
    return driving.Loop(
        "investigations", where.tick, lambda each: each.phase is not Phase.ENDED,
        interval=interval, soon=STEP_SECONDS, progress=progress,
    )  # fmt: skip


def find_file(folder: pathlib.Path, investigation_id: str, name: str) -> tuple[pathlib.Path, str]:
    """Return a file of a report and its media type; raise NotFoundError."""
    path = folder / investigation_id / name
    known = INVESTIGATION_ID.fullmatch(investigation_id) and REPORT_FILE.fullmatch(name)
    if not known or not path.is_file():
        raise errors.NotFoundError(
            f"no report {name} of {investigation_id}",
            why="it is written when the arms of an investigation have ended",
            todo=f"overnight run status {investigation_id}",
        )
    return path, MEDIA[path.suffix]


def admit(
    where: investigations.Investigations, given: Mapping[str, Any], by: Principal
) -> dict[str, Any]:
    """Return a request as the server carries it out; raise NotAllowedError where it concerns somebody else's."""
    if "plan" not in given:
        reservation_serving.check_owner(
            "investigation", where.plane.show(given["investigation_id"]).owner, by
        )
        return dict(given)
    plan: Plan = given["plan"]
    if plan.is_local:
        raise errors.UsageError(
            "a server does not carry out plans for its own machine",
            why="provider local is the machine that runs the plan",
            todo="run the plan on that machine, without --server",
        )
    owner = given.get("owner") or by.name
    reservation_serving.check_owner("investigation", owner, by)
    return {**given, "owner": owner}
