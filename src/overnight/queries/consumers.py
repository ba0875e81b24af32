"""CPU use by unit, process and function, in several windows at once, nothing left out."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from overnight.model.flame import FrameKind
from overnight.model.selection import Selection, Window
from overnight.queries import key_index, reader, samples, segment_tables
from overnight.store import tree

if TYPE_CHECKING:
    from overnight.model.actor import Actor

__all__ = ["Consumer", "Item", "Tally", "count_functions", "rank_processes"]

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
    """What one process of one unit ran. Softirqs that interrupted it are counted separately.

    `functions` holds the samples that ended in each function, softirqs excluded.
    """

    actor: Actor
    samples: int
    kernel: int  # part of samples
    softirq: int  # not part of samples
    functions: dict[str, int]
    ours: bool = False  # some of its code is overnight's


# Function, process and window in one number, and the samples.
_Cells = tuple[Integers, Integers, Integers]


def count_functions(
    source: reader.Reader,
    host: str,
    windows: Sequence[Window],
    selection: Selection | None = None,
) -> Tally:
    """Count every item that has a sample in any of the windows."""
    selection = selection or Selection()
    totals = np.zeros(len(windows), np.int64)
    processes: dict[Actor, int] = {}
    functions = _Functions()
    cells: tuple[list[_Cells], list[_Cells]] = ([], [])  # anywhere on the stack; where it ends
    for part in samples.read_segments(source, host, windows, selection, processes):
        rows = part.busy()
        np.add.at(totals, rows.window, rows.count)
        for target, (frame, process, window, n) in zip(cells, _count_frames(rows), strict=True):
            number = functions.numbers(rows.tables, frame)
            target.append((number, process * len(windows) + window, n))
    counts, items = _tabulate(cells, list(processes), list(functions.names), len(windows))
    seconds, lost, frequency = _recorded(source, host, windows, selection)
    return Tally(items, counts[0], counts[1], totals, seconds, lost, frequency)


def rank_processes(
    source: reader.Reader,
    host: str,
    windows: Sequence[Window],
    selection: Selection | None = None,
) -> tuple[tuple[Consumer, ...], int]:
    """Return what ran in any of the windows, the top consumer first; and the idle samples."""
    processes: dict[Actor, int] = {}
    sums: dict[int, list[int]] = collections.defaultdict(lambda: [0, 0, 0])
    ends: dict[int, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    ours: set[int] = set()
    idle = 0
    for part in samples.read_segments(source, host, windows, selection or Selection(), processes):
        rows = part.busy()
        idle += int(part.count.sum()) - int(rows.count.sum())
        flags = rows.tables.flags[rows.node]
        softirq = (flags & tree.SOFTIRQ) > 0
        kernel = ~softirq & ((flags & tree.KERNEL) > 0)
        own_code = _is_overnight(rows.tables)[rows.node]
        for process in np.unique(rows.process).tolist():
            mask = rows.process == process
            for place, kind in enumerate((~softirq, kernel, softirq)):
                sums[process][place] += int(rows.count[mask & kind].sum())
            if (mask & own_code).any():
                ours.add(process)
            plain = mask & ~softirq
            frames = np.bincount(
                rows.tables.frame[rows.node[plain]].astype(np.int64),
                rows.count[plain],
                len(rows.tables.frame_name),
            )
            for frame in np.flatnonzero(frames).tolist():
                ends[process][_function(rows.tables, frame)] += int(frames[frame])
    names = list(processes)
    consumers = [
        Consumer(
            actor=names[process],
            samples=plain_count,
            kernel=kernel_count,
            softirq=softirq_count,
            functions=dict(ends[process]),
            ours=process in ours,
        )
        for process, (plain_count, kernel_count, softirq_count) in sorted(sums.items())
    ]
    return tuple(sorted(consumers, key=lambda c: (-c.samples, -c.softirq, c.actor))), idle


class _Functions:
    """Functions of several segments under one numbering; most frames are in all of them."""

    def __init__(self) -> None:
        self.names: dict[str, int] = {}
        self._keys = np.zeros(0, np.uint64)
        self._numbers = np.zeros(0, np.int64)

    def numbers(self, tables: segment_tables.Names, frame: Integers) -> Integers:
        """Return the common numbers of a segment's frames."""
        used, index = np.unique(frame, return_inverse=True)
        keys = tables.frame_key[used]
        known = key_index.find(keys, self._keys)
        fresh = np.flatnonzero(known < 0)
        numbers = [
            self.names.setdefault(_function(tables, number), len(self.names))
            for number in used[fresh].tolist()
        ]
        known[fresh] = np.arange(len(self._keys), len(self._keys) + len(fresh))
        self._keys = np.concatenate([self._keys, keys[fresh]])
        self._numbers = np.concatenate([self._numbers, np.array(numbers, np.int64)])
        common: Integers = self._numbers[known][index]
        return common


_Counts = tuple[Integers, Integers, Integers, Integers]  # frame, process, window, samples


def _count_frames(rows: samples.SegmentSamples) -> tuple[_Counts, _Counts]:
    """Count the samples that each frame is in, recursion once, and those that end in it.

    The stacks of a process are one slice of the tree, so each process costs as much as its own slice.
    """
    tables, node, window = rows.tables, rows.node, rows.window
    roots = np.flatnonzero(tables.up == 0)
    root = np.searchsorted(roots, node, "right") - 1
    order = np.lexsort((root, rows.process))
    edges = np.flatnonzero((np.diff(rows.process[order], prepend=-1) != 0) | (np.diff(root[order], prepend=-1) != 0))  # fmt: skip
    anywhere: list[_Counts] = []
    ends: list[_Counts] = []
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
                target.append((used, np.full(len(used), process), np.full(len(used), number), sums))
    return _concatenate(anywhere), _concatenate(ends)


def _concatenate(counts: list[_Counts]) -> _Counts:
    if not counts:
        none = np.zeros(0, np.int64)
        return none, none, none, none
    frame, process, window, n = (np.concatenate([part[i] for part in counts]) for i in range(4))
    return frame, process, window, n


def _add_up(cells: list[_Cells]) -> _Cells:
    """Return each pair of function and cell once."""
    if not cells:
        none = np.zeros(0, np.int64)
        return none, none, none
    function, cell, n = (np.concatenate([part[i] for part in cells]) for i in range(3))
    if not len(function):
        return function, cell, n
    width = int(cell.max()) + 1
    key, index = np.unique(function * width + cell, return_inverse=True)
    return key // width, key % width, np.bincount(index, n, len(key)).astype(np.int64)


def _tabulate(
    cells: tuple[list[_Cells], list[_Cells]],
    processes: list[Actor],
    functions: list[str],
    windows: int,
) -> tuple[Integers, tuple[Item, ...]]:
    """Return the counts by item and window, anywhere on the stack and at its end; and the items."""
    function, cell, n = _add_up(cells[0])
    ends, end_cell, end_n = _add_up(cells[1])
    width = max(1, len(processes))
    key, index = np.unique(function * width + cell // windows, return_inverse=True)
    counts = np.zeros((2, len(key), windows), np.int64)
    counts[0][index, cell % windows] = n
    # Every function in which a stack ends is on that stack.
    counts[1][np.searchsorted(key, ends * width + end_cell // windows), end_cell % windows] = end_n
    items = tuple(
        Item(processes[number % width], functions[number // width])
        for number in key.tolist()
    )  # fmt: skip
    return counts, items


def _function(tables: segment_tables.Names, frame: int) -> str:
    if tables.frame_kind[frame] == FrameKind.PROCESS:
        return ""
    return segment_tables.function_label(
        str(tables.frame_name[frame]), str(tables.frame_module[frame])
    )


def _is_overnight(tables: segment_tables.Names) -> samples.Mask:
    """Mark the nodes in overnight's own binaries, the C extensions: Python code has no names."""
    own = np.array(["/overnight/" in str(module) for module in tables.frame_module.tolist()], bool)
    marked: samples.Mask = own[tables.frame]
    return marked


def _recorded(
    source: reader.Reader,
    host: str,
    windows: Sequence[Window],
    selection: Selection,
) -> tuple[npt.NDArray[np.float64], Integers, int]:
    seconds, lost = np.zeros(len(windows)), np.zeros(len(windows), np.int64)
    frequency = 0
    if host not in source.catalogue.hosts():
        return seconds, lost, frequency
    for number, window in enumerate(windows):
        metas = [(segment, source.meta(segment)) for segment in source.touched((host,), window)]
        coverage = reader.covered((host,), window, metas, selection, samples=0, idle=0)
        seconds[number], lost[number] = coverage.recorded_seconds, coverage.lost
        frequency = max([frequency, *(meta.frequency for _, meta in metas)])
    return seconds, lost, frequency
