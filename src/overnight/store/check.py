"""`overnight store check`: compare every stored file with its checksum and with the other files."""

from __future__ import annotations

import dataclasses
import fcntl
import os
import pathlib
import shutil
from collections.abc import Callable, Iterator

from overnight import errors
from overnight.store import hours, parquet, process_reader, process_tables, segments, tree
from overnight.store.ring import check as ring_check

Problem = ring_check.Problem


@dataclasses.dataclass(frozen=True)
class Report:
    segments: int
    samples: int
    bytes: int
    unfinished: tuple[str, ...]  # of writers that were killed
    problems: tuple[Problem, ...]
    blocks: int = 0  # of the flight recorder's ring
    looks: int = 0  # readings of the ring

    def as_json(self) -> dict[str, object]:
        return {"schema": "overnight.store-check/1", **dataclasses.asdict(self)}


def check(
    catalogue: segments.Catalogue, progress: Callable[[int, int], None] = lambda _done, _all: None
) -> Report:
    """Read everything, change nothing."""
    everything = [s for host in catalogue.hosts() for s in catalogue.segments(host)]
    problems: list[Problem] = []
    samples = size = 0
    for number, segment in enumerate(everything):
        progress(number, len(everything))
        try:
            meta = segment.meta()
        except errors.OvernightError as error:
            problems.append(Problem(str(segment.path), error.what, error.todo))
            continue
        samples += meta.samples
        size += sum(stated for stated, _ in meta.files.values())
        damage = list(_problems(segment, meta))
        if segment.path.is_dir():  # otherwise it was removed in the meantime
            problems.extend(damage)
    problems.extend(_hour_problems(catalogue))
    hidden = (catalogue.home / "profiles" / segments.VERSION).glob("*/*/.new-*")
    ring = ring_check.check(catalogue.home)
    return Report(
        segments=len(everything),
        samples=samples,
        bytes=size + ring.bytes,
        unfinished=tuple(str(path) for path in sorted(hidden) if not _has_live_writer(path)),
        problems=(*problems, *ring.problems),
        blocks=ring.blocks,
        looks=ring.readings,
    )


def _problems(segment: segments.Segment, meta: segments.Meta) -> Iterator[Problem]:
    todo = f"delete {segment.path}, then import the raw capture again"
    for name, (stated, digest) in meta.files.items():
        path = segment.path / pathlib.PurePath(name).name
        try:
            size, actual = segments.measure_file(path)
        except (OSError, ValueError) as error:  # a name may be hostile
            yield Problem(str(path), f"cannot be read: {getattr(error, 'strerror', error)}", todo)
            continue
        if size != stated:
            yield Problem(str(path), f"has {size} bytes instead of {stated}", todo)
        elif actual != digest:
            yield Problem(str(path), "has changed since it was written", todo)
    if not meta.files.keys() >= set(segments.FILES):
        yield Problem(str(segment.path), "is incomplete", todo)
        return
    try:
        for what in _contradictions(segment, meta):
            yield Problem(str(segment.path), what, todo)
    except errors.OvernightError as error:
        yield Problem(str(segment.path), f"{error.what}: {error.why}", todo)


def _contradictions(segment: segments.Segment, meta: segments.Meta) -> Iterator[str]:
    rows = parquet.query(
        "SELECT count(*) AS rows, coalesce(sum(count) FILTER (event = 0), 0)::BIGINT AS samples, "  # noqa: S608 - a quoted path
        "coalesce(max(node), 0) AS node, coalesce(max(task), 0) AS task, coalesce(min(time_us), 0) AS first, "
        "coalesce(max(time_us), 0) AS last, "
        f"coalesce(bool_and(ordered), true) AS ordered FROM (SELECT *, time_us >= lag(time_us, 1, time_us) OVER () AS ordered "
        f"FROM {parquet.table(segment.path / 'samples.parquet')})"
    )
    nodes = parquet.read(segment.path / "nodes.parquet", ("frame", "up", "size", "own"))
    frames = parquet.read(segment.path / "frames.parquet", ("kind",))
    tasks = parquet.read(segment.path / "tasks.parquet", ("pid",))
    if meta.files.keys() >= set(process_tables.FILES):
        process_reader.read(segment.path)  # raises where a row is missing
    count = int(rows["rows"][0])
    if int(rows["samples"][0]) != meta.samples:
        yield f"has {int(rows['samples'][0])} samples instead of {meta.samples}"
    if int(nodes["own"].sum()) != meta.samples:
        yield "sums and samples differ"
    if count and int(rows["node"][0]) >= len(nodes["frame"]):
        yield "a sample refers to a missing stack"
    if count and int(rows["task"][0]) >= len(tasks["pid"]):
        yield "a sample refers to a missing task"
    if len(nodes["frame"]) and int(nodes["frame"].max()) >= len(frames["kind"]):
        yield "a stack refers to a missing function"
    if tree.is_torn(nodes["up"], nodes["size"]):
        yield "a stack has no root"
    if (meta.host, meta.begin_us, meta.end_us) != (segment.host, segment.begin_us, segment.end_us):
        yield "its description belongs to another segment"
    planes = [segment.seconds(mode, meta.shape) for mode in ("busy", "idle")]
    in_seconds = sum(int(plane.sum()) for plane in planes)
    saturated = any((plane == 0xFFFF).any() for plane in planes)
    if in_seconds > meta.samples or (in_seconds < meta.samples and not saturated):
        yield "sums by second and samples differ"
    if not rows["ordered"][0]:
        yield "samples are not ordered by time"
    first, last = int(rows["first"][0]), int(rows["last"][0])
    if count and meta.timed and not segment.begin_us <= first <= last < segment.end_us:
        yield "has samples outside of the time in its name"


def _hour_problems(catalogue: segments.Catalogue) -> Iterator[Problem]:
    """Yield hour files that differ from their segments: queries may read them."""
    root = catalogue.home / "profiles" / segments.VERSION
    for path in sorted(root.glob("*/*/*.hour")):
        what = _hour_problem(path)
        if what and path.exists():  # otherwise it was removed in the meantime
            yield Problem(str(path), what, f"delete {path}: queries read the segments instead")


def _hour_problem(path: pathlib.Path) -> str:
    inside = {
        segment.path.name: segment
        for segment in segments.in_folder(path.parent, "")
        if hours.hour_file(segment) == path
    }
    if not inside:
        return "its segments are gone"
    for mode in segments.MODES:
        plane = hours.read(path, mode)
        if plane is None:
            return "is damaged"
        if not inside.keys() <= plane.hour.entries.keys():
            return "is older than a segment of its hour"
        for name, segment in inside.items():
            meta = plane.hour.entries[name].meta
            try:
                if meta != dataclasses.replace(segment.meta(), files={}, crc32={}) or bool(
                    (plane.of(name) != segment.seconds(mode, meta.shape)).any()
                ):
                    return "differs from its segments"
            except errors.OvernightError:
                continue  # reported for the segment itself
    return ""


def _has_live_writer(path: pathlib.Path) -> bool:
    """Return whether a lock is held: the kernel frees the lock of a dead writer."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def remove_unfinished(report: Report) -> None:
    """Delete what killed writers left behind; files of live writers are not in the report."""
    for path in map(pathlib.Path, report.unfinished):
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)
