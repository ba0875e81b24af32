"""Heatmaps: seconds by core, to see one saturated core, and seconds by offset within the second."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Literal

import numpy as np
import numpy.typing as npt

from overnight import errors
from overnight.model.selection import Coverage, Selection, Window
from overnight.model.times import SECOND_US
from overnight.queries import coverage, reader
from overnight.store import parquet, segments, tree

MAX_CELLS = 200_000_000
FEW_NODES = 50
MANY_SEGMENTS = 8
SUMS = ("seconds.npy",)


@dataclasses.dataclass(frozen=True)
class Heatmap:
    """Samples in cells: `values[column][row]`. Columns are steps in time, from `begin_us` on.

    From signals the values are percent of a core's time.
    """

    kind: str  # "core" or "offset"
    mode: str  # "busy", "kernel", "softirq" or "idle"
    begin_us: int
    step_us: int
    rows: tuple[str, ...]  # core numbers with their host, or offsets in ms
    values: npt.NDArray[np.int64]
    full: float  # samples of a cell that is busy all the time; 0: unknown
    coverage: Coverage
    recorded: npt.NDArray[np.bool_]  # of each cell, whether most of its time was recorded
    source: Literal["stacks", "signals"] = "stacks"

    def as_json(self) -> dict[str, object]:
        fields = vars(self).copy()
        del fields["recorded"]  # as `coverage.gaps`
        return fields | {"values": self.values.tolist(), "coverage": self.coverage.as_json()}


def by_core(
    source: reader.Reader,
    window: Window,
    chosen: Selection = Selection(),
    *,
    hosts: Iterable[str] = (),
    step_us: int = SECOND_US,
    mode: str = "busy",
) -> Heatmap:
    """Count samples by core, one row per core of each host; whole seconds without filters use the sums."""
    check(mode, step_us)
    names = source.hosts(hosts)
    # Sums are by whole seconds of the clock: extend the window to whole seconds.
    whole = Window(
        window.begin_us // SECOND_US * SECOND_US, -(-window.end_us // SECOND_US) * SECOND_US
    )
    listed = source.listed(names, whole)
    summed = not (chosen.by_task or chosen.by_node or step_us % SECOND_US)
    planes = source.planes(listed, mode) if summed and len(listed) > MANY_SEGMENTS else {}
    rest = [segment for segment in listed if segment.path not in planes]
    if len(rest) > MANY_SEGMENTS:
        source.read_ahead(rest, *SUMS)
    metas = {
        segment: source.meta(segment)
        for segment in listed
        if segment.path in planes or source.is_intact(segment, SUMS if summed else ())
    }
    chosen = coverage.resolve_event(chosen, metas, whole)
    events = {chosen.event_in(meta.events) for meta in metas.values()}
    if not summed or events - {0, -1}:  # the sums count the first event
        summed, whole = False, window
        metas = source.metas(names, window, *reader.TABLES)
    rows: dict[tuple[str, int], int] = {}
    for host in names:
        cores = set().union(*(meta.cores for s, meta in metas.items() if s.host == host))
        for core in sorted(cores & set(chosen.cores) if chosen.cores else cores):
            rows[host, core] = len(rows)
    values = make_cells(-(-(whole.end_us - whole.begin_us) // step_us), len(rows))
    places: dict[tuple[str, tuple[int, ...]], list[int]] = {}
    for segment, meta in metas.items():
        if chosen.event_in(meta.events) < 0:
            continue
        if summed:
            plane = planes.get(segment.path)
            seconds = plane.of(segment.path.name) if plane else segment.seconds(mode, meta.shape)
            key = (segment.host, meta.cores)
            if key not in places:  # most segments have the same ones
                places[key] = [rows.get((segment.host, core), -1) for core in meta.cores]
            _add_sums(values, meta.begin_us // SECOND_US, seconds, places[key], whole, step_us)
        else:
            column = f"(time_us - {window.begin_us}) // {step_us}"
            cells = _select(source, segment, window, chosen, mode, column, "cpu")
            # The last one is core -1: unknown.
            place = np.full(segments.MAX_CORES + 1, -1, np.int64)
            for (host, core), row in rows.items():
                if host == segment.host:
                    place[core] = row
            y = place[cells["y"]]
            _add(segment, values, {**cells, "y": y, "n": np.where(y >= 0, cells["n"], 0)})
    frequency = max((meta.frequency for meta in metas.values()), default=0)
    return Heatmap(
        kind="core",
        mode=mode,
        begin_us=whole.begin_us,
        step_us=step_us,
        rows=tuple(str(core) if len(names) == 1 else f"{host} {core}" for host, core in rows),
        values=values,
        full=frequency * step_us / SECOND_US,
        coverage=source.coverage(names, whole, chosen, metas, **_count_samples(values, mode)),
        recorded=_recorded([host for host, _ in rows], whole.begin_us, step_us, len(values), metas),
    )


def by_offset(
    source: reader.Reader,
    window: Window,
    chosen: Selection = Selection(),
    *,
    hosts: Iterable[str] = (),
    rows: int = 50,
    mode: str = "busy",
) -> Heatmap:
    """Count samples by second and offset within it (as FlameScope does), over all cores."""
    check(mode, SECOND_US)
    if not 1 <= rows <= 1000:
        raise errors.UsageError(
            f"--rows must be 1 to 1000 (got {rows})",
            why="rows are parts of a second",
            todo="--rows 50",
        )
    names = source.hosts(hosts)
    chosen = source.resolved(chosen, names, window)
    metas = source.metas(names, window, *reader.TABLES)
    begin = window.begin_us - window.begin_us % SECOND_US
    values = make_cells(-(-(window.end_us - begin) // SECOND_US), rows)
    column = f"(time_us - {begin}) // {SECOND_US}"
    row = f"(time_us - {begin}) % {SECOND_US} * {rows} // {SECOND_US}"
    rates: dict[str, int] = {}  # samples a second, by host
    for segment, meta in metas.items():
        cells = _select(source, segment, window, chosen, mode, column, row)
        _add(segment, values, cells)
        cores = {core for core in meta.cores if core >= 0}
        rate = meta.frequency * len(cores & set(chosen.cores) if chosen.cores else cores)
        rates[segment.host] = max(rates.get(segment.host, 0), rate)
    recorded = _recorded(names, begin, SECOND_US, len(values), metas)
    return Heatmap(
        kind="offset",
        mode=mode,
        begin_us=begin,
        step_us=SECOND_US,
        rows=tuple(f"{i * 1000 / rows:g} ms" for i in range(rows)),
        values=values,
        full=sum(rates.values()) / rows,
        coverage=source.coverage(names, window, chosen, metas, **_count_samples(values, mode)),
        recorded=np.repeat(recorded.any(axis=1, keepdims=True), rows, axis=1),
    )


def _count_samples(values: npt.NDArray[np.int64], mode: str) -> dict[str, int]:
    samples = int(values.sum())
    return {"samples": samples, "idle": samples if mode == "idle" else 0}


def _recorded(
    hosts: Sequence[str], begin_us: int, step_us: int, columns: int, metas: coverage.Metas
) -> npt.NDArray[np.bool_]:
    """Return by column and host whether a part of the column was recorded."""
    known = {host: np.zeros(columns, bool) for host in hosts}
    for segment, meta in metas.items():
        if (column := known.get(segment.host)) is None:
            continue
        first, last = segment.begin_us - begin_us, segment.end_us - begin_us
        column[max(0, first // step_us) : max(0, -(-last // step_us))] = True
        for gap in meta.gaps:  # only whole columns
            first, last = gap[0] - begin_us, gap[1] - begin_us
            column[max(0, -(-first // step_us)) : max(0, last // step_us)] = False
    if len(known) == 1:  # without a copy for each of 96 cores
        return np.broadcast_to(known[hosts[0]][:, np.newaxis], (columns, len(hosts)))
    return np.array([known[host] for host in hosts], bool).reshape(-1, columns).T


def check(mode: str, step_us: int) -> None:
    if mode not in segments.MODES:
        raise errors.UsageError(
            f"{mode!r} is not a mode", why="samples are counted by where they ran",
            todo=f"use one of {', '.join(segments.MODES)}",
        )  # fmt: skip
    if step_us < 1000:
        raise errors.UsageError(
            f"--step must be at least 1ms (got {step_us} µs)",
            why="stacks are sampled every few milliseconds at most", todo="use 1ms or more",
        )  # fmt: skip


def make_cells(columns: int, rows: int) -> npt.NDArray[np.int64]:
    if columns * max(1, rows) > MAX_CELLS:
        raise errors.UsageError(
            f"the heatmap is too large: {columns} x {rows} cells",
            why=f"at most {MAX_CELLS:,} cells are held in memory",
            todo="choose a longer --step or a shorter window",
        )
    return np.zeros((columns, rows), np.int64)


def _add_sums(
    values: npt.NDArray[np.int64],
    first: int,
    plane: npt.NDArray[np.uint16],
    ours: list[int],
    whole: Window,
    step_us: int,
) -> None:
    """Add samples by second, from second `first` on, and core; `ours` is each core's row, or -1."""
    seconds, cores = plane.shape
    moment = np.arange(first, first + seconds) * SECOND_US
    inside = slice(*np.searchsorted(moment, [whole.begin_us, whole.end_us]).tolist())
    column, plane = (moment[inside] - whole.begin_us) // step_us, plane[inside]
    if not len(column):
        return
    if step_us > SECOND_US:
        starts = np.flatnonzero(np.diff(column, prepend=-1))
        plane = np.add.reduceat(plane, starts, axis=0, dtype=np.int64)
    target = values[column[0] : column[-1] + 1]
    if ours and ours[0] >= 0 and ours == list(range(ours[0], ours[0] + cores)):
        target[:, ours[0] : ours[0] + cores] += plane
    else:
        taken = [i for i, row in enumerate(ours) if row >= 0]
        target[:, [ours[i] for i in taken]] += plane[:, taken]


def _add(segment: segments.Segment, values: npt.NDArray[np.int64], cells: parquet.Columns) -> None:
    """Add samples to their cells; np.add.at takes three times as long."""
    kept = cells["n"] > 0
    if not kept.any():
        return
    x, y, n = (cells[name][kept] for name in ("x", "y", "n"))
    # Only the columns of this segment: a night has hundreds of them.
    first, last = int(x.min()), int(x.max()) + 1
    # DuckDB believes the least and the greatest value that a file states, and skips the filter.
    if first < 0 or last > len(values) or y.min() < 0 or y.max() >= values.shape[1]:
        raise errors.DamagedFileError(str(segment.path / "samples.parquet"), 0, "wrong times")
    part = values[first:last]
    cell = (x - first) * values.shape[1] + y
    part += np.bincount(cell, n, part.size).astype(np.int64).reshape(part.shape)


def _select(
    source: reader.Reader,
    segment: segments.Segment,
    window: Window,
    chosen: Selection,
    mode: str,
    x: str,
    y: str,
) -> parquet.Columns:
    """Count samples by cell from the rows."""
    names = source.names(segment)
    flags = names.flags
    idle = (flags & tree.IDLE) > 0
    wanted = {
        "busy": ~idle,
        "kernel": ~idle & ((flags & tree.KERNEL) > 0),
        "softirq": ~idle & ((flags & tree.SOFTIRQ) > 0),
        "idle": idle,
    }[mode]
    if chosen.by_node:
        wanted &= reader.node_mask(names, chosen)
    where = source.where(segment, window, chosen)
    among, named = _among(wanted)
    return parquet.query(
        f"SELECT ({x})::BIGINT AS x, ({y})::BIGINT AS y, sum(count)::BIGINT AS n "  # noqa: S608 - built from numbers
        f"FROM {parquet.table(segment.path / 'samples.parquet')} WHERE {where} AND {among} GROUP BY ALL",
        nodes=named,
    )


def _among(wanted: npt.NDArray[np.bool_]) -> tuple[str, npt.NDArray[np.int64] | None]:
    """Return a condition on `node`, and the nodes it refers to if they are many."""
    # Grouping by node as well, to filter afterwards, took ten times as long (measured, 1.1 M rows).
    refused = np.flatnonzero(~wanted)
    if not len(refused):
        return "true", None
    if len(refused) <= FEW_NODES:
        return f"node NOT IN ({', '.join(map(str, refused.tolist()))})", None
    return "node IN (SELECT node FROM nodes)", np.flatnonzero(wanted)
