"""Keeps the store within its budget: the oldest segments are removed first."""

from __future__ import annotations

import contextlib
import pathlib
import shutil
from typing import TYPE_CHECKING

from overnight.model import files
from overnight.model.times import SECOND_US
from overnight.store import hours

if TYPE_CHECKING:
    from collections.abc import Iterable

    from overnight.store import segments


def _bytes(folder: pathlib.Path) -> int:
    total = 0
    with contextlib.suppress(OSError):
        for path in folder.iterdir():
            total += path.stat().st_size
    return total


def trim_store(
    catalogue: segments.Catalogue,
    *,
    budget_bytes: int,
    keep_seconds: float,
    now_us: int,
    pins: Iterable[tuple[int, int]] = (),
) -> tuple[segments.Segment, ...]:
    """Remove the oldest segments above the budget; never the last hours, never a pinned window."""
    everything = sorted(
        (s for host in catalogue.hosts() for s in catalogue.segments(host)),
        key=lambda segment: segment.begin_us,
    )
    sizes = [_bytes(segment.path) for segment in everything]
    past = {hours.hour_file(segment) for segment in everything}
    surplus = sum(sizes) + sum(f.stat().st_size for f in past if f.is_file()) - budget_bytes
    pinned = tuple(pins)
    removed = []
    for segment, size in zip(everything, sizes, strict=True):
        if surplus <= 0:
            break
        if segment.end_us >= now_us - keep_seconds * SECOND_US:
            continue
        if any(segment.begin_us < end and begin < segment.end_us for begin, end in pinned):
            continue
        # Hidden by a rename, then deleted: a reader never sees half a segment, also after a power cut.
        hidden = segment.path.with_name(f".new-gone-{segment.path.name}")
        try:
            segment.path.rename(hidden)
            files.sync(hidden.parent)
        except OSError:
            continue
        shutil.rmtree(hidden, ignore_errors=True)
        surplus -= size + hours.forget(segment)
        removed.append(segment)
    return tuple(removed)
