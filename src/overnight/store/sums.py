"""Counts samples by mode (busy, kernel, softirq, idle) in any cells: seconds and cores, tasks, nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from overnight.store import capture, segments, tree

if TYPE_CHECKING:
    import numpy.typing as npt

# A sample is in user mode, the kernel, a softirq, a softirq in the kernel, or idle. Each row says in which of
# segments.MODES it counts.
PLANES = np.array([[1, 0, 0, 0], [1, 1, 0, 0], [1, 0, 1, 0], [1, 1, 1, 0], [0, 0, 0, 1]], np.int64)
IDLE = 4
# More cells than a segment of 1,000 cores has: then one plane at a time, for less memory.
MAX_AT_ONCE = 1 << 18


class Counter:
    """Counts the samples of a capture's first event: samples of different events are never added up."""

    def __init__(
        self, captured: capture.Capture, flags: npt.NDArray[np.uint8], node: npt.NDArray[np.uint32]
    ) -> None:
        """`node` is each sample's node in a tree, `flags` are the flags of the tree's nodes."""
        modes = np.where(flags & tree.KERNEL, 1, 0) + np.where(flags & tree.SOFTIRQ, 2, 0)
        modes[(flags & tree.IDLE) > 0] = IDLE
        self._mode = modes.astype(np.uint8)[node]
        # Most captures have one event, and one sample per row: then counting costs half.
        self._weight = None
        if (captured.event != 0).any() or (captured.count != 1).any():
            self._weight = np.where(captured.event == 0, captured.count, 0).astype(np.float64)

    def total(self, cell: npt.NDArray[np.integer], cells: int) -> npt.NDArray[np.int64]:
        return np.bincount(cell, self._weight, cells).astype(np.int64)

    def by_mode(
        self, cell: npt.NDArray[np.integer], cells: int
    ) -> dict[str, npt.NDArray[np.int64]]:
        """Return the samples of each cell by mode; kernel and softirq are parts of busy."""
        if cells <= MAX_AT_ONCE:
            spread = np.multiply(cell, len(PLANES), dtype=np.int64)
            spread += self._mode
            table = self.total(spread, cells * len(PLANES)).reshape(cells, len(PLANES))
            return dict(zip(segments.MODES, (table @ PLANES).T, strict=True))
        planes = []
        for counted in PLANES.T > 0:
            rows = counted[self._mode]
            weight = None if self._weight is None else self._weight[rows]
            planes.append(np.bincount(cell[rows], weight, cells).astype(np.int64))
        return dict(zip(segments.MODES, planes, strict=True))
