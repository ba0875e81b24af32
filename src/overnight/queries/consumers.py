"""CPU use by unit, process and function, in several windows at once, nothing left out."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from overnight.model.selection import Selection, Window
from overnight.queries import reader, samples, segment_tables
from overnight.store import tree

if TYPE_CHECKING:
    from overnight.model.actor import Actor

Integers = samples.Integers


@dataclasses.dataclass(frozen=True)
class Item:
    """`function` is '' for the process as a whole."""

    actor: Actor
    function: str


@dataclasses.dataclass(frozen=True)
class Tally:
    """Busy samples with an item on the stack, `counts[item][window]`; `own`: those that end in it."""

    items: tuple[Item, ...]
    counts: Integers
    own: Integers
    samples: Integers  # all busy samples of each window
    seconds: npt.NDArray[np.float64]  # the recorded part of each window
    lost: Integers
    frequency: int  # samples a second on each core


@dataclasses.dataclass(frozen=True)
class Consumer:
    """What one process of one unit ran, with the short-lived ones that it started.

    Softirqs that interrupted it, and interrupts by other cores, are counted separately.
    """

    actor: Actor
    samples: int
    kernel: int  # part of samples
    softirq: int  # not part of samples
    functions: dict[str, int]  # samples that ended in each
    launches: bool = False  # whether short-lived processes ran some of it


def count_functions(
    source: reader.Reader, host: str, windows: Sequence[Window], selection: Selection = Selection()
) -> Tally:
    """Count every item that has a sample in any of the windows; windows may overlap."""
    totals = np.zeros(len(windows), np.int64)
    processes: dict[Actor, int] = {}
    frames = segment_tables.Frames()
    counted: tuple[list[Integers], list[Integers]] = ([], [])  # anywhere; at the end of the stack
    for numbers in _separate(windows):
        apart = [windows[number] for number in numbers]
        for part in samples.read_segments(source, host, apart, processes, selection):
            rows = part.busy()
            rows = dataclasses.replace(rows, window=np.array(numbers, np.int64)[rows.window])
            np.add.at(totals, rows.window, rows.count)
            for target, table in zip(counted, _count_frames(rows), strict=True):
                table[0] = frames.number(rows.tables, table[0])
                target.append(table)
    functions, function = segment_tables.number_functions(zip(*frames.columns(), strict=True))
    width = max(1, len(processes))
    (key, *anywhere), (end_key, *ends) = (
        (function[frame] * width + process, window, n)
        for frame, process, window, n in map(_concatenate, counted)
    )
    items, index = np.unique(key, return_inverse=True)
    counts = [
        np.bincount(place * len(windows) + window, n, len(items) * len(windows))
        .astype(np.int64)
        .reshape(len(items), len(windows))
        # Every function in which a stack ends is on that stack.
        for place, (window, n) in ((index, anywhere), (np.searchsorted(items, end_key), ends))
    ]
    actors = list(processes)
    return Tally(
        tuple(Item(actors[item % width], functions[item // width]) for item in items.tolist()),
        counts[0],
        counts[1],
        totals,
        *_recorded(source, host, windows, selection),
    )


def _separate(windows: Sequence[Window]) -> list[list[int]]:
    """Divide windows into groups without overlap, because a sample counts for one window of a read."""
    groups: list[list[int]] = []
    for number in sorted(range(len(windows)), key=lambda n: windows[n].begin_us):
        begin = windows[number].begin_us
        free = (group for group in groups if windows[group[-1]].end_us <= begin)
        if (group := next(free, None)) is None:
            groups.append([number])
        else:
            group.append(number)
    return groups


def rank_processes(
    source: reader.Reader, host: str, windows: Sequence[Window], selection: Selection = Selection()
) -> tuple[tuple[Consumer, ...], int]:
    """Return what ran in any of the windows, the top consumer first; and the idle samples."""
    processes: dict[Actor, int] = {}
    frames = segment_tables.Frames()
    tables: list[Integers] = []
    idle = 0
    launchers: set[Actor] = set()
    for part in samples.read_segments(
        source, host, windows, processes, selection, launchers=launchers
    ):
        rows = part.busy()
        idle += int(part.count.sum()) - int(rows.count.sum())
        softirq = rows.interruptions()
        kernel = ~softirq & ((rows.tables.flags[rows.node] & tree.KERNEL) > 0)
        frame = frames.number(rows.tables, rows.tables.frame[rows.node])
        counts = (np.where(mask, rows.count, 0) for mask in (~softirq, kernel, softirq))
        tables.append(np.stack([rows.process, frame, *counts]))
    process, frame, *columns = _concatenate(tables, 5)
    plain, kernels, softirqs = (
        np.bincount(process, column, len(processes)).astype(np.int64).tolist() for column in columns
    )
    functions, function = segment_tables.number_functions(zip(*frames.columns(), strict=True))
    ends: dict[int, dict[str, int]] = {number: {} for number in np.unique(process).tolist()}
    width = max(1, len(functions))
    keys, index = np.unique(process * width + function[frame], return_inverse=True)
    for key, n in zip(keys.tolist(), np.bincount(index, columns[0]).tolist(), strict=True):
        if n:
            ends[key // width][functions[key % width]] = int(n)
    actors = list(processes)
    consumers = [
        Consumer(actors[n], plain[n], kernels[n], softirqs[n], ended, actors[n] in launchers)
        for n, ended in ends.items()
    ]
    return tuple(sorted(consumers, key=lambda c: (-c.samples, -c.softirq, c.actor))), idle


def _count_frames(rows: samples.SegmentSamples) -> tuple[Integers, Integers]:
    """Count the samples that each frame is in, recursion once, and those that end in it.

    The rows of both tables are frame, process, window and samples. The stacks of a process are one slice
    of the tree, so each process costs as much as its own slice.
    """
    tables, node, window = rows.tables, rows.node, rows.window
    roots = np.flatnonzero(tables.up == 0)
    root = np.searchsorted(roots, node, "right") - 1
    order = np.lexsort((root, rows.process))
    changed = [np.diff(column[order], prepend=-1) != 0 for column in (rows.process, root)]
    edges = np.flatnonzero(changed[0] | changed[1])
    anywhere: list[Integers] = []
    ends: list[Integers] = []
    for group in np.split(order, edges[1:]) if len(order) else ():
        begin = int(roots[root[group[0]]])
        part = slice(begin, begin + int(tables.size[begin]))
        frame = tables.frame[part].astype(np.int64)
        first, end = tables.outermost[part], tables.end[part] - begin
        process = int(rows.process[group[0]])
        for number in np.unique(window[group]).tolist():
            chosen = group[window[group] == number]
            own = np.bincount(node[chosen] - begin, rows.count[chosen], len(frame))
            before = np.concatenate(([0.0], np.cumsum(own)))
            inside = np.where(first, before[end] - before[:-1], 0.0)
            for target, weight in ((anywhere, inside), (ends, own)):
                some = np.flatnonzero(weight)
                used, index = np.unique(frame[some], return_inverse=True)
                sums = np.bincount(index, weight[some], len(used)).astype(np.int64)
                where = np.full((2, len(used)), [[process], [number]])
                target.append(np.stack([used, *where, sums]))
    return _concatenate(anywhere), _concatenate(ends)


def _concatenate(tables: list[Integers], rows: int = 4) -> Integers:
    return np.concatenate(tables, axis=1) if tables else np.zeros((rows, 0), np.int64)


def _recorded(
    source: reader.Reader, host: str, windows: Sequence[Window], selection: Selection
) -> tuple[npt.NDArray[np.float64], Integers, int]:
    seconds, lost = np.zeros(len(windows)), np.zeros(len(windows), np.int64)
    frequency = 0
    for number, window in enumerate(windows):
        coverage = source.coverage((host,), window, selection)
        seconds[number], lost[number] = coverage.recorded_seconds, coverage.lost
        touched = source.touched((host,), window)
        frequency = max([frequency, *(source.meta(segment).frequency for segment in touched)])
    return seconds, lost, frequency
