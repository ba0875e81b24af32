"""The bounded spool of raw segments: the oldest go first, what matters stays.

Never removed: the segments of the last `keep_seconds`, and those that overlap a pinned window. So
a spool may exceed its budget, and says so, rather than lose what an event asked to be kept.

    FOLDER/<host>-<start>-<boot>.perf.data   finished segments
    FOLDER/*.writing, current.json           the one being written
    FOLDER/pins/<id>.json                    windows to keep: begin, end, why
    FOLDER/gaps.jsonl                        when nothing was recorded, and why
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import pathlib
import re
from collections.abc import Iterable

from overnight import errors
from overnight.sources import perf

__all__ = ["Journal", "Pin", "Segment", "Spool", "choose_removals"]

SECOND = 1_000_000_000
# A segment's name is cut to the millisecond and its last change may be a buffer late.
SLACK_NS = 2 * SECOND
PIN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


@dataclasses.dataclass(frozen=True)
class Segment:
    """One finished segment and the wall-clock time it covers."""

    path: pathlib.Path
    begin_ns: int
    end_ns: int
    bytes: int


@dataclasses.dataclass(frozen=True)
class Pin:
    """A window whose segments stay; wall clock, nanoseconds."""

    id: str
    begin_ns: int
    end_ns: int
    why: str

    def covers(self, segment: Segment) -> bool:
        """Whether the segment may hold a sample of the window."""
        return (
            segment.begin_ns - SLACK_NS <= self.end_ns
            and self.begin_ns <= segment.end_ns + SLACK_NS
        )


def choose_removals(
    segments: Iterable[Segment],
    pins: Iterable[Pin],
    *,
    now_ns: int,
    keep_seconds: float,
    surplus: int,
) -> tuple[Segment, ...]:
    """The oldest segments that may go, as few as free `surplus` bytes, or all that may."""
    held = tuple(pins)
    young_ns = now_ns - round(keep_seconds * SECOND)
    chosen: list[Segment] = []
    for segment in sorted(segments, key=lambda one: (one.begin_ns, one.path.name)):
        if surplus <= 0:
            break
        # One from the future was recorded before the clock was set back: it is not old.
        if segment.end_ns >= young_ns or any(pin.covers(segment) for pin in held):
            continue
        chosen.append(segment)
        surplus -= segment.bytes
    return tuple(chosen)


class Journal:
    """The gaps of a spool: appended, on disk at once, kept in memory while there is no room."""

    def __init__(self, path: pathlib.Path) -> None:
        self.path = path
        self._waiting: list[str] = []

    def add(self, gap: perf.Gap) -> None:
        """Write a gap down; an open one, of no length yet, is told again when it ends."""
        self._waiting.append(json.dumps(dataclasses.asdict(gap)))
        self.flush()

    def flush(self) -> bool:
        """Write what waits; False while the disk does not take it."""
        if not self._waiting:
            return True
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        try:
            descriptor = os.open(self.path, flags, 0o600)
        except OSError:
            return False
        try:
            before = os.fstat(descriptor).st_size
            # A line that a crash cut off must not swallow the next one.
            cut = before > 0 and os.pread(descriptor, 1, before - 1) != b"\n"
            text = ("\n" if cut else "") + "".join(line + "\n" for line in self._waiting)
            data = text.encode()
            try:
                if os.write(descriptor, data) < len(data):
                    os.ftruncate(descriptor, before)
                    return False
                os.fsync(descriptor)
            except OSError:
                os.ftruncate(descriptor, before)
                return False
        except OSError:
            return False
        finally:
            os.close(descriptor)
        self._waiting.clear()
        return True

    def read(self) -> tuple[perf.Gap, ...]:
        """Every gap by its begin, the last word on each; lines that make no sense are left out."""
        gaps: dict[tuple[int, str], perf.Gap] = {}
        try:
            lines = self.path.read_text(errors="replace").splitlines()
        except OSError:
            lines = []
        for line in [*lines, *self._waiting]:
            with contextlib.suppress(ValueError, KeyError, TypeError):
                entry = json.loads(line)
                gap = perf.Gap(int(entry["begin_ns"]), int(entry["end_ns"]), str(entry["why"]))
                gaps[gap.begin_ns, gap.why] = gap
        return tuple(sorted(gaps.values(), key=lambda gap: gap.begin_ns))


class Spool:
    """A folder of raw segments that stays within `budget_bytes`; files may vanish at any time."""

    def __init__(self, folder: pathlib.Path, budget_bytes: int, keep_seconds: float) -> None:
        self.folder = folder
        self.budget_bytes = budget_bytes
        self.keep_seconds = keep_seconds
        self.journal = Journal(folder / "gaps.jsonl")
        try:
            (folder / "pins").mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError as error:
            raise errors.MissingPermissionError(
                f"nothing can be written under {folder}",
                why=str(error),
                todo="choose a folder of yours: overnight --home DIR record",
            ) from error

    def segments(self) -> tuple[Segment, ...]:
        """The finished segments, oldest first."""
        found = []
        for path in self.folder.iterdir():
            name = perf.parse_segment_name(path.name)
            if name is None:
                continue
            with contextlib.suppress(OSError):
                stat = path.stat()
                end = max(name.start_ns, stat.st_mtime_ns)
                found.append(Segment(path, name.start_ns, end, stat.st_size))
        return tuple(sorted(found, key=lambda one: (one.begin_ns, one.path.name)))

    def writing_bytes(self) -> int:
        """The size of what is being written."""
        total = 0
        for path in self.folder.glob(f"*{perf.WRITING}*"):
            with contextlib.suppress(OSError):
                total += path.stat().st_size
        return total

    def free_bytes(self) -> int:
        """What the disk still takes from anyone: root's reserve is not for a recorder."""
        stat = os.statvfs(self.folder)
        return stat.f_bavail * stat.f_frsize

    def trim(self, now_ns: int, *, floor_bytes: int = 0) -> tuple[Segment, ...]:
        """Remove the oldest until the budget is kept and the disk has `floor_bytes` free."""
        segments = self.segments()
        used = sum(one.bytes for one in segments) + self.writing_bytes()
        surplus = max(used - self.budget_bytes, floor_bytes - self.free_bytes())
        removed = []
        for segment in choose_removals(
            segments, self.pins(), now_ns=now_ns, keep_seconds=self.keep_seconds, surplus=surplus
        ):
            with contextlib.suppress(FileNotFoundError):
                segment.path.unlink()
                removed.append(segment)
        return tuple(removed)

    def pin(self, pin: Pin) -> None:
        """Keep a window; the same id again replaces it."""
        path = self._pin_path(pin.id)
        entry = {"begin_ns": pin.begin_ns, "end_ns": pin.end_ns, "why": pin.why}
        fresh = path.with_suffix(".new")
        with fresh.open("w") as file:
            file.write(json.dumps(entry))
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(path)

    def unpin(self, pin_id: str) -> bool:
        """Let a window go; whether there was one."""
        try:
            self._pin_path(pin_id).unlink()
        except FileNotFoundError:
            return False
        return True

    def pins(self) -> tuple[Pin, ...]:
        """Every pinned window; a pin that cannot be read pins everything, for nothing is worse."""
        found = []
        for path in sorted((self.folder / "pins").glob("*.json")):
            try:
                entry = json.loads(path.read_text())
                pin = Pin(path.stem, int(entry["begin_ns"]), int(entry["end_ns"]), entry["why"])
            except FileNotFoundError:
                continue
            except (OSError, ValueError, KeyError, TypeError):
                pin = Pin(path.stem, 0, 1 << 63, "its file cannot be read: everything is kept")
            found.append(pin)
        return tuple(found)

    def _pin_path(self, pin_id: str) -> pathlib.Path:
        if not PIN_NAME.fullmatch(pin_id):
            raise errors.UsageError(
                f"{pin_id!r} cannot name a pin",
                why="it becomes a file name",
                todo="use letters, digits, dots, dashes and underscores",
            )
        return self.folder / "pins" / f"{pin_id}.json"
