"""`overnight drift`: what sets two groups of hosts apart, by their snapshots."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from overnight import errors
from overnight.app import added_events, questions
from overnight.model import decoding
from overnight.model.severity import Severity
from overnight.model.snapshot import PARTS
from overnight.model.text import plural

if TYPE_CHECKING:
    from overnight.detectors.fleet import drift
    from overnight.model.fleet import Fleet, Host

MAX_DIFFERENCES = 10_000  # in the answer of a server


@dataclasses.dataclass(frozen=True)
class Request:
    """Hosts to compare with the others: those named, with an event of `kind`, or on which `unit` is active.

    Without any of these, hosts with a critical event.
    """

    sick: tuple[str, ...] = ()
    kind: str = ""
    unit: str = ""
    against: str = ""  # LABEL=VALUE: compare with the hosts that have it, such as a spared zone


@dataclasses.dataclass(frozen=True)
class BootError:
    host: str
    error: str


@dataclasses.dataclass(frozen=True)
class Drift:
    """What differs between two groups of hosts, and what could not be read."""

    comparison: drift.Comparison
    problems: tuple[str, ...]
    groups: tuple[str, str]
    # Units among the differences that are enabled, but were not active once, and where; see `overnight audit`.
    never_active: Mapping[str, tuple[str, ...]]
    # Parts that some snapshots do not have, such as those of an older version, and how many.
    unrecorded: Mapping[str, int]
    # By failed steps of the boot among the differences.
    boot_errors: Mapping[str, BootError]

    def as_json(self, limit: int = MAX_DIFFERENCES) -> dict[str, Any]:
        """Return the document; docs/schemas/drift-1.json describes it."""
        compared = self.comparison
        without = dataclasses.replace(compared, differences=())
        plain = dataclasses.asdict(dataclasses.replace(self, comparison=without))
        status = "found" if compared.significant else "clear"
        return {
            "schema": QUESTION.schema,
            "status": "no-data" if compared.why else status,
            **plain.pop("comparison"),
            "differences": [_as_json(each) for each in compared.differences[:limit]],
            **plain,
        }


def _as_json(difference: drift.Difference) -> dict[str, object]:
    column = dataclasses.asdict(difference.column)
    column["log_odds_low"] = column.pop("low")
    items = [{**item._asdict(), "present": present} for item, present in difference.items]
    return {**column, "stands": difference.is_significant, "items": items}


def _from_json(document: dict[str, Any]) -> Drift:
    from overnight.detectors.fleet import drift

    differences = [
        {
            "items": [[item, item["present"]] for item in each["items"]],
            "column": {**each, "items": [], "low": each["log_odds_low"]},
            "is_significant": each["stands"],
        }
        for each in document["differences"]
    ]
    return decoding.decode(Drift, {**document, "differences": differences}, drift=drift)


def compare(fleet: Fleet, request: Request) -> Drift:
    """Compare two groups of hosts by their snapshots."""
    if bool(request.sick) + bool(request.kind) + bool(request.unit) > 1:
        raise errors.UsageError(
            "--sick, --kind and --unit are mutually exclusive",
            why="each defines which hosts are compared with the others",
            todo="give one of them",
        )
    if not any(host.snapshot for host in fleet.hosts):
        raise errors.CannotError(
            f"none of {plural(len(fleet.hosts), 'host')} has a snapshot",
            why="; ".join(fleet.problems) or "none were taken, or they are in another data home",
            todo="run `overnight snapshot` on every host and copy each HOME/snapshots/HOST into one data home; agents report theirs each hour",
        )
    if request.unit:
        # Hosts whose snapshot does not show what runs belong to neither group.
        hosts = (
            host if _state(host, request.unit) else dataclasses.replace(host, snapshot=None)
            for host in fleet.hosts
        )
        fleet = dataclasses.replace(fleet, hosts=tuple(hosts))
    chosen = _choose(request, fleet)
    if request.against:
        name, value = added_events.parse_label(request.against)
        kept = (
            each for each in fleet.hosts if each.name in chosen or each.labels.get(name) == value
        )
        fleet = dataclasses.replace(fleet, hosts=tuple(kept))
    # scipy takes a second to import; a wrong host name should fail before that.
    from overnight.detectors.fleet import drift

    compared = drift.compare(fleet, chosen)
    parts = {part for host in fleet.hosts if host.snapshot for part in host.snapshot.parts}
    lacking = {
        part: sum(part not in host.snapshot.parts for host in fleet.hosts if host.snapshot)
        for part in PARTS
        if part in parts
    }
    # In a small fleet none may stand; the first is then the best guess.
    leading = compared.significant or compared.differences[:1]
    keys = sorted({item[:2] for difference in leading for item, _ in difference.items})
    return Drift(
        compared,
        fleet.problems,
        ("active", "not active") if request.unit else ("sick", "healthy"),
        _find_never_active([key for part, key in keys if part == "running"], fleet),
        {part: count for part, count in lacking.items() if count},
        _find_boot_errors([key for part, key in keys if part == "bootstrap"], fleet),
    )


def _choose(request: Request, fleet: Fleet) -> set[str]:
    if request.sick:
        return {host.name for host in questions.choose_hosts(fleet, request.sick)}
    everywhere = plural(len(fleet.hosts), "host")
    if request.unit:
        active = {host.name for host in fleet.hosts if _state(host, request.unit) == "active"}
        if not active:
            raise errors.CannotError(
                f"{request.unit} is active on no host",
                why=f"none of {everywhere} has a snapshot that shows it running",
                todo="check the name of the unit, and run `overnight snapshot` again on a host that runs it",
            )
        return active
    chosen = {
        host.name
        for host in fleet.hosts
        if any(request.kind or event.severity == Severity.CRITICAL for event in host.events)
    }
    if not chosen:
        raise errors.CannotError(
            f"no host had {request.kind or 'a critical event'}",
            why=f"none of {everywhere} recorded such an event",
            todo="name sick hosts with --sick HOST, or choose another --kind (`overnight events` lists them)",
        )
    return chosen


def _facts(host: Host, part: str, unit: str) -> dict[str, str]:
    facts = host.snapshot.parts.get(part, {}).get(unit) if host.snapshot else None
    return facts if isinstance(facts, dict) else {}


def _state(host: Host, unit: str) -> str | None:
    """Return systemd's state of a unit; None where the snapshot does not show what runs."""
    if host.snapshot is None or "running" not in host.snapshot.parts:
        return None
    return _facts(host, "running", unit).get("active", "inactive")


def _find_never_active(units: list[str], fleet: Fleet) -> dict[str, tuple[str, ...]]:
    """Return the units that the audit calls never-active, with their hosts."""
    found = {}
    for unit in units:
        hosts = [
            host.name
            for host in fleet.hosts
            if _facts(host, "running", unit).get("ran") == "never"
            and _facts(host, "units", unit).get("state", "").startswith("enabled")
        ]
        if hosts:
            found[unit] = tuple(hosts)
    return found


def _find_boot_errors(steps: list[str], fleet: Fleet) -> dict[str, BootError]:
    """Return a host of each failed step, and the error there."""
    found = (
        (step, BootError(host.name, _facts(host, "bootstrap", step).get("error", "")))
        for step in steps
        for host in reversed(fleet.hosts)
    )
    return {step: failed for step, failed in found if failed.error}


QUESTION = questions.Question(
    "drift",
    Request,
    lambda request: questions.Wanted([request.kind] if request.kind else None, snapshots=True),
    compare,
    _from_json,
)
