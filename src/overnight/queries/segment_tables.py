"""A segment's tables, each read when first asked for."""

from __future__ import annotations

import dataclasses
import functools
import pathlib

import numpy as np
import numpy.typing as npt

from overnight import errors
from overnight.store import parquet, segments, tree

__all__ = ["Names"]


@dataclasses.dataclass(frozen=True)
class Names:
    """What a segment's rows point into. Most questions need few of these tables."""

    meta: segments.Meta
    path: pathlib.Path

    @functools.cached_property
    def _nodes(self) -> parquet.Columns:
        found = parquet.read(self.path / "nodes.parquet", ("frame", "up", "size", "flags"))
        # All that is done with a tree relies on it, to the end of loops.
        if tree.is_torn(found["up"], found["size"]):
            raise errors.DamagedFileError(
                str(self.path / "nodes.parquet"), 0, "its stacks are no tree"
            )
        return found

    @functools.cached_property
    def _frames(self) -> parquet.Columns:
        # The key finds equal ones without Python's help: 3 ms a segment (measured, 11,000 frames).
        columns = ("name", "module", "kind", "hash(name, module, kind) AS key")
        found = parquet.read(self.path / "frames.parquet", columns)
        last = int(self.frame.max(initial=0))
        if last >= max(1, len(found["name"])):
            raise errors.DamagedFileError(
                str(self.path / "frames.parquet"), 0, f"it has no function {last}"
            )
        return found

    @property
    def frame(self) -> npt.NDArray[np.uint32]:
        """Each node's frame."""
        return self._nodes["frame"]

    @property
    def up(self) -> npt.NDArray[np.uint32]:
        """How far before it its parent stands; 0: it has none."""
        return self._nodes["up"]

    @property
    def size(self) -> npt.NDArray[np.uint32]:
        """Each node and all its descendants."""
        return self._nodes["size"]

    @functools.cached_property
    def end(self) -> npt.NDArray[np.int64]:
        """Where each node's descendants end."""
        end: npt.NDArray[np.int64] = np.arange(len(self.size)) + self.size
        return end

    @functools.cached_property
    def flags(self) -> npt.NDArray[np.uint8]:
        """What store.tree says of each node; heatmaps need nothing else."""
        if "_nodes" in self.__dict__:
            return self._nodes["flags"]
        return parquet.read(self.path / "nodes.parquet", ("flags",))["flags"]

    @functools.cached_property
    def hash(self) -> npt.NDArray[np.uint64]:
        """Each node's path, the same in all segments."""
        return parquet.read(self.path / "nodes.parquet", ("hash",))["hash"]

    @functools.cached_property
    def own(self) -> npt.NDArray[np.int64]:
        """Samples of the whole segment that end in each node."""
        return parquet.read(self.path / "nodes.parquet", ("own",))["own"].astype(np.int64)

    @functools.cached_property
    def outermost(self) -> npt.NDArray[np.bool_]:
        """Nodes that have no ancestor of the same frame."""
        return tree.outermost(self.frame, self.size)

    @property
    def frame_name(self) -> npt.NDArray[np.object_]:
        """Functions, and the processes behind them."""
        return self._frames["name"]

    @property
    def frame_module(self) -> npt.NDArray[np.object_]:
        """Where each is from."""
        return self._frames["module"]

    @property
    def frame_key(self) -> npt.NDArray[np.uint64]:
        """64 bits of name, module and kind, the same in all segments that this process reads."""
        return self._frames["key"]

    @property
    def frame_kind(self) -> npt.NDArray[np.uint8]:
        """User, kernel or process."""
        return self._frames["kind"]
