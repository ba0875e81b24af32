"""What goes when the ring is too large or too old: the oldest files, never a pinned window."""

from __future__ import annotations

import contextlib
import json
import pathlib
from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from overnight.store.ring import journal, layout

if TYPE_CHECKING:
    from overnight.model.pins import Pin

__all__ = ["Stored", "choose_removals", "span_us", "trim"]

MOST_GAPS_BYTES = 1 << 20
EVENTS_SECONDS = 400 * 86400  # more than a year: the same night last year can be asked for
# Slewing moves the wall clock against the monotonic one, which bounds a file.
SLACK_US = 10_000_000


class Stored(NamedTuple):
    """One file of the ring and the time it may cover."""

    begin_us: int
    end_us: int
    bytes: int
    path: pathlib.Path


def span_us(stamp_us: int) -> tuple[int, int]:
    """Begin and end that a file with that stamp can have at most."""
    longest = 2 * layout.FILE_SECONDS * 1_000_000
    return stamp_us - SLACK_US, stamp_us + longest + SLACK_US


def choose_removals(
    stored: Iterable[Stored],
    pinned: Iterable[Pin],
    *,
    now_us: int,
    age_seconds: float,
    surplus: int,
) -> tuple[Stored, ...]:
    """What is too old, and of the rest the oldest, as few as free `surplus` bytes. The newest stays."""
    held = tuple(pinned)
    oldest_us = now_us - round(age_seconds * 1_000_000)
    chosen = []
    for one in sorted(stored)[:-1]:
        if surplus <= 0 and one.end_us >= oldest_us:
            continue
        if any(one.begin_us < pin.end_us and pin.begin_us < one.end_us for pin in held):
            continue
        chosen.append(one)
        surplus -= one.bytes
    return tuple(chosen)


def trim(
    folder: pathlib.Path,
    pinned: Iterable[Pin],
    *,
    now_us: int,
    budget_bytes: int,
    age_seconds: float,
) -> int:
    """Remove what may go; by how many bytes the ring is still too large: pinned windows stay."""
    stored = []
    used = 0
    for suffix in (layout.RING, layout.OPEN):
        for name, path in layout.files(folder, suffix):
            try:
                size = path.stat().st_size
            except OSError:
                continue
            used += size
            if suffix == layout.RING:
                stored.append(Stored(*span_us(name.stamp_us), size, path))
    for one in choose_removals(
        stored, pinned, now_us=now_us, age_seconds=age_seconds, surplus=used - budget_bytes
    ):
        with contextlib.suppress(OSError):
            one.path.unlink()
            used -= one.bytes
    _trim_gaps(folder / "gaps.jsonl", now_us - round(age_seconds * 1_000_000))
    oldest = layout.month_of(now_us - round(max(age_seconds, EVENTS_SECONDS) * 1_000_000))
    for path in folder.glob("events-*.jsonl"):
        if path.stem.removeprefix("events-") < oldest:
            with contextlib.suppress(OSError):
                path.unlink()
    return max(0, used - budget_bytes)


def _trim_gaps(path: pathlib.Path, oldest_us: int) -> None:
    """Once the file is large: leave out gaps older than the ring, then the oldest half."""
    with contextlib.suppress(OSError):
        if path.stat().st_size <= MOST_GAPS_BYTES:
            return
        kept = []
        for _, entry in journal.read_lines(path):
            end = entry.get("end_us") if entry else None
            if isinstance(end, int) and end >= oldest_us:
                kept.append(json.dumps(entry, separators=(",", ":")) + "\n")
        while sum(map(len, kept)) > MOST_GAPS_BYTES // 2:
            del kept[: len(kept) // 2 + 1]
        # Not synced: this runs in the recorder's loop, which a slow disk must not stop. After a power
        # cut the old file, or none, is there: gaps are a hint.
        fresh = path.with_suffix(".new")
        fresh.write_text("".join(kept))
        fresh.replace(path)
