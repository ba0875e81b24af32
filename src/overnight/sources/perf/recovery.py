"""Turns the files of a killed recorder into ordinary segments at the next start.

`current.json` holds what the unfinished file does not: its start on both clocks, the header that perf has
not written yet, and the perf process that may still be finishing it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import pathlib
import re
import time

from overnight import errors
from overnight.model import files, process_identity
from overnight.sources import perf
from overnight.sources.perf import segmentfile

WAIT_SECONDS = 10.0


@dataclasses.dataclass(frozen=True)
class Current:
    """The segment being written. `born` distinguishes the process from a later one with the same PID."""

    file: str
    began: perf.Clock
    head: bytes = b""
    process: int = 0
    born: int = 0


def write_current(spool: pathlib.Path, current: Current) -> None:
    entry = {
        "file": current.file,
        "wall_ns": current.began.wall_ns,
        "monotonic_ns": current.began.monotonic_ns,
        "head": current.head.hex(),
        "process": current.process,
        "born": current.born,
    }
    files.write_atomically(spool / perf.CURRENT, json.dumps(entry))


def read_current(spool: pathlib.Path) -> Current | None:
    """Read current.json; None where it is missing or not valid."""
    try:
        entry = json.loads((spool / perf.CURRENT).read_text())
        began = perf.Clock(int(entry["wall_ns"]), int(entry["monotonic_ns"]))
        head, process, born = bytes.fromhex(entry["head"]), entry["process"], entry["born"]
        return Current(str(entry["file"]), began, head, int(process), int(born))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def read_start_ticks(pid: int) -> int:
    """Read when a process started, in clock ticks since boot; 0 when it is gone or a zombie."""
    state, started = process_identity.read_stat(pid)
    return 0 if state in "ZX" else int(started)


def _await_end(current: Current) -> None:
    """Wait for the perf of the killed recorder: the kernel stopped it, and it finishes its file."""
    deadline = time.monotonic() + WAIT_SECONDS
    while _is_running(current):
        if time.monotonic() > deadline:
            process_identity.send_signal(current.process, str(current.born))
            return
        time.sleep(0.05)


def _is_running(current: Current) -> bool:
    """Whether the process of current.json still runs, and is a perf of this user that writes that file."""
    if not current.process or read_start_ticks(current.process) != current.born:
        return False
    proc = pathlib.Path(f"/proc/{current.process}")
    try:
        words = (proc / "cmdline").read_bytes().split(b"\0")
        user = re.search(rb"^Uid:\t\d+\t(\d+)", (proc / "status").read_bytes(), re.MULTILINE)
    except OSError as error:
        errors.raise_own(error)
        return False
    names = [word.rpartition(b"/")[2] for word in words]
    is_own = user is not None and int(user[1]) == os.geteuid()
    return is_own and current.file.endswith(perf.WRITING) and os.fsencode(current.file) in names


def recover_segments(
    spool: pathlib.Path, identity: perf.Identity, cores: int
) -> tuple[pathlib.Path, ...]:
    """Finish and rename every unfinished segment.

    A segment without records is removed; one that cannot be read is renamed to `.damaged`.
    """
    current = read_current(spool)
    if current is not None:
        _await_end(current)
    # Newest last: only that one is the file that current.json describes.
    paths = [path for path in spool.glob(f"*{perf.WRITING}*") if path.is_file()]
    paths.sort(key=lambda path: (path.name == (current.file if current else ""), path.name))
    recovered = []
    for path in paths:
        with contextlib.suppress(OSError):
            final = _recover_segment(path, current, path == paths[-1], identity, cores)
            if final is not None:
                recovered.append(final)
    return tuple(recovered)


def _recover_segment(
    path: pathlib.Path, current: Current | None, newest: bool, identity: perf.Identity, cores: int
) -> pathlib.Path | None:
    changed = path.stat().st_mtime_ns
    name = perf.parse_segment_name(path.name.partition(perf.WRITING)[0])
    # perf renames the file it finishes: NAME becomes NAME.<time>.
    if current is not None and (
        path.name == current.file or (newest and path.name.startswith(current.file + "."))
    ):
        began = current.began
        start = began.wall_ns
        span = began, perf.Clock(changed, max(changed - began.offset_ns, began.monotonic_ns))
    else:
        start = max(name.start_ns if name else 0, _end_before(path.parent, changed))
        span = None
    host, boot = (name.host, name.boot) if name else (identity.host, identity.boot)
    parts = segmentfile.features(host, ["overnight"], cores, span)
    segmentfile.complete(path, parts, current.head if current else b"")
    head = segmentfile.read_head(path)
    if path.stat().st_size <= max(len(head), segmentfile.HEADER.size):
        path.unlink()
        return None
    if not head:
        path.rename(path.with_name(path.name.replace(perf.WRITING, ".damaged")))
        return None
    os.utime(path, ns=(changed, changed))  # the spool uses it as the segment's end
    return perf.publish(path, perf.SegmentName(host, start or changed, boot))


def _end_before(spool: pathlib.Path, changed: int) -> int:
    """Return when the previous segment ended: perf gives all its files the name of the first."""
    ends = [path.stat().st_mtime_ns for path in spool.glob(f"*{perf.SUFFIX}")]
    return max((end for end in ends if end < changed), default=0)
