"""Writes captures as segments: split by time, folded, summed, and renamed into place when complete."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import fcntl
import hashlib
import json
import os
import pathlib
import re
import shutil
import tempfile
from collections.abc import Iterator
from typing import Any

import numpy as np

from overnight.model import files
from overnight.model.flame import FrameKind
from overnight.model.times import SECOND_NS
from overnight.store import capture, hours, parquet_writer, process_tables, segments, sums, tree

SEGMENT_SECONDS = 120
IDLE_TASK = re.compile(r"swapper(/\d+)?")  # perf leaves out the core's number


def write_capture(
    home: pathlib.Path,
    captured: capture.Capture,
    *,
    source: str = "",
    segment_seconds: int = SEGMENT_SECONDS,
) -> tuple[segments.Segment, ...]:
    """Store a capture, synced; segments that exist already are not changed."""
    return tuple(_write(home, part, source) for part in _split(_whole(captured), segment_seconds))


def _whole(captured: capture.Capture) -> capture.Capture:
    """Extend the capture's time to all its samples; map impossible cores to -1."""
    cpu = captured.cpu
    if len(cpu) and not 0 <= cpu.min() <= cpu.max() < segments.MAX_CORES:
        cpu = np.where((cpu < 0) | (cpu >= segments.MAX_CORES), -1, cpu)
    seen = np.zeros(segments.MAX_CORES + 1, np.bool_)  # the last one is core -1
    seen[cpu] = True
    seen[[core for core in captured.cores if 0 <= core < segments.MAX_CORES]] = True
    cores = np.flatnonzero(seen[:-1]).tolist()
    time = captured.time
    return dataclasses.replace(
        captured,
        begin=min(captured.begin, int(time[0])) if len(time) else captured.begin,
        end=max(captured.end, int(time[-1]) + 1) if len(time) else captured.end,
        cpu=cpu,
        cores=(-1, *cores) if seen[-1] else tuple(cores),
    )


def _split(captured: capture.Capture, seconds: int) -> Iterator[capture.Capture]:
    """Split at clock times into parts of `seconds`; skip parts without samples."""
    length = seconds * SECOND_NS
    # A recorder's segment that is a little over is left whole.
    if not captured.timed or captured.end - captured.begin <= length * 3 // 2:
        yield captured
        return
    begins = np.unique(captured.time // length) * length
    lows = [*np.searchsorted(captured.time, begins).tolist(), len(captured.time)]
    # A gap in a part without samples belongs to the part before it.
    edges = [captured.begin - length, *begins.tolist()[1:], captured.end + length]
    for i, begin in enumerate(begins.tolist()):
        since, until = edges[i], edges[i + 1]
        yield dataclasses.replace(
            captured,
            begin=max(begin, captured.begin),
            end=min(begin + length, captured.end),
            **{
                name: getattr(captured, name)[lows[i] : lows[i + 1]]
                for name in ("time", "cpu", "task", "stack", "event", "count", "period")
            },
            gaps=tuple(g for g in captured.gaps if g.begin < until and g.end > since),
            **_lost(captured, since if i else None, until if i + 1 < len(begins) else None),
        )


def _lost(captured: capture.Capture, since: int | None, until: int | None) -> dict[str, Any]:
    """Return the losses of a part. Without times, the first part has them all."""
    if not captured.losses:
        return {"lost": 0 if since is not None else captured.lost}
    own = tuple(
        loss
        for loss in captured.losses
        if (since is None or loss.end > since) and (until is None or loss.end <= until)
    )
    return {"lost": sum(loss.count for loss in own), "losses": own}


def _compact(column: tree.U32, size: int) -> tuple[tree.Integers, tree.U32]:
    """Return the used rows of a table, and the column renumbered to them."""
    used = np.zeros(size, np.bool_)
    used[column] = True
    if used.all():
        return np.arange(size), column
    renumbered = np.cumsum(used, dtype=np.uint32) - np.uint32(1)
    return np.flatnonzero(used), renumbered[column]


def _write(home: pathlib.Path, captured: capture.Capture, source: str) -> segments.Segment:
    begin_us = captured.begin // 1000
    # Rounded up: the last sample is before the end.
    end_us = max(-(-captured.end // 1000), begin_us + 1)
    folder = segments.host_folder(home, captured.host) / segments.day_folder(begin_us, end_us)
    target = folder / f"{begin_us}-{end_us}-{_digest(captured)}"
    segment = segments.Segment(target, captured.host, begin_us, end_us)
    if not target.is_dir():
        files.make_folder(folder)
        hours.forget(segment)
        with _appears_whole(target) as fresh:
            _fill(fresh, captured, source, begin_us, end_us)
        hours.write_past(segment)
    return segment


def _digest(captured: capture.Capture) -> str:
    state = hashlib.blake2b(captured.host.encode("utf-8", "replace"), digest_size=4)
    for column in ("time", "cpu", "stack", "task", "count", "event"):
        state.update(np.ascontiguousarray(getattr(captured, column)).data)
    if not captured.timed:
        # Times distinguish captures, also when more names are resolved the second time; without times
        # only the stacks do.
        for text in (*captured.frames.name, *captured.tasks.process):
            state.update(text.encode("utf-8", "replace") + b"\0")
        for table in (captured.stacks.offset, captured.stacks.frame):
            state.update(np.ascontiguousarray(table).data)
    return state.hexdigest()


@contextlib.contextmanager
def _appears_whole(target: pathlib.Path) -> Iterator[pathlib.Path]:
    """Fill a hidden folder, sync it, then rename it to `target`; the lock shows that its writer is alive."""
    fresh = pathlib.Path(tempfile.mkdtemp(prefix=".new-", dir=target.parent))
    mode = files.folder_mode(target.parent)
    descriptor = os.open(fresh, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield fresh
        for path in fresh.iterdir():
            with path.open("rb") as file:
                os.fchmod(file.fileno(), mode & 0o666)
                os.fsync(file.fileno())
        fresh.chmod(mode)
        os.fsync(descriptor)
        try:
            fresh.rename(target)
        except OSError as error:
            # Lost a race against the same capture: the other segment is equal.
            if error.errno not in (errno.EEXIST, errno.ENOTEMPTY):
                raise
        files.sync(target.parent)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
        os.close(descriptor)


def _fill(
    folder: pathlib.Path, captured: capture.Capture, source: str, begin_us: int, end_us: int
) -> None:
    tasks, task = _compact(captured.task, len(captured.tasks.pid))
    frames, folded, node = _fold(captured, tasks, task)
    counter = sums.Counter(captured, folded.flags, node)
    own = counter.total(node, len(folded.frame))
    busy = np.where(folded.flags & tree.IDLE, 0, own)
    parquet_writer.write(
        folder / "samples.parquet",
        {
            "time_us": captured.time // 1000,
            "cpu": captured.cpu.astype(np.int16),
            "task": task,
            "node": node,
            "event": captured.event,
            "count": captured.count,
            "period": captured.period,
        },
    )
    parquet_writer.write(
        folder / "nodes.parquet",
        {
            **{name: getattr(folded, name) for name in ("frame", "up", "size", "flags")},
            "own": own.astype(np.uint64),
        },
    )
    _write_frames(folder / "frames.parquet", frames, folded, busy)
    _write_tasks(folder, captured, tasks, counter.by_mode(task, len(tasks)))
    seconds = segments.clock_seconds(begin_us, end_us, timed=captured.timed)
    _write_seconds(folder / "seconds.npy", captured, seconds, counter)
    stored = sorted(folder.iterdir())
    meta = segments.Meta(
        host=captured.host,
        begin_us=begin_us,
        end_us=end_us,
        frequency=captured.frequency,
        cores=captured.cores,
        events=captured.events,
        samples=int(own.sum()),
        idle=int((own - busy).sum()),
        lost=captured.lost,
        losses=tuple(
            (loss.begin // 1000, -(-loss.end // 1000), loss.count) for loss in captured.losses
        ),
        timed=captured.timed,
        gaps=tuple((gap.begin // 1000, gap.end // 1000, gap.why) for gap in captured.gaps),
        notes=captured.notes,
        unknown={module: str(why) for module, why in captured.unknown.items()},
        source=source,
        files={path.name: segments.measure_file(path) for path in stored},
        crc32={path.name: segments.sum_file(path) for path in stored},
    )
    (folder / "segment.json").write_text(json.dumps(meta.as_json(), indent=1))


def _fold(
    captured: capture.Capture, tasks: tree.Integers, task: tree.U32
) -> tuple[capture.Frames, tree.Tree, tree.U32]:
    """Return the segment's frames with process names at the end, its tree, and each row's node."""
    stacks, stack = _compact(captured.stack, len(captured.stacks.offset) - 1)
    offset = captured.stacks.offset.astype(np.int64)
    begins, lengths = offset[stacks], offset[stacks + 1] - offset[stacks]
    ends = np.cumsum(lengths)
    words = captured.stacks.frame
    if len(stacks) < len(offset) - 1:
        words = words[np.repeat(begins - (ends - lengths), lengths) + np.arange(lengths.sum())]
    used, words = _compact(words, len(captured.frames.name))
    processes: dict[str, int] = {}
    names = [captured.tasks.process[i] or captured.tasks.thread[i] for i in tasks.tolist()]
    process = np.array([processes.setdefault(name, len(processes)) for name in names], np.uint32)
    frames = capture.Frames(
        name=[captured.frames.name[i] for i in used.tolist()] + list(processes),
        module=[captured.frames.module[i] for i in used.tolist()] + [""] * len(processes),
        kind=np.concatenate(
            [captured.frames.kind[used], np.full(len(processes), FrameKind.PROCESS, np.uint8)]
        ),
    )
    roots, hanging, pair = tree.pair_up(process, task, stack, len(processes), len(stacks))
    folded = tree.fold_capture(
        roots + np.uint32(len(used)),
        hanging,
        capture.Stacks(np.concatenate([[0], ends]).astype(np.uint32), words),
        tree.frame_flags(frames.name, frames.kind),
    )
    # Only the idle task idles: clear the flag under every other process, a slice each.
    flags = folded.flags.copy()
    for root in np.flatnonzero(folded.up == 0).tolist():
        if not IDLE_TASK.fullmatch(frames.name[folded.frame[root]]):
            flags[root : root + folded.size[root]] &= 0xFF ^ tree.IDLE
    return frames, dataclasses.replace(folded, flags=flags), folded.leaf[pair]


def _write_frames(
    path: pathlib.Path, frames: capture.Frames, folded: tree.Tree, busy: tree.Integers
) -> None:
    whole = tree.subtree_sums(busy, folded.size) * tree.outermost(folded.frame, folded.size)
    names = len(frames.name)
    parquet_writer.write(
        path,
        {
            "name": frames.name,
            "module": frames.module,
            "kind": frames.kind,
            "own": np.bincount(folded.frame, busy, names).astype(np.uint64),
            "whole": np.bincount(folded.frame, whole, names).astype(np.uint64),
        },
    )


def _write_tasks(
    folder: pathlib.Path,
    captured: capture.Capture,
    used: tree.Integers,
    counts: dict[str, tree.Integers],
) -> None:
    tasks, rows = captured.tasks, used.tolist()
    owners: dict[str, Any] = {}
    if tasks.row is not None:
        owners = {
            "row": process_tables.write(folder, captured, tasks.row[used]),
            "launcher": [tasks.launcher[i] for i in rows],
        }
    parquet_writer.write(
        folder / "tasks.parquet",
        {
            "pid": tasks.pid[used],
            "tid": tasks.tid[used],
            "thread": [tasks.thread[i] for i in rows],
            "process": [tasks.process[i] for i in rows],
            "unit": [tasks.unit[i] for i in rows],
            **{name: counts[name].astype(np.uint64) for name in ("busy", "kernel", "idle")},
            **owners,
        },
    )


def _write_seconds(
    path: pathlib.Path, captured: capture.Capture, seconds: int, counter: sums.Counter
) -> None:
    cores = np.array(captured.cores, np.int64)
    place = np.zeros(segments.MAX_CORES + 1, np.int64)  # of each core; the last one is core -1's
    place[cores] = np.arange(len(cores))
    row = np.minimum(captured.time // SECOND_NS - captured.begin // SECOND_NS, seconds - 1)
    counts = counter.by_mode(row * len(cores) + place[captured.cpu], seconds * len(cores))
    stacked = np.stack([np.minimum(plane, 0xFFFF).astype("<u2") for plane in counts.values()])
    np.save(path, stacked.reshape(len(counts), seconds, len(cores)))
