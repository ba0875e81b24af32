"""Investigations of a server: whose they are, what drives them, and where their evidence is."""

from __future__ import annotations

import json
import pathlib
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from overnight import errors
from overnight.app import answer_process, driving, fleet_windows, investigation_evidence
from overnight.investigations import context, hosts
from overnight.model.control_plane import Principal, Role
from overnight.model.investigation import INVESTIGATION_ID, Investigation, Occurrence, Phase
from overnight.model.selection import Window

if TYPE_CHECKING:
    from overnight.app import investigations, reservations
    from overnight.fleet import control
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


def make_loop(
    where: investigations.Investigations, interval: float, progress: Callable[[str], None]
) -> driving.Loop[Investigation]:
    return driving.Loop(
        "investigations", where.tick, lambda each: each.phase is not Phase.ENDED,
        interval=interval, soon=STEP_SECONDS, progress=progress,
    )  # fmt: skip


def make_evidence(
    plane: control.ControlPlane,
    use: reservations.Reservations,
    folder: pathlib.Path,
    endpoint: Callable[[], str],
    diagnosis: Callable[[str, str], pathlib.Path],
) -> investigation_evidence.Evidence:
    """Return the evidence that the fleet of a server has; reports go to the folder that all its servers share."""

    def find_window(seen: Occurrence) -> pathlib.Path | None:
        try:
            event = plane.event(seen.event)
            held = fleet_windows.find_held(plane, event.host, event.id)
        except errors.NotFoundError:
            return None
        return plane.open_window(held.sha256)

    def find_verdict(_: Investigation, seen: Occurrence) -> context.FirstVerdict | None:
        try:
            document = json.loads(diagnosis(seen.event, "json").read_bytes())
        except (fleet_windows.WindowMissingError, answer_process.BusyError):
            return None
        link = f"{endpoint()}/reports/{seen.event}"
        return context.FirstVerdict(document["verdict"]["headline"], link)

    def read_fleet(investigation: Investigation) -> Fleet:
        window = Window(investigation.made_us, plane.context.clock())
        known = plane.fleet(investigation.plan.wait.events or None, window)
        reserved = {host for arm in investigation.arms for host in arm.hosts}
        names = hosts.FleetHosts(plane, investigation.id).find_names(sorted(reserved))
        return investigation_evidence.rename_hosts(known, names)

    return investigation_evidence.Evidence(
        home_of=lambda each: folder / each.id,
        reservation=use.plane.show,
        read_fleet=read_fleet,
        find_window=find_window,
        first_verdict=find_verdict,
        link=lambda each, path: f"{endpoint()}/investigations/{each.id}/{path.name}",
    )


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
        _check_owner(where.plane.show(given["investigation_id"]).owner, by)
        return dict(given)
    plan: Plan = given["plan"]
    if plan.is_local:
        raise errors.UsageError(
            "a server does not carry out plans for its own machine",
            why="provider local is the machine that overnight run runs on",
            todo="overnight run PLAN without --server, on that machine",
        )
    _check_owner(given.get("owner") or by.name, by)
    return {**given, "owner": given.get("owner") or by.name}


def _check_owner(owner: str, by: Principal) -> None:
    if owner != by.name and not by.role.allows(Role.ADMIN):
        raise errors.NotAllowedError(
            f"the investigation belongs to {owner or 'nobody'}",
            why=f"token {by.name} has the role {by.role}, which may change its own investigations only",
            todo="ask the owner or an admin",
        )
