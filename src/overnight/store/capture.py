"""Samples in memory: what every reader of a capture makes, and every segment is written from."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt


@dataclasses.dataclass(frozen=True)
class Frames:
    """Every distinct function. `name` is `[unknown]` where it could not be found out.

    `module` is the binary's path, `[kernel]`, a kernel module as `[nf_conntrack]`, `[vdso]`, or
    '' where the capture does not say.
    """

    name: list[str]
    module: list[str]
    kind: npt.NDArray[np.uint8]  # FrameKind


@dataclasses.dataclass(frozen=True)
class Stacks:
    """Every distinct stack, root first: `frame[offset[i]:offset[i + 1]]` are stack i's frames."""

    offset: npt.NDArray[np.uint32]
    frame: npt.NDArray[np.uint32]


@dataclasses.dataclass(frozen=True)
class Tasks:
    """Every distinct thread that ran. -1 where pid or tid is not known, '' where a name is not."""

    pid: npt.NDArray[np.int32]
    tid: npt.NDArray[np.int32]
    thread: list[str]  # the thread's own name (comm), whole: it may hold spaces, digits, colons
    process: list[str]  # the name of the process, that is of its main thread
    unit: list[str]  # the systemd unit, or else the cgroup's path


@dataclasses.dataclass(frozen=True)
class Gap:
    """A stretch in which samples are missing, and why."""

    begin: int  # ns since the epoch
    end: int
    why: str


@dataclasses.dataclass(frozen=True)
class Loss:
    """Samples that the kernel dropped at some time in a stretch."""

    begin: int  # ns since the epoch
    end: int
    count: int


@dataclasses.dataclass(frozen=True)
class Capture:
    """Samples in time order, a column each, with the tables that their indices point into."""

    host: str
    begin: int  # ns since the epoch; the stretch recorded, which may begin before the first sample
    end: int
    frequency: int  # samples a second on each core; 0 where the capture does not say
    cores: tuple[int, ...]  # those recorded, idle ones too; () where the capture does not say
    events: tuple[str, ...]  # such as "cpu-clock", "cycles"

    time: npt.NDArray[np.int64]  # ns since the epoch, ascending
    cpu: npt.NDArray[np.int32]  # -1 where the capture does not say
    task: npt.NDArray[np.uint32]  # index into `tasks`
    stack: npt.NDArray[np.uint32]  # index into `stacks`
    event: npt.NDArray[np.uint8]  # index into `events`
    count: npt.NDArray[np.uint32]  # samples that the row stands for: 1, or N of a collapsed line
    period: npt.NDArray[np.uint64]  # what one sample weighs in its event's unit; 0: not said

    tasks: Tasks
    stacks: Stacks
    frames: Frames

    lost: int = 0  # samples that the kernel says it dropped
    losses: tuple[Loss, ...] = ()  # when: all of them, by end; () where the capture does not say
    timed: bool = True  # False: all rows share one instant, as collapsed stacks do
    gaps: tuple[Gap, ...] = ()
    notes: tuple[str, ...] = ()  # what a reader of results should know about this capture
