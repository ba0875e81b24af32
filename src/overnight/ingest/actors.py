"""Names the processes of a recording as an operator would, and finds who started them.

A process that lived less than a second is named by the nearest ancestor that lives on, its launcher, and all
of one launcher and one name are one row: a fork storm has thousands, too short to be read from /proc.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from overnight import sources
from overnight.ingest import identities
from overnight.model import programs
from overnight.model.flame import FrameKind
from overnight.model.times import SECOND_NS
from overnight.sources.perf import process_table
from overnight.sources.processes import identity, membership, table
from overnight.store import capture

if TYPE_CHECKING:
    import numpy.typing as npt

    Integers = npt.NDArray[np.int64]

SHORT_NS = SECOND_NS
MAX_LAUNCHERS = 1000
MAX_CHILDREN = 20  # names a launcher; the others count as one
OTHERS = "others"
WORK = "process_one_work"
WORKER = "kworker/"
KERNEL_PIDS = (0, 2)  # the idle task and kthreadd: every kernel thread is their child


@dataclasses.dataclass(frozen=True)
class Recording:
    """The processes and tasks of a recording as decoded, on the recording's own clock."""

    processes: tuple[bytes, ...]
    tasks: tuple[bytes, ...]
    strings: list[bytes]
    shift: int  # wall clock less the recording's clock
    begin: int
    registry: identities.Registry | None  # None: of another host or boot

    def column(self, number: int, kind: str) -> Integers:
        """Return a column of the processes; -1 for an unknown row or string."""
        return _plain(self.processes[number], kind)

    @functools.cached_property
    def text(self) -> list[str]:
        return [name.decode("utf-8", "replace") for name in self.strings]

    @functools.cached_property
    def _comms(self) -> dict[int, str]:
        return {}

    def comm(self, string: int) -> str:
        """Return a name as the agent writes it, so that signals and profiles agree."""
        if string not in self._comms:
            self._comms[string] = table.display_name(self.strings[string])
        return self._comms[string]


@dataclasses.dataclass(frozen=True)
class Named:
    tasks: capture.Tasks
    processes: capture.Processes
    spawns: capture.Spawns


def name_tasks(recorded: Recording) -> Named:
    """Name every task and its process; list the processes that ran or started others."""
    rows = _Rows(recorded)
    task_row = _plain(recorded.tasks[4], "<u4")
    kept = rows.choose(task_row)
    place = np.full(len(rows.pid) + 1, -1, np.int32)
    place[kept] = np.arange(len(kept))
    names: list[str] = []
    launchers: list[str] = []
    units: list[str] = []
    comms = np.frombuffer(recorded.tasks[3], "<u4").tolist()
    for row, comm in zip(task_row.tolist(), comms, strict=True):
        at = int(rows.group[row]) if row >= 0 else -1
        names.append(rows.name(at, comm) if at >= 0 else recorded.comm(comm))
        launcher = int(rows.launcher[at]) if at >= 0 and rows.short[at] else -1
        launchers.append(rows.name(launcher) if launcher >= 0 else "")
        units.append(rows.unit(at) if at >= 0 else "")
    tasks = capture.Tasks(
        pid=np.frombuffer(recorded.tasks[0], "<i4"),
        tid=np.frombuffer(recorded.tasks[1], "<i4"),
        thread=[recorded.text[i] for i in np.frombuffer(recorded.tasks[2], "<u4").tolist()],
        process=names,
        unit=units,
        row=place[rows.group[task_row]],
        launcher=launchers,
    )
    return Named(tasks, rows.describe(kept, place), rows.spawns(place))


def _plain(column: bytes, kind: str) -> Integers:
    values = np.frombuffer(column, kind)
    if kind == "<u4":
        return np.where(values == process_table.UNKNOWN, -1, values.astype(np.int64))
    return (np.minimum(values, np.uint64(2**62)) if kind == "<u8" else values).astype(np.int64)


class _Rows:
    """The rows of the decoder's table. `launcher` and `group` have one more, for the row -1."""

    def __init__(self, recorded: Recording) -> None:
        self.recorded = recorded
        self.pid = recorded.column(0, "<i4")
        parent = np.append(recorded.column(1, "<u4"), -1)
        self.start, self.end = recorded.column(2, "<u8"), recorded.column(3, "<u8")
        self.comm, self.executable = recorded.column(4, "<u4"), recorded.column(5, "<u4")
        self.execed = recorded.column(6, "<u8")
        own = np.append(np.arange(len(self.pid)), -1)
        lived = self.end - self.start
        self.short = np.append(
            (self.start > 0) & (lived >= 0) & (lived < SHORT_NS) & (self.end > 0), False
        )
        self.fresh = (self.start > 0) & (self.start >= recorded.begin)
        up = np.where(self.short, parent, own)
        while self.short[up].any():  # each step doubles the distance
            up = up[up]
        self.launcher = up[parent]
        self.group, self.members = self._merge()
        self._seen = self._find_seen()
        self._programs: dict[tuple[int, int], programs.Program] = {}
        self._identities: dict[int, identity.Identity | None] = {}
        self._names: dict[tuple[int, int], str] = {}
        self._units: dict[int, str] = {}

    def _merge(self) -> tuple[Integers, Integers]:
        """Return the row that stands for each, and how many it stands for."""
        group = np.append(np.arange(len(self.pid)), -1)
        members = np.ones(len(self.pid), np.int64)
        short = np.flatnonzero(self.short[:-1])
        key = self.launcher[short] * len(self.recorded.strings) + self.comm[short]
        _, first, which, counts = np.unique(
            key, return_index=True, return_inverse=True, return_counts=True
        )
        group[short] = short[first][which]
        members[short[first]] = counts
        return group, members

    def _find_seen(self) -> dict[int, list[int]]:
        """Return the short-lived processes whose pid the registry knows, by their row."""
        registry = self.recorded.registry
        seen: dict[int, list[int]] = {}
        pids = list(registry.pids) if registry else []
        for row in np.flatnonzero(self.short[:-1] & np.isin(self.pid, pids)).tolist():
            seen.setdefault(int(self.group[row]), []).append(row)
        return seen

    def choose(self, task_row: Integers) -> Integers:
        """Return the rows that ran or started others, and their ancestors."""
        started = np.bincount(self.launcher[:-1][self.fresh] + 1, minlength=1)[1:]
        most = np.argsort(-started, kind="stable")[:MAX_LAUNCHERS]
        chosen = {*self.group[task_row].tolist(), *most[started[most] > 0].tolist()}
        for row in sorted(chosen):
            while (row := int(self.launcher[row])) not in chosen:
                chosen.add(row)
        return np.array(sorted(chosen - {-1}), np.int64)

    def who(self, row: int) -> identity.Identity | None:
        if row not in self._identities:
            self._identities[row] = self._find_identity(row)
        return self._identities[row]

    def _find_identity(self, row: int) -> identity.Identity | None:
        registry = self.recorded.registry
        if registry is None or row < 0:
            return None
        # Of many short-lived processes, the registry may have seen one.
        for member in self._seen.get(row, ()) if self.short[row] else (row,):
            pid = int(self.pid[member])
            if found := registry.find(
                pid,
                int(self.start[member]),
                self.recorded.begin,
                self._file(member),
                execed=int(self.execed[member]),
                ended=bool(self.end[member]) or pid <= 0,
            ):
                return found
        return None

    def _file(self, row: int) -> str:
        number = int(self.executable[row])
        return self.recorded.text[number] if number >= 0 else ""

    def program(self, row: int, comm: int | None = None) -> programs.Program:
        """Identify a process, at a time when it had this name."""
        comm = int(self.comm[row]) if comm is None else comm
        if (row, comm) not in self._programs:
            arguments: tuple[str, ...] = ()
            file = self._file(row)
            known = None if self.short[row] else self.who(row)
            if known is not None and identities.same_file(known.executable, file):
                file, arguments = known.executable, known.arguments
            self._programs[row, comm] = programs.identify(self.recorded.comm(comm), file, arguments)
        return self._programs[row, comm]

    def _ancestors(self, row: int) -> Iterator[int]:
        while (row := int(self.launcher[row])) >= 0:
            yield row

    def name(self, row: int, comm: int | None = None) -> str:
        """Name a process, at a time when it had this name; a short-lived one has one name."""
        comm = int(self.comm[row]) if comm is None or self.short[row] else comm
        if (row, comm) not in self._names:
            self._names[row, comm] = self._name(row, comm)
        return self._names[row, comm]

    def _name(self, row: int, comm: int) -> str:
        own, launcher = self.program(row, comm), int(self.launcher[row])
        if launcher < 0 or not self.short[row] or self.pid[launcher] in KERNEL_PIDS:
            return programs.full_name(own, map(self.program, self._ancestors(row)))
        return programs.launched_name(self.program(launcher), own.name)

    def unit(self, row: int) -> str:
        """Return the pod or unit of a process: its launcher's where the process was too short to be read."""
        if row not in self._units:
            self._units[row] = self._find_unit(row)
        return self._units[row]

    def _find_unit(self, row: int) -> str:
        registry, known = self.recorded.registry, self.who(row)
        if known is not None and registry is not None:
            return membership.owner_of(known.cgroup, registry.root)
        for above in self._ancestors(row):
            known = self.who(above)
            if self.recorded.comm(int(self.comm[above])).startswith(programs.MANAGERS):
                return ""
            if known is not None and registry is not None:
                return membership.owner_of(known.cgroup, registry.root)
        return ""

    def describe(self, kept: Integers, place: npt.NDArray[np.int32]) -> capture.Processes:
        registry, shift = self.recorded.registry, self.recorded.shift
        root = registry.root if registry else sources.ROOT
        rows = kept.tolist()
        known = [self.who(row) for row in rows]
        groups = [each.cgroup if each else "" for each in known]
        started = [
            int(self.start[row]) or (identities.started_ns(each) if each else -shift)
            for row, each in zip(rows, known, strict=True)
        ]
        return capture.Processes(
            pid=self.pid[kept].astype(np.int32),
            parent=place[self.launcher[kept]],
            started_us=(np.array(started, np.int64) + shift) // 1000,
            count=self.members[kept].astype(np.uint32),
            name=[self.name(row) for row in rows],
            comm=[self.recorded.comm(int(self.comm[row])) for row in rows],
            executable=[
                self._file(row) or (each.executable if each else "")
                for row, each in zip(rows, known, strict=True)
            ],
            command=[
                identities.command_of(each)
                if each and identities.same_file(each.executable, self._file(row))
                else ""
                for row, each in zip(rows, known, strict=True)
            ],
            user=[identities.user_name(each.user, root) if each else "" for each in known],
            cgroup=groups,
            unit=[self.unit(row) for row in rows],
            container=[membership.parse_container(group) for group in groups],
            pod=[identities.pod_of(group, root) for group in groups],
        )

    def spawns(self, place: npt.NDArray[np.int32]) -> capture.Spawns:
        """Count the processes that each launcher started in each second."""
        launcher = place[self.launcher[:-1]]
        rows = np.flatnonzero(self.fresh & (launcher >= 0))
        strings = len(self.recorded.strings)
        pair, which, counts = np.unique(
            launcher[rows].astype(np.int64) * strings + self.comm[rows],
            return_inverse=True, return_counts=True,
        )  # fmt: skip
        order = np.lexsort((-counts, pair // strings))
        begins = np.flatnonzero(np.diff(pair[order] // strings, prepend=-1))
        rank = np.arange(len(order)) - np.repeat(begins, np.diff(np.append(begins, len(order))))
        name = pair % strings
        name[order[rank >= MAX_CHILDREN]] = -1
        second = (self.start[rows] + self.recorded.shift) // SECOND_NS
        table, count = np.unique(
            np.stack([launcher[rows], name[which], second]), axis=1, return_counts=True
        )
        return capture.Spawns(
            launcher=table[0].astype(np.int32),
            name=[
                self.recorded.comm(number) if number >= 0 else OTHERS
                for number in table[1].tolist()
            ],
            second=table[2],
            count=count.astype(np.uint32),
        )


def split_workers(
    tasks: capture.Tasks,
    task: npt.NDArray[np.uint32],
    stacks: capture.Stacks,
    stack: npt.NDArray[np.uint32],
    frames: capture.Frames,
) -> tuple[capture.Tasks, npt.NDArray[np.uint32]]:
    """Divide kernel workers by the function they worked on: the pool's name does not say what they did."""
    kernel = frames.kind == FrameKind.KERNEL
    is_work = np.array([name == WORK for name in frames.name], bool) & kernel
    is_worker = np.array([name.startswith(WORKER) for name in tasks.process], bool)
    if not is_work.any() or not is_worker.any():
        return tasks, task
    function = np.full(len(stacks.offset) - 1, -1, np.int64)
    at = np.flatnonzero(is_work[stacks.frame])
    owner = np.searchsorted(stacks.offset, at, "right") - 1
    below = at + 1 < stacks.offset[owner + 1]
    function[owner[below]] = stacks.frame[at[below] + 1]
    width = len(frames.name) + 1
    key = task.astype(np.int64) * width + np.where(is_worker[task], function[stack], -1) + 1
    pairs, which = np.unique(key, return_inverse=True)
    old, work = pairs // width, pairs % width - 1
    rows = old.tolist()
    return capture.Tasks(
        pid=tasks.pid[old],
        tid=tasks.tid[old],
        thread=[tasks.thread[row] for row in rows],
        process=[
            f"{tasks.process[row]} [{frames.name[number]}]" if number >= 0 else tasks.process[row]
            for row, number in zip(rows, work.tolist(), strict=True)
        ],
        unit=[tasks.unit[row] for row in rows],
        row=None if tasks.row is None else tasks.row[old],
        launcher=[tasks.launcher[row] for row in rows],
    ), which.astype(np.uint32)
