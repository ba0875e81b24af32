"""Who the processes of a window are, and which of them keep starting others.

Segments of older versions and captures of other tools do not say; they are left out.
"""

from __future__ import annotations

import collections
import dataclasses
import itertools
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import numpy as np

from overnight.model.actor import Actor
from overnight.model.selection import Selection, Window
from overnight.model.times import SECOND_US
from overnight.queries import reader, samples
from overnight.store import parquet, process_reader, process_tables, segments

if TYPE_CHECKING:
    import numpy.typing as npt

# Each segment reads the clocks again, and has starts in ticks of processes that ran before it; no pid is reused so soon.
SAME_START_US = 2 * SECOND_US
TABLES = (*reader.TABLES, *process_tables.FILES)


@dataclasses.dataclass(frozen=True)
class Process:
    """A process of an actor, or all of its short-lived ones that one launcher started."""

    pid: int  # of short-lived ones, the first
    started_us: int | None
    count: int
    samples: int
    comm: str
    executable: str
    command: str  # secrets masked; "": not known
    user: str
    cgroup: str
    container: str
    pod: str
    launcher: str  # "" for a process that lived a second or more
    ancestors: tuple[str, ...]  # the nearest first


@dataclasses.dataclass(frozen=True)
class Child:
    """What a launcher started; `samples` are of those that lived less than a second."""

    name: str
    started: int
    samples: int


@dataclasses.dataclass(frozen=True)
class Launcher:
    """A program that started processes, and how many in each second."""

    actor: Actor
    pids: tuple[int, ...]
    started: npt.NDArray[np.int64]  # by second of `Spawns`
    children: tuple[Child, ...]  # the most frequent first
    samples: int  # its own

    @property
    def child_samples(self) -> int:
        return sum(child.samples for child in self.children)


@dataclasses.dataclass(frozen=True)
class Spawns:
    """The launchers of a window, the busiest first; `recorded` marks the seconds that are known."""

    first: int  # second of the epoch
    recorded: npt.NDArray[np.bool_]
    launchers: tuple[Launcher, ...]

    def rate(self, launcher: Launcher) -> float:
        """Return the processes that it started per recorded second."""
        seconds = int(self.recorded.sum())
        return float(launcher.started[self.recorded].sum()) / seconds if seconds else 0.0


@dataclasses.dataclass(frozen=True)
class _Part:
    """A segment's tables, and the busy samples of each task in the window."""

    segment: segments.Segment
    tables: process_reader.Tables
    tasks: parquet.Columns
    count: npt.NDArray[np.int64]


def describe(
    source: reader.Reader, hosts: Iterable[str], window: Window, chosen: Selection = Selection()
) -> dict[Actor, tuple[Process, ...]]:
    """Return the processes of each actor that ran in a window, the busiest first."""
    found: dict[Actor, dict[tuple[str, int], Process]] = collections.defaultdict(dict)
    begins: dict[tuple[Actor, int], int] = {}
    for part in _parts(source, hosts, window, chosen):
        rows: collections.Counter[tuple[Actor, int, str]] = collections.Counter()
        for task in np.flatnonzero(part.count).tolist():
            actor, launcher = samples.actor_of(part.tasks, task), part.tables.launcher[task]
            rows[actor, int(part.tables.row[task]), launcher] += int(part.count[task])
        for (actor, row, launcher), count in rows.items():
            if row < 0:
                continue
            process = _process(part.tables, row, launcher, count)
            # A process is the same in every segment; short-lived ones of a launcher are others.
            known = begins.get((actor, process.pid), process.started_us or 0)
            begin = process.started_us or known
            begins[actor, process.pid] = known if abs(known - begin) <= SAME_START_US else begin
            key = (launcher, 0) if launcher else (str(process.pid), begins[actor, process.pid])
            if other := found[actor].get(key):
                process = dataclasses.replace(
                    process,
                    count=other.count + process.count if launcher else other.count,
                    samples=other.samples + count,
                )
            found[actor][key] = process
    return {
        actor: tuple(sorted(group.values(), key=lambda process: -process.samples))
        for actor, group in found.items()
    }


def _process(tables: process_reader.Tables, row: int, launcher: str, count: int) -> Process:
    table = tables.processes
    return Process(
        pid=int(table.pid[row]),
        started_us=int(table.started_us[row]) or None,
        count=int(table.count[row]),
        samples=count,
        comm=table.comm[row],
        executable=table.executable[row],
        command=table.command[row],
        user=table.user[row],
        cgroup=table.cgroup[row],
        container=table.container[row],
        pod=table.pod[row],
        launcher=launcher,
        # A shell that started a shell, and the idle task at the top, say nothing.
        ancestors=tuple(
            name
            for name, _ in itertools.groupby(
                table.name[above] for above in tables.ancestors(row) if table.pid[above]
            )
        ),
    )


def count_spawns(
    source: reader.Reader, host: str, window: Window, chosen: Selection = Selection()
) -> Spawns:
    """Count the processes that each launcher started in each clock second that the window touches.

    `chosen` selects the samples that are counted, such as those of one core.
    """
    first = window.begin_us // SECOND_US
    length = max(1, -(-window.end_us // SECOND_US) - first)
    recorded = np.zeros(length, np.bool_)
    started: dict[Actor, npt.NDArray[np.int64]] = {}
    pids: dict[Actor, dict[int, None]] = collections.defaultdict(dict)
    children: dict[Actor, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    ran: collections.Counter[tuple[Actor, str]] = collections.Counter()  # "": itself
    for part in _parts(source, (host,), window, chosen):
        begin, end = (us / SECOND_US - first for us in (part.segment.begin_us, part.segment.end_us))
        recorded[max(0, int(begin)) : max(0, int(np.ceil(end)))] = True
        table, spawns = part.tables.processes, part.tables.spawns
        actors = [Actor(*pair) for pair in zip(table.name, table.unit, strict=True)]
        at = spawns.second - first
        for i in np.flatnonzero((at >= 0) & (at < length)).tolist():
            row = int(spawns.launcher[i])
            launcher, count = actors[row], int(spawns.count[i])
            started.setdefault(launcher, np.zeros(length, np.int64))[at[i]] += count
            children[launcher][spawns.name[i]] += count
            pids[launcher][int(table.pid[row])] = None
        for task in np.flatnonzero(part.count).tolist():
            row, count = int(part.tables.row[task]), int(part.count[task])
            above = int(table.parent[row]) if row >= 0 else -1
            if part.tables.launcher[task] and above >= 0:
                ran[actors[above], table.comm[row]] += count
            elif row >= 0:
                ran[actors[row], ""] += count
    launchers = [
        Launcher(
            actor,
            tuple(pids[actor]),
            counts,
            tuple(
                Child(name, number, ran[actor, name])
                for name, number in children[actor].most_common()
            ),
            ran[actor, ""],
        )
        for actor, counts in started.items()
    ]
    launchers.sort(key=lambda launcher: (-int(launcher.started.sum()), launcher.actor))
    return Spawns(first, recorded, tuple(launchers))


def _parts(
    source: reader.Reader, hosts: Iterable[str], window: Window, chosen: Selection
) -> Iterator[_Part]:
    for segment in source.touched(hosts, window, *TABLES):
        names = source.names(segment)
        if names.owners is None:
            continue
        columns = "task, node, sum(count)::BIGINT AS n"
        rows = source.rows(segment, columns, window, chosen, "GROUP BY ALL")
        weight = np.where(reader.passing_nodes(names, chosen)[rows["node"]], rows["n"], 0)
        tasks = parquet.read(segment.path / "tasks.parquet", samples.TASK)
        size = len(tasks["pid"])
        inside = rows["task"] < size  # otherwise the table is damaged
        count = np.bincount(rows["task"][inside], weight[inside], size).astype(np.int64)
        yield _Part(segment, names.owners, tasks, count)
