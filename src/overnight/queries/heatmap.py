"""Heatmaps: seconds by core, where one pinned core stands out, and seconds by offset within them."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from overnight import errors
from overnight.model import selection
from overnight.queries import reader
from overnight.store import parquet, segments, tree

__all__ = ["Heatmap", "by_core", "by_offset"]

SECOND_US = 1_000_000
MOST_CELLS = 200_000_000


@dataclasses.dataclass(frozen=True)
class Heatmap:
    """Samples in cells: `values[column][row]`. Columns are steps in time, from `begin_us` on."""

    kind: str  # "core" or "offset"
    mode: str  # "busy", "kernel", "softirq" or "idle"
    begin_us: int
    step_us: int
    rows: tuple[str, ...]  # core numbers with their host, or offsets in ms
    values: npt.NDArray[np.int64]
    full: float  # samples that a cell holds when it is busy all the time; 0: not known
    coverage: selection.Coverage


def by_core(
    source: reader.Reader,
    window: selection.Window,
    chosen: selection.Selection | None = None,
    *,
    hosts: Iterable[str] = (),
    step_us: int = SECOND_US,
    mode: str = "busy",
) -> Heatmap:
    """One row a core (of each host). Steps of whole seconds without filters come from the sums."""
    chosen = chosen or selection.Selection()
    _check(mode, step_us)
    names = source.hosts(hosts)
    summed = not (chosen.by_task or chosen.by_node or chosen.event) and not step_us % SECOND_US
    # Sums are by whole seconds of the clock: begin and end with one.
    whole = _whole_seconds(window) if summed else window
    begin = whole.begin_us
    touched = source.touched(names, whole)
    metas = {segment.path: segment.meta() for segment in touched}
    rows: dict[tuple[str, int], int] = {}
    for host in names:
        cores = {c for s in touched if s.host == host for c in metas[s.path].cores}
        for core in sorted(cores & set(chosen.cores) if chosen.cores else cores):
            rows[host, core] = len(rows)
    columns = -(-(whole.end_us - begin) // step_us)
    if columns * max(1, len(rows)) > MOST_CELLS:
        raise _too_fine(columns, len(rows))
    values = np.zeros((columns, len(rows)), np.int64)
    for segment in touched:
        if summed:
            _add_sums(values, segment, metas[segment.path], rows, whole, step_us, mode)
        else:
            _add_rows(values, source, segment, rows, window, step_us, mode, chosen)
    frequency = max((meta.frequency for meta in metas.values()), default=0)
    return Heatmap(
        kind="core",
        mode=mode,
        begin_us=begin,
        step_us=step_us,
        rows=tuple(str(core) if len(names) == 1 else f"{host} {core}" for host, core in rows),
        values=values,
        full=frequency * step_us / SECOND_US,
        coverage=reader.covered(
            names,
            whole,
            [(segment, metas[segment.path]) for segment in touched],
            chosen,
            samples=int(values.sum()),
            idle=int(values.sum()) if mode == "idle" else 0,
        ),
    )


def _whole_seconds(window: selection.Window) -> selection.Window:
    return selection.Window(
        window.begin_us // SECOND_US * SECOND_US, -(-window.end_us // SECOND_US) * SECOND_US
    )


def by_offset(
    source: reader.Reader,
    window: selection.Window,
    chosen: selection.Selection | None = None,
    *,
    hosts: Iterable[str] = (),
    rows: int = 50,
    mode: str = "busy",
) -> Heatmap:
    """One column a second, one row a part of it (FlameScope's view), all cores together."""
    chosen = chosen or selection.Selection()
    _check(mode, SECOND_US)
    if not 1 <= rows <= 1000:
        raise errors.UsageError(
            f"{rows} rows", why="a second is divided into 1 to 1000 parts", todo="--rows 50"
        )
    names = source.hosts(hosts)
    touched = source.touched(names, window)
    metas = {segment.path: segment.meta() for segment in touched}
    begin = window.begin_us - window.begin_us % SECOND_US
    columns = -(-(window.end_us - begin) // SECOND_US)
    if columns * rows > MOST_CELLS:
        raise _too_fine(columns, rows)
    values = np.zeros((columns, rows), np.int64)
    for segment in touched:
        found = _select(
            source,
            segment,
            window,
            chosen,
            mode,
            f"(time_us - {begin}) // {SECOND_US}",
            f"(time_us - {begin}) % {SECOND_US} * {rows} // {SECOND_US}",
        )
        _add(values, found["x"], found["y"], found["n"])
    most: dict[str, int] = {}
    for segment in touched:
        meta = metas[segment.path]
        cores = {core for core in meta.cores if core >= 0}
        each = meta.frequency * len(cores & set(chosen.cores) if chosen.cores else cores)
        most[segment.host] = max(most.get(segment.host, 0), each)
    return Heatmap(
        kind="offset",
        mode=mode,
        begin_us=begin,
        step_us=SECOND_US,
        rows=tuple(f"{i * 1000 / rows:g} ms" for i in range(rows)),
        values=values,
        full=sum(most.values()) / rows,
        coverage=reader.covered(
            names,
            window,
            [(segment, metas[segment.path]) for segment in touched],
            chosen,
            samples=int(values.sum()),
            idle=int(values.sum()) if mode == "idle" else 0,
        ),
    )


def _check(mode: str, step_us: int) -> None:
    if mode not in segments.MODES:
        raise errors.UsageError(
            f"no mode {mode!r}", why="samples are told apart by where they ran",
            todo=f"one of {', '.join(segments.MODES)}",
        )  # fmt: skip
    if step_us < 1000:
        raise errors.UsageError(
            f"a step of {step_us} µs", why="stacks are sampled every few milliseconds at best",
            todo="use 1ms or more",
        )  # fmt: skip


def _too_fine(columns: int, rows: int) -> errors.UsageError:
    return errors.UsageError(
        f"a heatmap of {columns} x {rows} cells",
        why="nobody could look at it, and it would not fit into memory",
        todo="take a longer --step or a shorter window",
    )


def _add_sums(
    values: npt.NDArray[np.int64],
    segment: segments.Segment,
    meta: segments.Meta,
    rows: dict[tuple[str, int], int],
    whole: selection.Window,
    step_us: int,
    mode: str,
) -> None:
    first = meta.begin_us // SECOND_US
    seconds = segments.clock_seconds(meta.begin_us, meta.end_us, timed=meta.timed)
    plane = segment.seconds(mode, (seconds, len(meta.cores)))
    moment = np.arange(first, first + seconds) * SECOND_US
    column = (moment - whole.begin_us) // step_us
    inside = (moment >= whole.begin_us) & (moment < whole.end_us)
    places = [
        (i, rows[segment.host, core])
        for i, core in enumerate(meta.cores)
        if (segment.host, core) in rows
    ]
    taken, ours = [i for i, _ in places], [row for _, row in places]
    np.add.at(values, np.ix_(column[inside], np.array(ours, np.int64)), plane[inside][:, taken])


def _add_rows(
    values: npt.NDArray[np.int64],
    source: reader.Reader,
    segment: segments.Segment,
    rows: dict[tuple[str, int], int],
    window: selection.Window,
    step_us: int,
    mode: str,
    chosen: selection.Selection,
) -> None:
    found = _select(
        source, segment, window, chosen, mode, f"(time_us - {window.begin_us}) // {step_us}", "cpu"
    )
    place = np.full(segments.MOST_CORES + 1, -1, np.int64)  # -1, no known core, is the last
    for (host, core), row in rows.items():
        if host == segment.host:
            place[core] = row
    y = place[found["y"]]
    _add(values, found["x"], y, np.where(y >= 0, found["n"], 0))


def _add(
    values: npt.NDArray[np.int64],
    x: npt.NDArray[np.int64],
    y: npt.NDArray[np.int64],
    n: npt.NDArray[np.int64],
) -> None:
    """Samples into their cells; np.add.at takes three times as long."""
    kept = n > 0
    if not kept.any():
        return
    x, y, n = x[kept], y[kept], n[kept]
    # Only the columns of this segment: a night has hundreds of them.
    first, last = int(x.min()), int(x.max()) + 1
    part = values[first:last]
    cell = (x - first) * values.shape[1] + y
    part += np.bincount(cell, n, part.size).astype(np.int64).reshape(part.shape)


def _select(
    source: reader.Reader,
    segment: segments.Segment,
    window: selection.Window,
    chosen: selection.Selection,
    mode: str,
    x: str,
    y: str,
) -> parquet.Columns:
    """Samples by cell, straight from the rows."""
    names = source.names(segment)
    tasks = source.task_numbers(segment, chosen)
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
    found = source.rows(
        segment,
        f"({x})::BIGINT AS x, ({y})::BIGINT AS y, node, count::BIGINT AS n",
        reader.conditions(window, chosen, tasks),
    )
    kept = wanted[found["node"]]
    return {name: column[kept] for name, column in found.items()}
