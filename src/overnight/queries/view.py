"""The data of the viewer page for one host's window, within a budget of rows.

Every sample if they fit; otherwise every sample around the events, and sums elsewhere. The page shows
where it is coarse.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from overnight import errors
from overnight.model.selection import Selection, Window
from overnight.model.times import SECOND_US
from overnight.queries import heatmap, reader, segment_tables
from overnight.store import segments, tree

if TYPE_CHECKING:
    from overnight.model.event import Event

Integers = npt.NDArray[np.int64]

TICK_US = 100  # the page counts time in these, in 32 bits: 119 hours
NO_CORE = 0xFFFF
MAX_WINDOW_US = TICK_US << 32
MAX_ROWS = 2_000_000
MAX_HEAT_CELLS = 4_500_000
AROUND_US = (60 * SECOND_US, 30 * SECOND_US)  # before and after an event


@dataclasses.dataclass(frozen=True)
class Detail:
    """The resolution of the rows in a part of the window; `step_us` 0: every sample."""

    begin_us: int
    end_us: int
    step_us: int
    per_core: bool


@dataclasses.dataclass(frozen=True)
class View:
    """The page's data; web/README.md describes the arrays."""

    title: str
    host: str
    frequency: int
    cores: tuple[int, ...]
    window: Window
    heat_step_us: int
    events: tuple[Event, ...]
    gaps: tuple[tuple[int, int, str], ...]
    lost: int
    notes: tuple[str, ...]
    detail: tuple[Detail, ...]
    strings: list[str]
    arrays: dict[str, npt.NDArray[Any]]


class _Rows(NamedTuple):
    """Rows of a part of one segment; `stack` and `task` are the page's numbers."""

    time_us: Integers
    core: Integers
    task: Integers
    stack: Integers
    samples: Integers
    idle: npt.NDArray[np.bool_]


def view(
    source: reader.Reader,
    window: Window,
    host: str,
    events: tuple[Event, ...] = (),
    *,
    title: str = "",
    max_rows: int = MAX_ROWS,
) -> View:
    if window.end_us - window.begin_us + 2 * SECOND_US > MAX_WINDOW_US:
        raise errors.UsageError(
            f"the window is too long for a page: {window.seconds / 3600:.0f} hours",
            why=f"a page holds at most {MAX_WINDOW_US / 3.6e9:.0f} hours",
            todo="choose a shorter window: -b TIME -e TIME",
        )
    source.hosts((host,))
    metas = source.metas((host,), window, *reader.TABLES, *heatmap.SUMS)
    sampled = source.resolved(Selection(), (host,), window)
    touched = tuple(each for each, meta in metas.items() if sampled.event_in(meta.events) >= 0)
    known = sorted({c for segment in touched for c in source.meta(segment).cores if c >= 0})
    seconds = max(1, -(-(window.end_us - window.begin_us) // SECOND_US))
    step = SECOND_US * max(1, -(-seconds * len(known) // MAX_HEAT_CELLS))
    # Samples of no known core are in no row of the heatmap.
    chosen = dataclasses.replace(sampled, cores=tuple(known))
    busy = heatmap.by_core(source, window, chosen, hosts=(host,), step_us=step)
    kernel = heatmap.by_core(source, window, chosen, hosts=(host,), step_us=step, mode="kernel")
    shown = [i for i, row in enumerate(busy.rows) if int(row) >= 0]
    tables, pieces, details = segment_tables.Tables(), [], []
    max_sums = max(1, max_rows // (2 * max(1, len(touched))))
    for segment, stretches in _plan(source, touched, window, events, max_rows):
        details += stretches
        for stretch in stretches:
            if stretch.step_us:
                pieces.append(_read_sums(source, segment, stretch, sampled, tables, max_sums))
            else:
                pieces.append(_read_samples(source, segment, stretch, sampled, tables))
    notes = list(busy.coverage.notes)
    if step > SECOND_US:
        notes.append(
            f"each heatmap column is {step // SECOND_US} s wide: a shorter peak looks paler"
        )
    if coarse := [detail for detail in details if detail.step_us]:
        notes.append(
            "away from events, stacks are summed over whole segments and all cores, and the rarest ones "
            "are counted for their process only; `overnight flame` reads every sample"
        )
        hidden = sum(any(d.begin_us <= e.time_us < d.end_us for d in coarse) for e in events)
        if hidden:
            notes.append(
                f"{hidden} events are shown without all samples around them: the page is full"
            )
    strings: dict[str, int] = {"": 0}
    return View(
        title=title or host,
        host=host,
        frequency=max((source.meta(segment).frequency for segment in touched), default=0),
        cores=tuple(int(busy.rows[i]) for i in shown),
        window=Window(busy.begin_us, busy.begin_us + len(busy.values) * step),
        heat_step_us=step,
        events=events,
        gaps=busy.coverage.gaps,
        lost=busy.coverage.lost,
        notes=tuple(notes),
        detail=tuple(details),
        arrays={
            "heat_busy": np.minimum(busy.values[:, shown], 0xFFFF).astype("<u2").ravel(),
            "heat_kernel": np.minimum(kernel.values[:, shown], 0xFFFF).astype("<u2").ravel(),
            **_table_arrays(tables, strings),
            **_row_arrays(pieces, busy.begin_us),
        },
        strings=list(strings),
    )


def _plan(
    source: reader.Reader,
    touched: tuple[segments.Segment, ...],
    window: Window,
    events: tuple[Event, ...],
    max_rows: int,
) -> list[tuple[segments.Segment, list[Detail]]]:
    """Choose the resolution for each part of each segment."""
    counts = [source.meta(segment).samples for segment in touched]
    everything = sum(counts) <= max_rows
    left = max_rows // 2
    plan = []
    for segment, samples in zip(touched, counts, strict=True):
        begin, end = max(segment.begin_us, window.begin_us), min(segment.end_us, window.end_us)
        if everything:
            plan.append((segment, [Detail(begin, end, 0, True)]))
            continue
        near = [
            (max(begin, e.time_us - AROUND_US[0]), min(end, e.time_us + AROUND_US[1]))
            for e in events
            if e.time_us - AROUND_US[0] < end and e.time_us + AROUND_US[1] > begin
        ]
        if near:
            first, last = min(a for a, _ in near), max(b for _, b in near)
            rows = samples * (last - first) // max(1, segment.end_us - segment.begin_us)
            if rows <= left:
                left -= rows
                stretches = [
                    Detail(begin, first, first - begin, False),
                    Detail(first, last, 0, True),
                    Detail(last, end, end - last, False),
                ]
                plan.append((segment, [d for d in stretches if d.begin_us < d.end_us]))
                continue
        plan.append((segment, [Detail(begin, end, end - begin, False)]))
    return plan


def _read_samples(
    source: reader.Reader,
    segment: segments.Segment,
    stretch: Detail,
    sampled: Selection,
    tables: segment_tables.Tables,
) -> _Rows:
    names = source.names(segment)
    within = Window(stretch.begin_us, stretch.end_us)
    rows = source.rows(segment, "time_us, cpu, task, node, count", within, sampled)
    node = rows["node"].astype(np.int64)
    return _Rows(
        time_us=rows["time_us"],
        core=np.where(rows["cpu"] < 0, NO_CORE, rows["cpu"].astype(np.int64)),
        task=tables.number_rows(names, rows["task"]),
        stack=tables.number_stacks(names, node),
        samples=rows["count"].astype(np.int64),
        idle=(names.flags[node] & tree.IDLE) > 0,
    )


def _read_sums(
    source: reader.Reader,
    segment: segments.Segment,
    stretch: Detail,
    sampled: Selection,
    tables: segment_tables.Tables,
    most: int,
) -> _Rows:
    """Sum samples by stack; beyond the `most` frequent ones they count for their process only."""
    names = source.names(segment)
    own = source.own(segment, Window(stretch.begin_us, stretch.end_us), sampled)
    node = np.flatnonzero(own)
    roots = np.flatnonzero(names.up == 0)
    if len(node) > most:
        # Idle stacks are few and always kept: under their process they would look like work.
        idle = (names.flags[node] & tree.IDLE) > 0
        often = node[np.lexsort((-own[node], ~idle))[: max(most, int(idle.sum()))]]
        kept = np.zeros(len(own), np.int64)
        kept[often] = own[often]
        kept[roots] += tree.subtree_sums(own - kept, names.size)[roots]
        own, node = kept, np.flatnonzero(kept)
    root = roots[np.searchsorted(roots, node, "right") - 1]
    process = names.frame_name[names.frame[root]].tolist()
    return _Rows(
        time_us=np.full(len(node), stretch.begin_us),
        core=np.full(len(node), NO_CORE),
        task=tables.number_tasks((-1, -1, name, name, "") for name in process),
        stack=tables.number_stacks(names, node),
        samples=own[node],
        idle=(names.flags[node] & tree.IDLE) > 0,
    )


def _table_arrays(
    tables: segment_tables.Tables, strings: dict[str, int]
) -> dict[str, npt.NDArray[Any]]:
    """Return the tables that the rows refer to; add their texts to `strings`."""

    def column(texts: Iterable[str]) -> npt.NDArray[np.uint32]:
        return np.array([strings.setdefault(text, len(strings)) for text in texts], np.uint32)

    names, modules, kinds = tables.frames.columns()
    lengths = [len(path) for path in tables.paths]
    frames = np.concatenate(tables.paths) if tables.paths else np.zeros(0)
    tasks = list(tables.tasks)
    return {
        "frame_name": column(
            f"[unknown] in {module.rpartition('/')[2]}"
            if name == "[unknown]" and module.startswith("/")
            else name
            for name, module in zip(names, modules, strict=True)
        ),
        "frame_module": column(modules),
        "frame_kind": np.array(kinds, np.uint8),
        "stack_offset": np.concatenate([[0], np.cumsum(lengths)]).astype("<u4"),
        "stack_frame": frames.astype("<u4"),
        "task_pid": np.array([task[0] for task in tasks], "<i4"),
        "task_tid": np.array([task[1] for task in tasks], "<i4"),
        "task_thread": column(task[2] for task in tasks),
        "task_process": column(task[3] or task[2] for task in tasks),
        "task_unit": column(task[4] for task in tasks),
    }


def _row_arrays(pieces: list[_Rows], begin_us: int) -> dict[str, npt.NDArray[Any]]:
    none = np.zeros(0, np.int64)
    columns = zip(*pieces, strict=True) if pieces else [[none]] * len(_Rows._fields)
    rows = _Rows(*map(np.concatenate, columns))
    time = np.maximum(0, rows.time_us - begin_us) // TICK_US
    order = np.argsort(time, kind="stable")
    return {
        "row_time": time[order].astype("<u4"),
        "row_core": rows.core[order].astype("<u2"),
        "row_task": rows.task[order].astype("<u4"),
        "row_stack": rows.stack[order].astype("<u4"),
        "row_count": np.minimum(rows.samples[order], 0xFFFFFFFF).astype("<u4"),
        "row_idle": rows.idle[order].astype("<u1"),
    }
