"""`overnight drift`: what sick hosts have and healthy ones do not, from the snapshots of a data home."""

from __future__ import annotations

import pathlib
from collections.abc import Collection
from typing import TYPE_CHECKING

from overnight import errors
from overnight.queries import fleet as fleets

if TYPE_CHECKING:
    from overnight.detectors.fleet import drift

__all__ = ["SCHEMA", "as_json", "compare"]

SCHEMA = "overnight.drift/1"


def compare(
    home: pathlib.Path, sick: Collection[str] = (), kind: str = ""
) -> tuple[drift.Comparison, tuple[str, ...]]:
    """Sick hosts against the others, and what could not be read.

    Sick are those named, or those with an event of a kind, or with neither said those with any critical
    event.
    """
    # scipy takes a second to import, and a wrong host name should be told at once.
    fleet = fleets.read_fleet(home, [kind] if kind else None)
    names = [host.name for host in fleet.hosts]
    if not any(host.snapshot for host in fleet.hosts):
        raise errors.CannotError(
            f"no snapshots are kept in {home}",
            why="; ".join(fleet.problems) or "none was taken, or they are elsewhere",
            todo="overnight snapshot on every host, then copy HOME/snapshots/HOST together into one data home",
        )
    if unknown := sorted(set(sick) - set(names)):
        raise errors.CannotError(
            f"no host {unknown[0]!r} is here",
            why=f"these are: {', '.join(names[:20])}" + (" …" if len(names) > 20 else ""),
            todo="name hosts as their snapshots do",
        )
    chosen = set(sick) or {
        host.name
        for host in fleet.hosts
        if any(kind or one.severity == "critical" for one in host.events)
    }
    if not chosen:
        raise errors.CannotError(
            f"no host had {kind or 'a critical event'}",
            why=f"{len(names)} hosts are here, and none of them has such an event",
            todo="say which hosts are sick with --sick HOST, or another --kind (overnight events lists them)",
        )
    from overnight.detectors.fleet import drift

    return drift.compare(fleet, chosen), fleet.problems


def as_json(made: drift.Comparison, problems: Collection[str], limit: int) -> dict[str, object]:
    """The stable form; schemas/drift-1.json describes it."""
    return {
        "schema": SCHEMA,
        "status": "no-data" if made.why_not else "found" if made.standing else "clear",
        "why": made.why_not,
        "sick": list(made.sick),
        "healthy": list(made.healthy),
        "without_snapshot": list(made.without),
        "columns": made.columns,
        "draws": made.draws,
        "smallest_p": made.smallest_p,
        "differences": [
            {
                "stands": one.stands,
                "items": [
                    {
                        "part": item.part,
                        "key": item.key,
                        "property": item.property,
                        "value": item.value,
                        "present": present,
                    }
                    for item, present in one.items
                ],
                "sick_with": one.column.sick_with,
                "sick": one.column.sick,
                "healthy_with": one.column.healthy_with,
                "healthy": one.column.healthy,
                "log_odds": one.column.log_odds,
                "log_odds_low": one.column.low,
                "lift": one.column.lift,
                "p": one.column.p,
                "q": one.column.q,
                "p_max": one.column.p_max,
            }
            for one in made.differences[:limit]
        ],
        "problems": list(problems),
    }
