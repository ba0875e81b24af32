"""Who ran, by unit, process and function: counts of several windows at once, nothing left out.

Trees hold processes, not units; here the rows of samples are joined with who made them. Each segment is
asked once for all the windows that touch it: cost grows with the windows, not with the night.
"""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from overnight.model.selection import Selection, Window
from overnight.queries import key_index, reader, segment_tables
from overnight.store import parquet, segments, tree

__all__ = ["Item", "Ran", "Tally", "ran", "tally"]

Integers = npt.NDArray[np.int64]


@dataclasses.dataclass(frozen=True)
class Item:
    """`function` is '' for the process as a whole."""

    unit: str
    process: str
    function: str


@dataclasses.dataclass(frozen=True)
class Tally:
    """Busy samples in which an item was on the stack: `counts[item][window]`; `own`: that ended in it."""

    items: tuple[Item, ...]
    counts: Integers
    own: Integers
    samples: Integers  # all busy ones of each window
    seconds: npt.NDArray[np.float64]  # how much of each window was recorded
    lost: Integers
    frequency: int  # samples a second on each core


@dataclasses.dataclass(frozen=True)
class Ran:
    """What one process of one unit did. Work of soft interrupts on top of it is counted apart.

    `functions` has the samples that ended in each function, soft interrupts left out.
    """

    unit: str
    process: str
    samples: int
    kernel: int  # of samples: those in the kernel
    softirq: int  # not in samples
    functions: dict[str, int]
    ours: bool = False  # some of its code is overnight's


# Function, person and window in one number, and how many samples.
_Piece = tuple[Integers, Integers, Integers]


@dataclasses.dataclass(frozen=True)
class _Rows:
    """Samples of one segment: window, task and node of each row, and how many."""

    names: segment_tables.Names
    window: Integers
    who: Integers  # index into people
    node: Integers
    n: Integers
    people: list[tuple[str, str]]


def tally(
    source: reader.Reader,
    host: str,
    windows: Sequence[Window],
    chosen: Selection | None = None,
) -> Tally:
    """Counts of every item that has a sample in any of the windows."""
    chosen = chosen or Selection()
    samples = np.zeros(len(windows), np.int64)
    people: dict[tuple[str, str], int] = {}
    functions = _Functions()
    pieces: tuple[list[_Piece], list[_Piece]] = ([], [])  # all on the stack, and where it ends
    for rows in _read(source, host, windows, chosen):
        busy = (rows.names.flags[rows.node] & tree.IDLE) == 0
        np.add.at(samples, rows.window[busy], rows.n[busy])
        who = np.array([people.setdefault(one, len(people)) for one in rows.people], np.int64)
        for piece, (frame, person, window, n) in zip(pieces, _on_stacks(rows, busy), strict=True):
            number = functions.numbers(rows.names, frame)
            piece.append((number, who[person] * len(windows) + window, n))
    both, items = _together(pieces, people, functions.names, len(windows))
    seconds, lost, frequency = _recorded(source, host, windows, chosen)
    return Tally(items, both[0], both[1], samples, seconds, lost, frequency)


def ran(
    source: reader.Reader,
    host: str,
    windows: Sequence[Window],
    chosen: Selection | None = None,
) -> tuple[tuple[Ran, ...], int]:
    """Who ran in any of the windows, the most first; and the idle samples."""
    chosen = chosen or Selection()
    sums: dict[tuple[str, str], list[int]] = collections.defaultdict(lambda: [0, 0, 0])
    ends: dict[tuple[str, str], collections.Counter[str]] = collections.defaultdict(
        collections.Counter
    )
    ours: set[tuple[str, str]] = set()
    idle = 0
    for rows in _read(source, host, windows, chosen):
        flags = rows.names.flags[rows.node]
        resting = (flags & tree.IDLE) > 0
        idle += int(rows.n[resting].sum())
        soft = ~resting & ((flags & tree.SOFTIRQ) > 0)
        plain = ~resting & ~soft
        kernel = plain & ((flags & tree.KERNEL) > 0)
        own_code = _of_overnight(rows.names)[rows.node] & ~resting
        for number, who in enumerate(rows.people):
            mine = rows.who == number
            for place, mask in enumerate((plain, kernel, soft)):
                sums[who][place] += int(rows.n[mine & mask].sum())
            if (mine & own_code).any():
                ours.add(who)
            frames = np.bincount(
                rows.names.frame[rows.node[mine & plain]].astype(np.int64),
                rows.n[mine & plain],
                len(rows.names.frame_name),
            )
            for frame in np.flatnonzero(frames).tolist():
                ends[who][_function(rows.names, frame)] += int(frames[frame])
    made = [
        Ran(*who, counts[0], counts[1], counts[2], dict(ends[who]), who in ours)
        for who, counts in sums.items()
        if counts[0] or counts[2]
    ]
    return tuple(sorted(made, key=lambda one: (-one.samples, -one.softirq, one.process))), idle


def _read(
    source: reader.Reader,
    host: str,
    windows: Sequence[Window],
    chosen: Selection,
) -> Iterator[_Rows]:
    """A segment at a time; a moment that is in two windows counts for the first."""
    if host not in source.catalogue.hosts():
        return
    touched: dict[segments.Segment, list[int]] = {}
    for number, window in enumerate(windows):
        for segment in source.touched((host,), window):
            touched.setdefault(segment, []).append(number)
    for segment, numbers in sorted(touched.items(), key=lambda pair: pair[0].begin_us):
        names = source.names(segment)
        cases = " ".join(
            f"WHEN time_us >= {windows[n].begin_us} AND time_us < {windows[n].end_us} THEN {n}"
            for n in numbers
        )
        whole = Window(
            min(windows[n].begin_us for n in numbers), max(windows[n].end_us for n in numbers)
        )
        where = reader.conditions(
            whole,
            chosen,
            source.task_numbers(segment, chosen),
            event=reader.event_of(names.meta, chosen),
        )
        rows = source.rows(
            segment,
            f"(CASE {cases} ELSE -1 END)::BIGINT AS w, task::BIGINT AS task, node::BIGINT AS node, sum(count)::BIGINT AS n",
            f"{where} GROUP BY ALL",
        )
        kept = rows["w"] >= 0
        tasks = parquet.read(segment.path / "tasks.parquet", ("process", "thread", "unit", "pid"))
        numbers_of: dict[tuple[str, str], int] = {}
        # Of thousands of tasks few ran in the windows.
        there, place = np.unique(rows["task"][kept], return_inverse=True)
        who = [
            numbers_of.setdefault(_person(tasks, task), len(numbers_of)) for task in there.tolist()
        ]
        yield _Rows(
            names,
            rows["w"][kept],
            np.array(who, np.int64)[place],
            rows["node"][kept],
            rows["n"][kept],
            list(numbers_of),
        )


def _person(tasks: parquet.Columns, task: int) -> tuple[str, str]:
    if task >= len(tasks["pid"]):
        return "", f"task {task}"
    process = tasks["process"][task] or tasks["thread"][task] or f"pid {tasks['pid'][task]}"
    return str(tasks["unit"][task]), str(process)


class _Functions:
    """Functions of several segments under one numbering; most frames are in all of them."""

    def __init__(self) -> None:
        self.names: dict[str, int] = {}
        self._keys = np.zeros(0, np.uint64)
        self._numbers = np.zeros(0, np.int64)

    def numbers(self, names: segment_tables.Names, frame: Integers) -> Integers:
        """Our numbers for a segment's frames."""
        used, place = np.unique(frame, return_inverse=True)
        keys = names.frame_key[used]
        found = key_index.find(keys, self._keys)
        fresh = np.flatnonzero(found < 0)
        numbers = [
            self.names.setdefault(_function(names, one), len(self.names))
            for one in used[fresh].tolist()
        ]
        found[fresh] = np.arange(len(self._keys), len(self._keys) + len(fresh))
        self._keys = np.concatenate([self._keys, keys[fresh]])
        self._numbers = np.concatenate([self._numbers, np.array(numbers, np.int64)])
        made: Integers = self._numbers[found][place]
        return made


_Counts = tuple[Integers, Integers, Integers, Integers]  # frame, person, window, samples


def _on_stacks(rows: _Rows, busy: npt.NDArray[np.bool_]) -> tuple[_Counts, _Counts]:
    """Samples that each frame is in, recursion once, and those that end in it.

    A process's stacks are one slice of the tree, so that each person costs as much as its own slice.
    """
    names = rows.names
    node, n, window, who = (one[busy] for one in (rows.node, rows.n, rows.window, rows.who))
    roots = np.flatnonzero(names.up == 0)
    root = np.searchsorted(roots, node, "right") - 1
    order = np.lexsort((root, who))
    edges = np.flatnonzero((np.diff(who[order], prepend=-1) != 0) | (np.diff(root[order], prepend=-1) != 0))  # fmt: skip
    whole: list[_Counts] = []
    ends: list[_Counts] = []
    for group in np.split(order, edges[1:]) if len(order) else ():
        begin = int(roots[root[group[0]]])
        part = slice(begin, begin + int(names.size[begin]))
        frame = names.frame[part].astype(np.int64)
        first, end = names.outermost[part], names.end[part] - begin
        person = int(who[group[0]])
        for one in np.unique(window[group]).tolist():
            mine = group[window[group] == one]
            own = np.bincount(node[mine] - begin, n[mine], len(frame))
            before = np.concatenate(([0.0], np.cumsum(own)))
            inside = np.where(first, before[end] - before[:-1], 0.0)
            for made, weight in ((whole, inside), (ends, own)):
                some = np.flatnonzero(weight)
                used, place = np.unique(frame[some], return_inverse=True)
                sums = np.bincount(place, weight[some], len(used)).astype(np.int64)
                made.append((used, np.full(len(used), person), np.full(len(used), one), sums))
    return _stacked(whole), _stacked(ends)


def _stacked(made: list[_Counts]) -> _Counts:
    none = np.zeros(0, np.int64)
    if not made:
        return none, none, none, none
    frame, person, window, n = (np.concatenate([one[i] for one in made]) for i in range(4))
    return frame, person, window, n


def _merged(one: Integers, other: Integers, n: Integers) -> _Piece:
    """Pairs, each once, and how many."""
    if not len(one):
        return one, other, n
    width = int(other.max()) + 1
    key, place = np.unique(one * width + other, return_inverse=True)
    return key // width, key % width, np.bincount(place, n, len(key)).astype(np.int64)


def _joined(pieces: list[_Piece]) -> _Piece:
    if not pieces:
        none = np.zeros(0, np.int64)
        return none, none, none
    function, cell, n = (np.concatenate([piece[i] for piece in pieces]) for i in range(3))
    return _merged(function, cell, n)


def _together(
    pieces: tuple[list[_Piece], list[_Piece]],
    people: dict[tuple[str, str], int],
    functions: dict[str, int],
    windows: int,
) -> tuple[Integers, tuple[Item, ...]]:
    """Counts by item and window, those on the stack and those at its end; and the items."""
    function, cell, n = _joined(pieces[0])
    ends, end_cell, end_n = _joined(pieces[1])
    persons = max(1, len(people))
    key, place = np.unique(function * persons + cell // windows, return_inverse=True)
    both = np.zeros((2, len(key), windows), np.int64)
    both[0][place, cell % windows] = n
    # Every function that is an end is on the stack.
    both[1][np.searchsorted(key, ends * persons + end_cell // windows), end_cell % windows] = end_n
    names, who = list(functions), list(people)
    items = tuple(
        Item(who[one % persons][0], who[one % persons][1], names[one // persons])
        for one in key.tolist()
    )
    return both, items


def _function(names: segment_tables.Names, frame: int) -> str:
    if names.frame_kind[frame] == tree.PROCESS:
        return ""
    name, module = str(names.frame_name[frame]), str(names.frame_module[frame])
    return f"[unknown] in {module}" if name == "[unknown]" and module not in ("", name) else name


def _of_overnight(names: segment_tables.Names) -> npt.NDArray[np.bool_]:
    """Nodes that are in a binary of overnight's own, the C extensions: Python's code has no name."""
    own = np.array(["/overnight/" in str(module) for module in names.frame_module.tolist()], bool)
    marked: npt.NDArray[np.bool_] = own[names.frame]
    return marked


def _recorded(
    source: reader.Reader,
    host: str,
    windows: Sequence[Window],
    chosen: Selection,
) -> tuple[npt.NDArray[np.float64], Integers, int]:
    seconds, lost = np.zeros(len(windows)), np.zeros(len(windows), np.int64)
    frequency = 0
    if host not in source.catalogue.hosts():
        return seconds, lost, frequency
    for number, window in enumerate(windows):
        found = [(one, source.meta(one)) for one in source.touched((host,), window)]
        told = reader.covered((host,), window, found, chosen, samples=0, idle=0)
        seconds[number], lost[number] = told.recorded_seconds, told.lost
        frequency = max([frequency, *(meta.frequency for _, meta in found)])
    return seconds, lost, frequency
