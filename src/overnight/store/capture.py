"""Samples in memory: readers of captures build them, and segments are written from them."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np
    import numpy.typing as npt

    from overnight.model.unknown import Why


@dataclasses.dataclass(frozen=True)
class Frames:
    """Every distinct function."""

    name: list[str]  # `[unknown]` where it was not resolved
    module: list[str]  # the binary's path, `[kernel]`, `[nf_conntrack]`, `[vdso]`, or '' (unknown)
    kind: npt.NDArray[np.uint8]  # FrameKind


@dataclasses.dataclass(frozen=True)
class Stacks:
    """Every distinct stack, root first: `frame[offset[i]:offset[i + 1]]` are stack i's frames."""

    offset: npt.NDArray[np.uint32]
    frame: npt.NDArray[np.uint32]


@dataclasses.dataclass(frozen=True)
class Tasks:
    """Every distinct thread that ran; -1 and '' are unknown ids and names."""

    pid: npt.NDArray[np.int32]
    tid: npt.NDArray[np.int32]
    thread: list[str]  # the thread's name (comm); it may contain spaces, digits, colons
    process: list[str]  # the program, as model.programs names it
    unit: list[str]  # the pod, else the systemd unit, else the cgroup's path
    # Index into the processes, -1: none; None: no such table.
    row: npt.NDArray[np.int32] | None = None
    # The program that keeps starting processes like this one; '' where it lives a second or more.
    launcher: list[str] = dataclasses.field(default_factory=list)


@dataclasses.dataclass(frozen=True)
class Processes:
    """Processes that ran or started others, and their ancestors; 0 and '' are unknown.

    Processes that lived less than a second are one row for each launcher and name.
    """

    pid: npt.NDArray[np.int32]
    parent: npt.NDArray[np.int32]  # the nearest ancestor that lived longer; -1: none
    started_us: npt.NDArray[np.int64]  # since the epoch
    count: npt.NDArray[np.uint32]  # processes in the row
    name: list[str]  # the program, as model.programs names it
    comm: list[str]
    executable: list[str]
    command: list[str]  # the command line, secrets masked
    user: list[str]
    cgroup: list[str]
    unit: list[str]
    container: list[str]
    pod: list[str]


@dataclasses.dataclass(frozen=True)
class Spawns:
    """Processes started in each second by the nearest ancestor that lives a second or more."""

    launcher: npt.NDArray[np.int32]  # index into the processes
    name: list[str]  # the comm of what was started
    second: npt.NDArray[np.int64]  # of the epoch
    count: npt.NDArray[np.uint32]


@dataclasses.dataclass(frozen=True)
class Gap:
    """A time span without samples, and why."""

    begin: int  # ns since the epoch
    end: int
    why: str


@dataclasses.dataclass(frozen=True)
class Loss:
    """Samples that the kernel dropped at some time in a span."""

    begin: int  # ns since the epoch
    end: int
    count: int


@dataclasses.dataclass(frozen=True)
class Capture:
    """Samples in time order, as columns, with the tables that they index."""

    host: str
    begin: int  # of the recorded span, ns since the epoch; may be before the first sample
    end: int
    frequency: int  # samples per second and core; 0: unknown
    cores: tuple[int, ...]  # recorded cores, also idle ones; (): unknown
    events: tuple[str, ...]  # such as "cpu-clock", "cycles"

    time: npt.NDArray[np.int64]  # ns since the epoch, ascending
    cpu: npt.NDArray[np.int32]  # -1: unknown
    task: npt.NDArray[np.uint32]  # index into `tasks`
    stack: npt.NDArray[np.uint32]  # index into `stacks`
    event: npt.NDArray[np.uint8]  # index into `events`
    count: npt.NDArray[np.uint32]  # samples in the row: 1, or N of a collapsed line
    period: npt.NDArray[np.uint64]  # weight of one sample in its event's unit; 0: unknown

    tasks: Tasks
    stacks: Stacks
    frames: Frames

    processes: Processes | None = None  # None: unknown, also the spawns
    spawns: Spawns | None = None

    lost: int = 0  # samples that the kernel reports as dropped
    losses: tuple[Loss, ...] = ()  # all of them with times, by end; (): unknown
    timed: bool = True  # False: all rows share one instant, as in collapsed stacks
    gaps: tuple[Gap, ...] = ()
    notes: tuple[str, ...] = ()  # for readers of results
    # Why functions have no name, by module; without an entry: not known.
    unknown: Mapping[str, Why] = dataclasses.field(default_factory=dict)
