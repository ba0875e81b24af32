"""The bounded spool of raw segments; the oldest are removed first.

Never removed are the segments of the last `keep_seconds` and those that overlap a pinned window: a spool
may exceed its budget, and reports it, rather than lose what an event pinned.

    FOLDER/<host>-<start>-<boot>.perf.data   finished segments
    FOLDER/*.writing, current.json           the segment being written
    FOLDER/pins/<id>.json                    pinned windows: begin, end, why
    FOLDER/wanted                            the segment being written is to end: somebody waits for it
    FOLDER/gaps.jsonl                        times without samples, and why
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import pathlib
from collections.abc import Collection, Iterable, Iterator

from overnight import errors
from overnight.model import files
from overnight.model.pins import Pin, Pins
from overnight.model.times import SECOND_NS
from overnight.sources import perf
from overnight.store.ring import journal

# A segment's name is cut to the millisecond, and its last write may be a buffer late.
SLACK_NS = 2 * SECOND_NS
WANTED = "wanted"


@dataclasses.dataclass(frozen=True)
class Segment:
    """One finished segment and the wall-clock time it covers."""

    path: pathlib.Path
    begin_ns: int
    end_ns: int
    bytes: int

    def overlaps(self, pin: Pin) -> bool:
        """Whether it may contain a sample of the pinned window."""
        return self.begin_ns - SLACK_NS <= pin.end_ns and pin.begin_ns <= self.end_ns + SLACK_NS


def choose_removals(
    segments: Iterable[Segment], pins: Collection[Pin], keep_from_ns: int, surplus: int
) -> Iterator[Segment]:
    """Yield the oldest removable segments, as few as free `surplus` bytes."""
    for segment in sorted(segments, key=lambda segment: (segment.begin_ns, segment.path.name)):
        if surplus <= 0:
            return
        # A segment from the future was recorded before the clock was set back: it is not old.
        if segment.end_ns < keep_from_ns and not any(map(segment.overlaps, pins)):
            yield segment
            surplus -= segment.bytes


class Journal:
    """The gaps of a spool: appended and synced at once, kept in memory while the disk is full."""

    def __init__(self, path: pathlib.Path) -> None:
        self.path = path
        self._lines = journal.Journal(path)
        self.flush = self._lines.flush

    def add(self, gap: perf.Gap) -> None:
        """Write a gap; an open one has no length yet and is written again when it ends."""
        self._lines.add(dataclasses.asdict(gap))

    def read(self) -> tuple[perf.Gap, ...]:
        """Read every gap in its last form, by its begin; unreadable lines are left out."""
        gaps: dict[tuple[int, str], perf.Gap] = {}
        for _, entry in journal.read_lines(self.path):
            begin, end, why = ((entry or {}).get(name) for name in ("begin_ns", "end_ns", "why"))
            if isinstance(begin, int) and isinstance(end, int):
                gaps[begin, str(why)] = perf.Gap(begin, end, str(why))
        return tuple(sorted(gaps.values(), key=lambda gap: gap.begin_ns))


def want_segment(folder: pathlib.Path) -> None:
    """Have a recorder finish the segment that it writes."""
    files.write(folder / WANTED, b"")


class Spool:
    """A folder of raw segments within `budget_bytes`; files may vanish at any time."""

    def __init__(self, folder: pathlib.Path, budget_bytes: int, keep_seconds: float) -> None:
        self.folder = folder
        self.budget_bytes = budget_bytes
        self.keep_seconds = keep_seconds
        self.journal = Journal(folder / "gaps.jsonl")
        self.pins = Pins(folder / "pins")
        try:
            files.make_folder(self.pins.folder)
        except OSError as error:
            raise errors.MissingPermissionError(
                f"cannot write to {folder}",
                why=str(error),
                todo="choose a folder you may write to: `overnight --home DIR record`",
            ) from error

    def segments(self) -> tuple[Segment, ...]:
        """List the finished segments, oldest first."""
        segments = []
        for path in self.folder.iterdir():
            name = perf.parse_segment_name(path.name)
            if name is None:
                continue
            with contextlib.suppress(OSError):
                stat = path.stat()
                end = max(name.start_ns, stat.st_mtime_ns)
                segments.append(Segment(path, name.start_ns, end, stat.st_size))
        return tuple(sorted(segments, key=lambda segment: (segment.begin_ns, segment.path.name)))

    def used_bytes(self) -> int:
        """Size of all files: segments, the one being written, kernel symbols, journals."""
        total = 0
        for entry in os.scandir(self.folder):
            with contextlib.suppress(OSError):
                if entry.is_file(follow_symlinks=False):
                    total += entry.stat(follow_symlinks=False).st_size
        return total

    def free_bytes(self) -> int:
        """Free space for ordinary users: a recorder must not use root's reserve."""
        stat = os.statvfs(self.folder)
        return stat.f_bavail * stat.f_frsize

    def trim(self, now_ns: int, *, floor_bytes: int = 0) -> tuple[Segment, ...]:
        """Remove the oldest until the spool is in budget and the disk has `floor_bytes` free."""
        surplus = max(self.used_bytes() - self.budget_bytes, floor_bytes - self.free_bytes())
        keep_from_ns = now_ns - round(self.keep_seconds * SECOND_NS)
        removed = []
        for segment in choose_removals(self.segments(), self.pins.pins(), keep_from_ns, surplus):
            with contextlib.suppress(FileNotFoundError):
                segment.path.unlink()
                removed.append(segment)
        return tuple(removed)
