"""`overnight drift`: what sets sick hosts apart from healthy ones, by the snapshots of a data home."""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Collection
from typing import TYPE_CHECKING

from overnight import errors
from overnight.model.severity import Severity
from overnight.queries import fleet as fleets

if TYPE_CHECKING:
    from overnight.detectors.fleet import drift

SCHEMA = "overnight.drift/1"


@dataclasses.dataclass(frozen=True)
class Drift:
    """What differs between sick and healthy hosts, and what could not be read."""

    comparison: drift.Comparison
    problems: tuple[str, ...]

    def as_json(self, limit: int) -> dict[str, object]:
        """Return the document; docs/schemas/drift-1.json describes it."""
        comparison = self.comparison
        status = "found" if comparison.significant else "clear"
        return {
            "schema": SCHEMA,
            "status": "no-data" if comparison.why_not else status,
            "why": comparison.why_not,
            "sick": list(comparison.sick),
            "healthy": list(comparison.healthy),
            "without_snapshot": list(comparison.without),
            "columns": comparison.columns,
            "draws": comparison.draws,
            "smallest_p": comparison.smallest_p,
            "differences": [_as_json(each) for each in comparison.differences[:limit]],
            "problems": list(self.problems),
        }


def _as_json(difference: drift.Difference) -> dict[str, object]:
    column = dataclasses.asdict(difference.column)
    column["log_odds_low"] = column.pop("low")
    items = [{**item._asdict(), "present": present} for item, present in difference.items]
    return {**column, "stands": difference.is_significant, "items": items}


def compare(home: pathlib.Path, sick: Collection[str] = (), kind: str = "") -> Drift:
    """Compare sick hosts (those named, else with an event of `kind`, else critical) with the others."""
    fleet = fleets.read_fleet(home, [kind] if kind else None)
    names = [host.name for host in fleet.hosts]
    if not any(host.snapshot for host in fleet.hosts):
        raise errors.CannotError(
            f"no snapshots in {home}",
            why="; ".join(fleet.problems) or "none were taken, or they are in another data home",
            todo="run overnight snapshot on every host and copy each HOME/snapshots/HOST into one data home",
        )
    if unknown := sorted(set(sick) - set(names)):
        raise errors.CannotError(
            f"no host {unknown[0]!r} in this data home",
            why=f"known hosts: {', '.join(names[:20])}" + (" …" if len(names) > 20 else ""),
            todo="use the names of the snapshots",
        )
    chosen = set(sick) or {
        host.name
        for host in fleet.hosts
        if any(kind or event.severity == Severity.CRITICAL for event in host.events)
    }
    if not chosen:
        raise errors.CannotError(
            f"no host had {kind or 'a critical event'}",
            why=f"none of the {len(names)} hosts here recorded such an event",
            todo="name sick hosts with --sick HOST, or choose another --kind (overnight events lists them)",
        )
    # scipy takes a second to import; a wrong host name should fail before that.
    from overnight.detectors.fleet import drift

    return Drift(drift.compare(fleet, chosen), fleet.problems)
