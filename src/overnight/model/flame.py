"""Stacks and how often each was met in one window: what every flame graph is drawn from."""

from __future__ import annotations

import dataclasses

__all__ = ["KERNEL", "USER", "Folded", "FoldedStack", "Frame"]

USER, KERNEL = 0, 1


@dataclasses.dataclass(frozen=True)
class Frame:
    """A function, the binary it is in ('' where not known), and whether that is the kernel."""

    name: str
    module: str = ""
    kind: int = USER


@dataclasses.dataclass(frozen=True)
class FoldedStack:
    """One stack, root first, and its samples."""

    frames: tuple[Frame, ...]
    count: int


@dataclasses.dataclass(frozen=True)
class Folded:
    """The stacks of one window. Zero or empty is what nobody knows."""

    title: str
    host: str
    begin_ns: int  # since the epoch
    end_ns: int
    frequency: int  # samples a second on each core
    cores: tuple[int, ...]
    event: str
    stacks: tuple[FoldedStack, ...]
    lost: int = 0
    notes: tuple[str, ...] = ()

    @property
    def total(self) -> int:
        """All samples."""
        return sum(stack.count for stack in self.stacks)

    @property
    def nanoseconds(self) -> int:
        """CPU time that one sample stands for; 0 where samples do not stand for time."""
        clock = self.event.partition(":")[0] in {"cpu", "cpu-clock", "task-clock", "cycles"}
        return round(1e9 / self.frequency) if clock and self.frequency > 0 else 0

    def table(self) -> tuple[tuple[Frame, ...], tuple[tuple[int, ...], ...]]:
        """Every frame once, in the order first met, and each stack as indices into them."""
        numbers: dict[Frame, int] = {}
        stacks = tuple(
            tuple(numbers.setdefault(frame, len(numbers)) for frame in stack.frames)
            for stack in self.stacks
        )
        return tuple(numbers), stacks
