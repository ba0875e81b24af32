"""Sum up the readings of instruments: one row for each kind, core and subject."""

from __future__ import annotations

from collections.abc import Iterable

from overnight.model.instrument import Reading, ReadingKind, Row

CGROUPS = (ReadingKind.CGROUP_CREATED, ReadingKind.CGROUP_REMOVED, ReadingKind.CGROUP_RELEASED)


def sum_rows(found: Iterable[Reading]) -> tuple[Row, ...]:
    """Return the rows of readings: by kind, the greatest first."""
    sums: dict[tuple[str, int, str, str], list[float]] = {}
    texts: dict[tuple[str, int, str, str], str] = {}
    for reading in found:
        # The text of others is an example: the latest cgroup or line.
        stack = reading.text if reading.kind == ReadingKind.OFF_CPU else ""
        key = (reading.kind, reading.core, reading.subject, stack)
        row = sums.setdefault(key, [0.0, 0.0, 0.0, 0.0])
        texts[key] = reading.text or texts.get(key, "")
        # Single cgroups are in the count of their second.
        single = 0.0 if reading.kind in CGROUPS else 1.0
        values = reading.values
        row[0] += values.get("count", single)
        row[1] += values.get("total_us", 0.0)
        row[2] = max(row[2], values.get("max_us", 0.0))
        row[3] = max(row[3], values.get("p99_us", 0.0))
    rows = [Row(*key[:3], texts[key], *numbers) for key, numbers in sums.items()]
    return tuple(sorted(rows, key=lambda row: (row.kind, *(-n for n in row.weight), row.core)))
