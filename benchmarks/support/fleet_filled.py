"""A database of 10,000 hosts and 90 days: spells, labels, and events that one fault causes.

The fault is in one zone, and its rate rises with uptime.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from overnight.fleet.sql import schema

if TYPE_CHECKING:
    import sqlalchemy as sa

    from overnight.database import engine

__all__ = ["KIND", "SICK_ZONE", "fill"]

KIND, SICK_ZONE = "net.driver_reset", "zone-3"
DAY_US = 86_400_000_000
CHUNK = 10_000


def fill(database: engine.Database, hosts: int = 10_000, days: int = 90, events: int = 2_000) -> None:  # fmt: skip
    """Add hosts with their history until now; `events` is the expected number."""
    chance = np.random.default_rng(1)
    end = time.time_ns() // 1000
    begin = end - days * DAY_US
    rows: dict[str, list[dict[str, Any]]] = {"hosts": [], "labels": [], "spells": [], "events": []}
    sick_days = hosts / 10 * days
    for number in range(hosts):
        host_id, name = f"{number:016x}", f"host-{number:05d}"
        labels = {
            "zone": f"zone-{number % 10}", "rack": f"rack-{number // 40}", "role": f"role-{chance.integers(12)}",
            "instance-type": f"type-{chance.integers(6)}", "kernel": f"6.1.{chance.integers(8)}",
            "image": f"image-{chance.integers(5)}",
        }  # fmt: skip
        rows["labels"] += [{"host_id": host_id, "name": k, "value": v} for k, v in labels.items()]
        spells = [*_spells(chance, begin, end, number)]
        rows["spells"] += [{"host_id": host_id, **spell} for spell in spells]
        if labels["zone"] == SICK_ZONE:
            for spell in spells:
                rows["events"] += _events(chance, host_id, spell, events / sick_days)
        last = spells[-1]
        rows["hosts"].append(
            {
                "id": host_id, "name": name, "boot": last["boot"], "note": "", "enrolled_us": begin, "seen_us": end,
                "booted_us": last["begin_us"] - last["uptime_us"], "uptime_us": last["uptime_us"], "skew_us": 0,
                "lost_events": 0, "lost_rollups": 0, "day": 0, "day_events": 0, "labels_us": begin,
            }
        )  # fmt: skip
    with database.write("fill") as connection:
        for table, given in rows.items():
            _insert(connection, getattr(schema, table), given)
        connection.exec_driver_sql("ANALYZE")


def _insert(connection: sa.Connection, table: sa.Table, rows: list[dict[str, Any]]) -> None:
    for start in range(0, len(rows), CHUNK):
        connection.execute(table.insert(), rows[start : start + CHUNK])


def _spells(chance: Any, begin: int, end: int, number: int) -> Iterator[dict[str, Any]]:
    """Yield boots of 12 days on average; the agent was restarted in every third."""
    at, uptime = begin, round(chance.exponential(12) * DAY_US)
    for count in range(1_000):
        until = min(end, at + round(chance.exponential(12) * DAY_US) + DAY_US // 24)
        boot = f"{number << 12 | count:08x}"
        cuts = [at, until] if count % 3 else [at, (at + until) // 2, until]
        for low, high in itertools.pairwise(cuts):
            yield {"boot": boot, "begin_us": low, "end_us": high - 20_000_000, "uptime_us": uptime + low - at}  # fmt: skip
        at, uptime = until + 120_000_000, 120_000_000
        if at >= end - DAY_US:
            return


def _events(chance: Any, host_id: str, spell: dict[str, Any], per_day: float) -> list[dict[str, Any]]:  # fmt: skip
    """Return events whose rate is in proportion to uptime; 12 days have the mean rate."""
    length = spell["end_us"] - spell["begin_us"]
    middle = (spell["uptime_us"] + length / 2) / DAY_US
    found = []
    for _ in range(chance.poisson(per_day * length / DAY_US * middle / 12)):
        at = spell["begin_us"] + round(length * chance.random() ** 0.7)
        found.append(
            {
                "host_id": host_id, "id": f"{KIND}-{chance.integers(1 << 62):016x}", "time_us": at, "until_us": 0, "count": 1,
                "received_us": at, "kind": KIND, "severity": "critical",
                "document": {"text": "TX timeout", "boot": spell["boot"], "fields": {"queue": 4}},
            }
        )  # fmt: skip
    return found
