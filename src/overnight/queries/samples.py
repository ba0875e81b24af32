"""Which process ran on which core when: the one reader of samples joined with their processes.

A segment's tree holds processes, not units, so rows of samples are joined with the tasks that made
them. Each segment is read once for all windows that touch it: the cost grows with the windows, not
with the night.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from overnight.model import programs
from overnight.model.actor import Actor
from overnight.model.flame import FrameKind
from overnight.model.selection import Coverage, Selection, Window
from overnight.model.times import SECOND_US
from overnight.queries import reader
from overnight.store import parquet, process_tables, segments, tree

if TYPE_CHECKING:
    from overnight.queries import segment_tables

Integers = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
MAX_PATH = 40  # frames
# A sender runs the receive softirq of a packet to its own host itself, below this function.
SENDING = r"ip6?_finish_output2"
# Entries of interrupts that another core asked for: TLB flushes, membarrier, function calls.
ASKED_BY_OTHERS = (
    r"(asm_|__)?sysvec_call_function(_single)?|(smp_)?call_function(_single)?_interrupt"
)
TASK = ("process", "thread", "unit", "pid")


@dataclasses.dataclass(frozen=True)
class SegmentSamples:
    """Samples of one segment: a row per window, second, core, process and stack."""

    tables: segment_tables.Names
    window: Integers  # index into the windows asked for
    second: Integers  # of the epoch; 0 unless read by second
    core: Integers  # 0 unless read by second
    process: Integers  # its number, the same in all segments of one read
    node: Integers
    count: Integers

    def busy(self) -> SegmentSamples:
        kept = (self.tables.flags[self.node] & tree.IDLE) == 0
        columns = (self.window, self.second, self.core, self.process, self.node, self.count)
        return SegmentSamples(self.tables, *(column[kept] for column in columns))

    def interruptions(self) -> Mask:
        """Mark the rows that are not work of the process that ran.

        These are softirqs, except those that it runs for packets to its own host, and interrupts by other cores.
        """
        tables = self.tables
        softirq = (tables.flags & tree.SOFTIRQ) > 0
        marked: Mask = softirq[self.node]
        if marked.any():
            sends = self.kernel_frames(SENDING)[tables.frame] & ~softirq
            marked &= ~tables.mark_below(np.flatnonzero(sends))[self.node]
        asked = np.flatnonzero(self.kernel_frames(ASKED_BY_OTHERS)[tables.frame])
        return marked | tables.mark_below(asked)[self.node] if len(asked) else marked

    def innermost(self, nodes: Integers, marked: Mask) -> Integers:
        """Return for each node the nearest one, itself or a caller, whose frame is marked; -1: none."""
        frame, up = self.tables.frame, self.tables.up
        # Most nodes are below no marked one and need no climbing.
        under = self.tables.mark_below(np.flatnonzero(marked[frame]))
        nearest = np.full(len(nodes), -1, np.int64)
        rows = np.flatnonzero((nodes >= 0) & under[np.maximum(nodes, 0)])
        here = nodes[rows]
        while len(rows):
            hit = marked[frame[here]]
            nearest[rows[hit]] = here[hit]
            rows, here = rows[~hit], here[~hit]
            here = here - up[here]
        return nearest

    def path(self, node: int) -> list[str]:
        """Return the names from the process down to a node."""
        names: list[str] = []
        while True:
            names.append(str(self.tables.frame_name[self.tables.frame[node]]))
            step = int(self.tables.up[node])
            if not step or len(names) >= MAX_PATH:
                return names[::-1]
            node -= step

    def kernel_frames(self, pattern: str) -> Mask:
        """Mark the kernel functions whose whole name matches; GCC's suffixes do not count."""
        match = re.compile(rf"(?:{pattern})(?:\.\w+)*").fullmatch
        names, kinds = self.tables.frame_name.tolist(), self.tables.frame_kind.tolist()
        return np.array(
            [
                kind == FrameKind.KERNEL and match(name) is not None
                for name, kind in zip(names, kinds, strict=True)
            ],
            bool,
        )


@dataclasses.dataclass(frozen=True)
class WindowSamples:
    """All busy samples of a window. `core_rate`: samples a second of one saturated core; 0: unknown."""

    window: Window
    coverage: Coverage
    core_rate: float
    processes: list[Actor]
    segments: list[SegmentSamples]

    @property
    def seconds(self) -> float:
        """The recorded part of the window."""
        return self.coverage.recorded_seconds

    def cores(self, samples: float, seconds: float) -> float:
        """Convert a number of samples in some seconds to cores."""
        return samples / (self.core_rate * seconds) if self.core_rate and seconds else 0.0


def read_window(
    source: reader.Reader,
    host: str,
    window: Window,
    selection: Selection = Selection(),
    *,
    by_second: bool = True,
) -> WindowSamples:
    """Read the busy samples of a host; without `by_second` all rows are of second 0 and core 0."""
    processes: dict[Actor, int] = {}
    rows = read_segments(source, host, (window,), processes, selection, by_second=by_second)
    parts = [part.busy() for part in rows]
    samples = sum(int(part.count.sum()) for part in parts)
    coverage = source.coverage((host,), window, selection, samples=samples)
    return WindowSamples(window, coverage, coverage.core_rate, list(processes), parts)


def read_segments(
    source: reader.Reader,
    host: str,
    windows: Sequence[Window],
    processes: dict[Actor, int],
    selection: Selection = Selection(),
    *,
    by_second: bool = False,
    launchers: set[Actor] | None = None,
) -> Iterator[SegmentSamples]:
    """Yield all samples of each segment, in the first window that holds them; number their `processes`.

    Short-lived processes count for their launcher, which is added to `launchers`: the program that keeps
    starting them is responsible for what they use.
    """
    touched: dict[segments.Segment, list[int]] = {}
    for number, window in enumerate(windows):
        for segment in source.touched((host,), window, *reader.TABLES):
            touched.setdefault(segment, []).append(number)
    second, core = (f"time_us // {SECOND_US}", "cpu") if by_second else ("0", "0")
    for segment, numbers in sorted(touched.items(), key=lambda item: item[0].begin_us):
        whole = Window(
            min(windows[n].begin_us for n in numbers), max(windows[n].end_us for n in numbers)
        )
        which = " ".join(
            f"WHEN time_us >= {windows[n].begin_us} AND time_us < {windows[n].end_us} THEN {n}"
            for n in numbers
        )
        rows = source.rows(
            segment,
            f"(CASE {which} ELSE -1 END)::BIGINT AS w, {second}::BIGINT AS second, {core}::BIGINT AS core,"
            " task::BIGINT AS task, node::BIGINT AS node, sum(count)::BIGINT AS n",
            whole,
            selection,
            "GROUP BY ALL",
        )
        if len(numbers) > 1:  # between the windows
            inside = rows["w"] >= 0
            rows = {name: column[inside] for name, column in rows.items()}
        launched = ("launcher",) if (segment.path / process_tables.PROCESSES).is_file() else ()
        tasks = parquet.read(segment.path / "tasks.parquet", (*TASK, *launched))
        # Of thousands of tasks, few ran in the windows.
        used, index = np.unique(rows["task"], return_inverse=True)
        process = []
        for task in used.tolist():
            launcher = _launcher_of(tasks, task)
            if launcher is not None and launchers is not None:
                launchers.add(launcher)
            actor = launcher or actor_of(tasks, task)
            process.append(processes.setdefault(actor, len(processes)))
        yield SegmentSamples(
            source.names(segment),
            rows["w"],
            rows["second"],
            rows["core"],
            np.array(process, np.int64)[index],
            rows["node"],
            rows["n"],
        )


def actor_of(tasks: parquet.Columns, task: int) -> Actor:
    """Return who a task belongs to; `tasks` has the columns TASK."""
    if task >= len(tasks["pid"]):  # a damaged table
        return Actor(f"task {task}", "")
    name = tasks["process"][task] or tasks["thread"][task] or f"pid {tasks['pid'][task]}"
    return Actor(str(name), str(tasks["unit"][task]))


def _launcher_of(tasks: parquet.Columns, task: int) -> Actor | None:
    """Return who keeps starting processes like this one; a service manager is not responsible for them."""
    names = tasks.get("launcher", ())
    name = str(names[task]) if task < len(names) else ""
    if not name or name.startswith(programs.MANAGERS):
        return None
    return Actor(name, str(tasks["unit"][task]))
