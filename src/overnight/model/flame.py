"""Stacks of one window with their sample counts: what every flame graph is drawn from."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from overnight.model.emptiness import Empty
    from overnight.model.unknown import Unknown

UNKNOWN = "[unknown]"  # the name of a function that was not resolved


class FrameKind(enum.IntEnum):
    USER = 0
    KERNEL = 1
    PROCESS = 2  # not code: the process name at the root of its stacks


@dataclasses.dataclass(frozen=True)
class Frame:
    """A function, the binary it is in ('' if unknown), and whether that is the kernel."""

    name: str
    module: str = ""
    kind: int = FrameKind.USER


class Node(NamedTuple):
    """A frame in its place on a stack, and the samples that end there."""

    frame: int  # index into the frames
    parent: int  # index into the nodes; -1: none
    own: int


class Sample(NamedTuple):
    """Samples of one stack with the same labels, such as ("process", "nginx") and ("cpu", "0")."""

    path: tuple[int, ...]  # indices into the frames, root first
    labels: tuple[tuple[str, str], ...]
    samples: int


@dataclasses.dataclass(frozen=True)
class Folded:
    """The stacks of one window folded into a tree, parents before children; zero or empty: unknown."""

    title: str
    host: str
    begin_ns: int  # since the epoch
    end_ns: int
    frequency: int  # samples a second on each core
    cores: tuple[int, ...]
    event: str
    frames: tuple[Frame, ...]
    nodes: tuple[Node, ...]
    lost: int = 0
    notes: tuple[str, ...] = ()
    empty: Empty | None = None  # as in Coverage; also in the notes
    unknown: Unknown | None = None
    samples: tuple[Sample, ...] = ()  # in place of the nodes, for a format with labels

    @property
    def total(self) -> int:
        return sum(node.own for node in self.nodes)

    @property
    def nanoseconds(self) -> int:
        """CPU time that one sample stands for; 0 where samples do not stand for time."""
        clock = self.event.partition(":")[0] in {"cpu", "cpu-clock", "task-clock", "cycles"}
        return round(1e9 / self.frequency) if clock and self.frequency > 0 else 0

    def stacks(self) -> Iterator[tuple[tuple[int, ...], int]]:
        """Yield every stack that samples ended in, as indices into the frames, root first; and its samples."""
        paths: list[tuple[int, ...]] = []
        for node in self.nodes:
            path = (*(paths[node.parent] if node.parent >= 0 else ()), node.frame)
            paths.append(path)
            if node.own:
                yield path, node.own
