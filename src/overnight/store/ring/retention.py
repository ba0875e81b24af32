"""Retention of the ring: the oldest files are removed first, pinned windows never."""

from __future__ import annotations

import contextlib
import json
import pathlib
from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from overnight.model import files
from overnight.model.times import SECOND_US
from overnight.store.ring import journal, layout

if TYPE_CHECKING:
    from overnight.model.pins import Pin

MAX_GAPS_BYTES = 1 << 20
EVENTS_SECONDS = 400 * 86400  # more than a year, to compare with the same night last year
# Slewing moves the wall clock against the monotonic clock, which bounds a file.
SLACK_US = 10 * SECOND_US


class Stored(NamedTuple):
    """A file of the ring, and the longest time it can cover."""

    begin_us: int
    end_us: int
    bytes: int
    path: pathlib.Path


def span_us(stamp_us: int) -> tuple[int, int]:
    """Return the longest time that a file with that stamp can cover."""
    longest = 2 * layout.FILE_SECONDS * SECOND_US
    return stamp_us - SLACK_US, stamp_us + longest + SLACK_US


def choose_removals(
    stored: Iterable[Stored],
    pinned: Iterable[Pin],
    *,
    now_us: int,
    age_seconds: float,
    surplus: int,
) -> tuple[Stored, ...]:
    """Choose all files that are too old, then the oldest until `surplus` bytes are free; never the newest."""
    pins = tuple(pinned)
    oldest_us = now_us - round(age_seconds * SECOND_US)
    chosen = []
    for file in sorted(stored)[:-1]:
        if surplus <= 0 and file.end_us >= oldest_us:
            continue
        if any(file.begin_us < pin.end_us and pin.begin_us < file.end_us for pin in pins):
            continue
        chosen.append(file)
        surplus -= file.bytes
    return tuple(chosen)


def trim(
    folder: pathlib.Path,
    pinned: Iterable[Pin],
    *,
    now_us: int,
    budget_bytes: int,
    age_seconds: float,
) -> int:
    """Remove files; return the bytes above the budget that pinned windows hold."""
    stored = []
    used = 0
    for name, path in layout.files(folder, layout.RING) + layout.files(folder, layout.OPEN):
        with contextlib.suppress(OSError):
            size = path.stat().st_size
            used += size
            if name.suffix == layout.RING:
                stored.append(Stored(*span_us(name.stamp_us), size, path))
    for file in choose_removals(
        stored, pinned, now_us=now_us, age_seconds=age_seconds, surplus=used - budget_bytes
    ):
        with contextlib.suppress(OSError):
            file.path.unlink()
            used -= file.bytes
    _trim_gaps(folder / "gaps.jsonl", now_us - round(age_seconds * SECOND_US))
    oldest = layout.month_of(now_us - round(max(age_seconds, EVENTS_SECONDS) * SECOND_US))
    for path in folder.glob("events-*.jsonl"):
        if path.stem.removeprefix("events-") < oldest:
            with contextlib.suppress(OSError):
                path.unlink()
    return max(0, used - budget_bytes)


def _trim_gaps(path: pathlib.Path, oldest_us: int) -> None:
    """Shorten a large file: drop gaps older than the ring, then the oldest half."""
    with contextlib.suppress(OSError):
        if path.stat().st_size <= MAX_GAPS_BYTES:
            return
        kept = []
        for _, entry in journal.read_lines(path):
            end = entry.get("end_us") if entry else None
            if isinstance(end, int) and end >= oldest_us:
                kept.append(json.dumps(entry, separators=(",", ":")) + "\n")
        while sum(map(len, kept)) > MAX_GAPS_BYTES // 2:
            del kept[: len(kept) // 2 + 1]
        files.write_atomically(path, "".join(kept))
