"""What a killed recorder leaves in the spool, made into ordinary segments at the next start.

`current.json` holds what the unfinished file cannot: since when it runs on both clocks, the head
that perf has not written yet, and the perf that may still be finishing it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import pathlib
import signal
import time

from overnight.sources import perf
from overnight.sources.perf import segmentfile

__all__ = ["Current", "mark", "read_current", "take_up"]

WAIT_SECONDS = 10.0


@dataclasses.dataclass(frozen=True)
class Current:
    """The segment being written. `born` tells a process from a later one of the same number."""

    file: str
    began: perf.Clock
    head: bytes = b""
    process: int = 0
    born: int = 0


def mark(spool: pathlib.Path, current: Current) -> None:
    """Write current.json at once or not at all."""
    entry = {
        "file": current.file,
        "wall_ns": current.began.wall_ns,
        "monotonic_ns": current.began.monotonic_ns,
        "head": current.head.hex(),
        "process": current.process,
        "born": current.born,
    }
    fresh = spool / (perf.CURRENT + ".new")
    fresh.write_text(json.dumps(entry))
    fresh.replace(spool / perf.CURRENT)


def read_current(spool: pathlib.Path) -> Current | None:
    """What current.json says; None where there is none that makes sense."""
    try:
        entry = json.loads((spool / perf.CURRENT).read_text())
        clock = perf.Clock(int(entry["wall_ns"]), int(entry["monotonic_ns"]))
        return Current(
            str(entry["file"]),
            clock,
            bytes.fromhex(entry["head"]),
            int(entry["process"]),
            int(entry["born"]),
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None


def birth(pid: int) -> int:
    """When a process began, in clock ticks since boot; 0 when it is gone or a zombie."""
    try:
        stat = pathlib.Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return 0
    fields = stat[stat.rindex(")") + 1 :].split()
    return 0 if fields[0] in "ZX" else int(fields[19])


def _await_end(current: Current) -> None:
    """Let the dead run's perf finish its file; it was told to stop when its parent died."""
    deadline = time.monotonic() + WAIT_SECONDS
    while current.process and birth(current.process) == current.born:
        if time.monotonic() > deadline:
            with contextlib.suppress(ProcessLookupError):
                os.kill(current.process, signal.SIGKILL)
            return
        time.sleep(0.05)


def take_up(spool: pathlib.Path, identity: perf.Identity, cores: int) -> tuple[pathlib.Path, ...]:
    """Finish and name every unfinished segment.

    One without a record is removed; one that cannot be read is put aside as `.damaged`.
    """
    current = read_current(spool)
    if current is not None:
        _await_end(current)
    # Newest last: only that one is the file that current.json speaks of.
    files = [path for path in spool.glob(f"*{perf.WRITING}*") if path.is_file()]
    files.sort(key=lambda path: (path.name == (current.file if current else ""), path.name))
    taken = []
    for path in files:
        with contextlib.suppress(OSError):
            final = _take_up_one(path, current, path == files[-1], identity, cores)
            if final is not None:
                taken.append(final)
    return tuple(taken)


def _take_up_one(
    path: pathlib.Path,
    current: Current | None,
    newest: bool,
    identity: perf.Identity,
    cores: int,
) -> pathlib.Path | None:
    changed = path.stat().st_mtime_ns
    told = perf.parse_segment_name(path.name.partition(perf.WRITING)[0])
    # perf renames the file it finishes: NAME becomes NAME.<time>.
    if current is not None and (
        path.name == current.file or (newest and path.name.startswith(current.file + "."))
    ):
        start = current.began.wall_ns
        ended = perf.Clock(
            changed, max(changed - current.began.offset_ns, current.began.monotonic_ns)
        )
        span = (current.began, ended)
    else:
        start = max(told.start_ns if told else 0, _end_before(path.parent, changed))
        span = None
    parts = segmentfile.features(told.host if told else identity.host, ["overnight"], cores, span)
    segmentfile.complete(path, parts, current.head if current else b"")
    head = segmentfile.read_head(path)
    if path.stat().st_size <= max(len(head), segmentfile.HEADER.size):
        path.unlink()
        return None
    if not head:
        path.rename(path.with_name(path.name.replace(perf.WRITING, ".damaged")))
        return None
    os.utime(path, ns=(changed, changed))  # the spool takes it for the segment's end
    host, boot = (told.host, told.boot) if told else (identity.host, identity.boot)
    return perf.publish(path, perf.SegmentName(host, start or changed, boot))


def _end_before(spool: pathlib.Path, changed: int) -> int:
    """When the last segment before ended: perf gives all its files the name of the first."""
    ends = [path.stat().st_mtime_ns for path in spool.glob(f"*{perf.SUFFIX}")]
    return max((end for end in ends if end < changed), default=0)
