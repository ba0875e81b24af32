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

from overnight.model import selection
from overnight.queries import reader, stored
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


@dataclasses.dataclass(frozen=True)
class _Rows:
    """Samples of one segment: window, task and node of each row, and how many."""

    names: stored.Names
    window: Integers
    who: Integers  # index into people
    node: Integers
    n: Integers
    people: list[tuple[str, str]]


def tally(
    source: reader.Reader,
    host: str,
    windows: Sequence[selection.Window],
    chosen: selection.Selection | None = None,
) -> Tally:
    """Counts of every item that has a sample in any of the windows."""
    chosen = chosen or selection.Selection()
    found: dict[tuple[str, str, str], Integers] = {}
    samples = np.zeros(len(windows), np.int64)
    for rows in _read(source, host, windows, chosen):
        busy = (rows.names.flags[rows.node] & tree.IDLE) == 0
        np.add.at(samples, rows.window[busy], rows.n[busy])
        _climb(rows, busy, len(windows), found)
    items = sorted(found)
    both = np.array([found[item] for item in items], np.int64).reshape(len(items), 2, len(windows))
    seconds, lost, frequency = _recorded(source, host, windows, chosen)
    made = tuple(Item(*item) for item in items)
    return Tally(made, both[:, 0], both[:, 1], samples, seconds, lost, frequency)


def ran(
    source: reader.Reader,
    host: str,
    windows: Sequence[selection.Window],
    chosen: selection.Selection | None = None,
) -> tuple[tuple[Ran, ...], int]:
    """Who ran in any of the windows, the most first; and the idle samples."""
    chosen = chosen or selection.Selection()
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
    windows: Sequence[selection.Window],
    chosen: selection.Selection,
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
        whole = selection.Window(
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


def _climb(
    rows: _Rows,
    busy: npt.NDArray[np.bool_],
    windows: int,
    found: dict[tuple[str, str, str], Integers],
) -> None:
    """Counts every function on the way from each sample's end to its process, recursion once."""
    names = rows.names
    at, n = rows.node[busy], rows.n[busy]
    cell = rows.who[busy] * windows + rows.window[busy]
    cells = max(1, len(rows.people) * windows)
    _add(rows, names.frame[at].astype(np.int64) * cells + cell, n, windows, 1, found)
    keys, weights = [], []
    while len(at):
        first = names.outermost[at]
        keys.append(names.frame[at[first]].astype(np.int64) * cells + cell[first])
        weights.append(n[first])
        up = names.up[at].astype(np.int64)
        going = up > 0
        at, n, cell = (at - up)[going], n[going], cell[going]
    if keys:
        _add(rows, np.concatenate(keys), np.concatenate(weights), windows, 0, found)


def _add(
    rows: _Rows,
    keys: Integers,
    weights: Integers,
    windows: int,
    part: int,
    found: dict[tuple[str, str, str], Integers],
) -> None:
    """Into each item's counts (part 0) or its own (part 1); a key is frame, person and window in one."""
    key, place = np.unique(keys, return_inverse=True)
    sums = np.bincount(place, weights, len(key)).astype(np.int64)
    for one, total in zip(key.tolist(), sums.tolist(), strict=True):
        rest, window = divmod(one, windows)
        frame, person = divmod(rest, len(rows.people))
        item = (*rows.people[person], _function(rows.names, frame))
        row = found.get(item)
        if row is None:
            row = found[item] = np.zeros((2, windows), np.int64)
        row[part, window] += total


def _function(names: stored.Names, frame: int) -> str:
    if names.frame_kind[frame] == tree.PROCESS:
        return ""
    name, module = str(names.frame_name[frame]), str(names.frame_module[frame])
    return f"[unknown] in {module}" if name == "[unknown]" and module not in ("", name) else name


def _of_overnight(names: stored.Names) -> npt.NDArray[np.bool_]:
    """Nodes that are in a binary of overnight's own, the C extensions: Python's code has no name."""
    own = np.array(["/overnight/" in str(module) for module in names.frame_module.tolist()], bool)
    marked: npt.NDArray[np.bool_] = own[names.frame]
    return marked


def _recorded(
    source: reader.Reader,
    host: str,
    windows: Sequence[selection.Window],
    chosen: selection.Selection,
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
