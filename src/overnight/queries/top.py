"""Top consumers of CPU in a window: processes, threads, units, functions."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from overnight import errors
from overnight.model.flame import FrameKind
from overnight.model.selection import Coverage, Selection, Window
from overnight.queries import processes, reader, segment_tables, unknown
from overnight.store import parquet, tree

if TYPE_CHECKING:
    from overnight.model.actor import Actor

KINDS = ("processes", "threads", "units", "functions")
MAX_PIDS, MAX_PROCESSES = 100, 5
NO_UNIT = "kernel threads and those that ended"


@dataclasses.dataclass(frozen=True)
class Row:
    """One consumer; functions of one name count as one, whatever binary they are in."""

    name: str
    samples: int  # for functions: all with it on the stack
    own: int  # for functions: samples that end in it; otherwise the same as samples
    share_of_samples: float  # of the busy samples that passed the filters
    share_of_capacity: float | None  # of all cores for the recorded time
    cores: float | None  # cores used, per host
    # Of processes, where asked for and recorded:
    launchers: tuple[str, ...] = ()  # that keep starting short-lived ones
    pids: tuple[int, ...] = ()
    processes: tuple[processes.Process, ...] = ()  # the busiest first


@dataclasses.dataclass(frozen=True)
class Top:
    """The rows, the largest first."""

    kind: str
    rows: tuple[Row, ...]
    others: int  # rows beyond the limit
    coverage: Coverage

    def as_json(self) -> dict[str, object]:
        return {"schema": "overnight.top/1", **dataclasses.asdict(self)}


def check_kind(kind: str) -> None:
    """Raise UsageError unless `kind` is one of KINDS."""
    if kind not in KINDS:
        raise errors.UsageError(
            f"{kind!r} is not a kind of consumer",
            why="samples can be summed by process, thread, unit or function",
            todo=f"use one of {', '.join(KINDS)}",
        )


def top(
    source: reader.Reader,
    window: Window,
    chosen: Selection = Selection(),
    *,
    hosts: Iterable[str] = (),
    kind: str = "processes",
    limit: int = 20,
    who: bool = False,
) -> Top:
    """Rank one kind of consumer; `who` adds the processes behind each name."""
    check_kind(kind)
    names = source.hosts(hosts)
    chosen = source.resolved(chosen, names, window)
    files = () if kind == "functions" else reader.TABLES
    parts = list(source.parts(names, window, chosen, *files))
    whole: collections.Counter[str] = collections.Counter()
    own = whole if kind != "functions" else collections.Counter[str]()
    for part in parts:
        if kind == "functions":
            for name, ending, containing in _count_functions(part):
                whole[name] += containing
                own[name] += ending
        else:
            whole += _count_tasks(source, part, window, chosen, kind)
    coverage = dataclasses.replace(
        source.cover_parts(names, window, parts, chosen), unknown=unknown.measure(parts)
    )
    one_core = coverage.core_rate * coverage.recorded_seconds
    rows = tuple(
        Row(
            name=name,
            samples=samples,
            own=own[name],
            share_of_samples=samples / coverage.samples if coverage.samples else 0.0,
            share_of_capacity=samples / coverage.capacity if coverage.capacity else None,
            cores=samples / one_core if one_core else None,
        )
        for name, samples in sorted(whole.items(), key=lambda item: (-item[1], item[0]))[:limit]
        if samples
    )
    others = sum(1 for n in whole.values() if n) - len(rows)
    if who and kind == "processes":
        rows = _identify(rows, processes.describe(source, names, window, chosen))
    return Top(kind, rows, others, coverage)


def _identify(
    rows: tuple[Row, ...], known: dict[Actor, tuple[processes.Process, ...]]
) -> tuple[Row, ...]:
    """Add the processes of each name, of all its units."""
    named: dict[str, list[processes.Process]] = collections.defaultdict(list)
    for actor, group in known.items():
        named[actor.process] += group
    for every in named.values():
        every.sort(key=lambda process: -process.samples)
    return tuple(
        dataclasses.replace(
            row,
            launchers=tuple(sorted({each.launcher for each in named[row.name]} - {""})),
            pids=tuple(each.pid for each in named[row.name] if not each.launcher)[:MAX_PIDS],
            processes=tuple(named[row.name][:MAX_PROCESSES]),
        )
        for row in rows
    )


def function_columns(
    part: reader.Part,
) -> tuple[list[tuple[str, str, int]], npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return (name, module, kind), samples that end in it, and samples that it is in, recursion once."""
    names = part.names
    own_of, whole_of = _count_groups(part, names.frame, len(names.frame_name), names.outermost)
    seen = np.flatnonzero((whole_of > 0) & (names.frame_kind != FrameKind.PROCESS))
    return list(names.frames(seen)), own_of[seen], whole_of[seen]


def _count_groups(
    part: reader.Part, group: npt.NDArray[np.integer], groups: int, outermost: npt.NDArray[np.bool_]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return by group of nodes: samples that end in it, samples that it is in, recursion once."""
    whole = tree.subtree_sums(part.own, part.names.size) * outermost
    return (
        np.bincount(group, part.own, groups).astype(np.int64),
        np.bincount(group, whole, groups).astype(np.int64),
    )


def _count_functions(part: reader.Part) -> Iterator[tuple[str, int, int]]:
    """Yield functions by name: one that is in two binaries on one stack counts once."""
    names = part.names
    functions, label = segment_tables.number_functions(names.frames(slice(None)))
    group = label[names.frame]
    own_of, whole_of = _count_groups(part, group, len(functions), tree.outermost(group, names.size))
    for name, ending, containing in zip(functions, own_of.tolist(), whole_of.tolist(), strict=True):
        if name:
            yield name, ending, containing


def _count_tasks(
    source: reader.Reader, part: reader.Part, window: Window, chosen: Selection, kind: str
) -> collections.Counter[str]:
    column = {"processes": "process", "threads": "thread", "units": "unit"}[kind]
    tasks = parquet.read(part.segment.path / "tasks.parquet", (column, "pid"))
    columns = "task, node, sum(count)::BIGINT AS n"
    rows = source.rows(part.segment, columns, window, chosen, "GROUP BY ALL")
    weight = np.where(reader.passing_nodes(part.names, chosen)[rows["node"]], rows["n"], 0)
    if int(rows["task"].max(initial=0)) >= max(1, len(tasks["pid"])):
        file = part.segment.path / "tasks.parquet"
        raise errors.DamagedFileError(str(file), 0, "tasks are missing")
    by_task = np.bincount(rows["task"], weight, len(tasks["pid"])).astype(np.int64)
    counts: collections.Counter[str] = collections.Counter()
    for i in np.flatnonzero(by_task).tolist():
        name = tasks[column][i] or (NO_UNIT if kind == "units" else f"pid {tasks['pid'][i]}")
        counts[name] += int(by_task[i])
    return counts
