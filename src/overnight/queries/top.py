"""Who used the cores in a window: processes, threads, units, functions. Three named denominators."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from overnight import errors
from overnight.model import selection
from overnight.queries import reader
from overnight.store import parquet, tree

__all__ = ["KINDS", "Row", "Top", "function_counts", "top"]

KINDS = ("processes", "threads", "units", "functions")


@dataclasses.dataclass(frozen=True)
class Row:
    """One user of the cores. For functions `samples` counts all in which it is on the stack."""

    name: str
    samples: int
    own: int  # for functions: samples that end in it; else the same as samples
    share_of_samples: float  # of the busy samples that were looked at
    share_of_capacity: float | None  # of all cores for the recorded time
    cores: float | None  # as many cores' worth of time


@dataclasses.dataclass(frozen=True)
class Top:
    """The rows by samples, the most first."""

    kind: str
    rows: tuple[Row, ...]
    others: int  # rows that were left out
    coverage: selection.Coverage


def top(
    source: reader.Reader,
    window: selection.Window,
    chosen: selection.Selection | None = None,
    *,
    hosts: Iterable[str] = (),
    kind: str = "processes",
    limit: int = 20,
) -> Top:
    """The users of the cores, by share."""
    chosen = chosen or selection.Selection()
    if kind not in KINDS:
        raise errors.UsageError(
            f"no top {kind}",
            why="samples are summed up by who ran",
            todo=f"one of {', '.join(KINDS)}",
        )
    names = source.hosts(hosts)
    parts = list(source.parts(names, window, chosen))
    whole: collections.Counter[str] = collections.Counter()
    own: collections.Counter[str] = collections.Counter()
    for part in parts:
        if kind == "functions":
            for (name, module, _), (mine, all_) in function_counts(part).items():
                label = name if name != "[unknown]" else f"[unknown] in {module}"
                whole[label] += all_
                own[label] += mine
        else:
            for name, samples in _task_counts(source, part, window, chosen, kind).items():
                whole[name] += samples
                own[name] += samples
    coverage = reader.coverage(names, window, parts, chosen)
    one_core = (
        coverage.capacity / coverage.core_seconds * coverage.recorded_seconds
        if coverage.core_seconds
        else 0
    )
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
    return Top(kind, rows, sum(1 for n in whole.values() if n) - len(rows), coverage)


def function_counts(part: reader.Part) -> dict[tuple[str, str, int], tuple[int, int]]:
    """(name, module, kind) -> samples that end in it, samples that it is in, recursion once."""
    frames, own, whole = function_columns(part)
    return dict(zip(frames, zip(own.tolist(), whole.tolist(), strict=True), strict=True))


def function_columns(
    part: reader.Part,
) -> tuple[list[tuple[str, str, int]], npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """The same as columns: (name, module, kind), own, whole."""
    names = part.names
    whole = tree.subtree_sums(part.own, names.size) * names.outermost
    frames = len(names.frame_name)
    own_of = np.bincount(names.frame, part.own, frames).astype(np.int64)
    whole_of = np.bincount(names.frame, whole, frames).astype(np.int64)
    seen = np.flatnonzero((whole_of > 0) & (names.frame_kind != tree.PROCESS))
    rows = zip(
        names.frame_name[seen].tolist(),
        names.frame_module[seen].tolist(),
        names.frame_kind[seen].tolist(),
        strict=True,
    )
    return list(rows), own_of[seen], whole_of[seen]


def _task_counts(
    source: reader.Reader,
    part: reader.Part,
    window: selection.Window,
    chosen: selection.Selection,
    kind: str,
) -> collections.Counter[str]:
    column = {"processes": "process", "threads": "thread", "units": "unit"}[kind]
    tasks = parquet.read(part.segment.path / "tasks.parquet", (column, "pid"))
    found = parquet.query(
        f"SELECT task, node, sum(count)::BIGINT AS n FROM "  # noqa: S608 - built from numbers
        f"{parquet.table(part.segment.path / 'samples.parquet')} "
        f"WHERE {reader.conditions(window, chosen, source.task_numbers(part.segment, chosen))} "
        f"GROUP BY ALL"
    )
    # A part's own counts are zero where its filters said no.
    passes = np.ones(len(part.names.frame), bool)
    if not chosen.idle:
        passes &= (part.names.flags & tree.IDLE) == 0
    if chosen.by_node:
        passes &= reader.node_mask(part.names, chosen)
    weight = np.where(passes[found["node"]], found["n"], 0)
    by_task = np.bincount(found["task"], weight, len(tasks["pid"])).astype(np.int64)
    counts: collections.Counter[str] = collections.Counter()
    for i in np.flatnonzero(by_task).tolist():
        name = tasks[column][i] or (
            "kernel threads and those that ended" if kind == "units" else f"pid {tasks['pid'][i]}"
        )
        counts[name] += int(by_task[i])
    return counts
