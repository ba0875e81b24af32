"""Samples counted by what their core did, over any cells: seconds and cores, tasks, nodes."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np

from overnight.store import capture, tree

if TYPE_CHECKING:
    import numpy.typing as npt

BUSY, KERNEL, SOFTIRQ, KERNEL_SOFTIRQ, IDLE = range(5)
MODES = 5
# What of the modes counts as busy, as in the kernel, as in a softirq, as idle.
PLANES = np.array([[1, 0, 0, 0], [1, 1, 0, 0], [1, 0, 1, 0], [1, 1, 1, 0], [0, 0, 0, 1]], np.int64)
# More cells than a segment of 1,000 cores has: then one plane at a time, for less memory.
MAX_AT_ONCE = 1 << 18


@dataclasses.dataclass(frozen=True)
class Counts:
    """Samples a cell."""

    busy: npt.NDArray[np.int64]
    kernel: npt.NDArray[np.int64]  # of the busy ones
    softirq: npt.NDArray[np.int64]  # of the busy ones
    idle: npt.NDArray[np.int64]


class Counted:
    """The samples of a capture, ready to be counted.

    Those of its first event alone: samples of different events are never added up.
    """

    def __init__(
        self, captured: capture.Capture, flags: npt.NDArray[np.uint8], node: npt.NDArray[np.uint32]
    ) -> None:
        """`node` is each sample's node in a tree, `flags` are those of the tree's nodes."""
        modes = np.where(flags & tree.KERNEL, 1, 0) + np.where(flags & tree.SOFTIRQ, 2, 0)
        modes[(flags & tree.IDLE) > 0] = IDLE
        self._mode = modes.astype(np.uint8)[node]
        # One event, and each row one sample, is almost always so, and counted at half the cost.
        self._weight = None
        if (captured.event != 0).any() or (captured.count != 1).any():
            self._weight = np.where(captured.event == 0, captured.count, 0).astype(np.float64)

    def total(self, cell: npt.NDArray[np.integer], cells: int) -> npt.NDArray[np.int64]:
        """All samples of each cell, whatever the core did."""
        return np.bincount(cell, self._weight, cells).astype(np.int64)

    def by_mode(self, cell: npt.NDArray[np.integer], cells: int) -> Counts:
        """The samples of each cell by what the core did."""
        if cells <= MAX_AT_ONCE:
            spread = np.multiply(cell, MODES, dtype=np.int64)
            spread += self._mode
            table = self.total(spread, cells * MODES).reshape(cells, MODES)
            return Counts(*(table @ PLANES).T)
        return Counts(*(self._plane(cell, cells, PLANES[:, i] > 0) for i in range(4)))

    def _plane(
        self, cell: npt.NDArray[np.integer], cells: int, modes: npt.NDArray[np.bool_]
    ) -> npt.NDArray[np.int64]:
        rows = modes[self._mode]
        weight = None if self._weight is None else self._weight[rows]
        return np.bincount(cell[rows], weight, cells).astype(np.int64)
