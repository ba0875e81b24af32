"""The tables of a segment, each read on first use; frames of several segments under one numbering."""

from __future__ import annotations

import dataclasses
import functools
import pathlib
from collections.abc import Iterable, Iterator

import numpy as np
import numpy.typing as npt

from overnight import errors
from overnight.model.flame import FrameKind
from overnight.queries import key_index
from overnight.store import parquet, process_reader, process_tables, segments, tree

Integers = npt.NDArray[np.int64]
TASK = ("pid", "tid", "thread", "process", "unit")


def function_label(name: str, module: str) -> str:
    """Distinguish unknown functions of different binaries.

    >>> function_label("[unknown]", "/usr/bin/nginx"), function_label("main", "/usr/bin/nginx")
    ('[unknown] in /usr/bin/nginx', 'main')
    """
    return f"[unknown] in {module}" if name == "[unknown]" and module not in ("", name) else name


def number_functions(frames: Iterable[tuple[str, str, int]]) -> tuple[list[str], Integers]:
    """Return the labels of functions, and the number of each frame's label; '' is that of a process."""
    numbers: dict[str, int] = {}
    labels = (
        "" if kind == FrameKind.PROCESS else function_label(name, module)
        for name, module, kind in frames
    )
    of_frame = [numbers.setdefault(label, len(numbers)) for label in labels]
    return list(numbers), np.array(of_frame, np.int64)


@dataclasses.dataclass(frozen=True)
class Names:
    """The tables that a segment's rows refer to. Most queries need few of them."""

    meta: segments.Meta
    path: pathlib.Path

    @functools.cached_property
    def _nodes(self) -> parquet.Columns:
        table = parquet.read(self.path / "nodes.parquet", ("frame", "up", "size", "flags"))
        # Every use of the tree relies on this; loops would not end without it.
        if tree.is_torn(table["up"], table["size"]):
            raise errors.DamagedFileError(
                str(self.path / "nodes.parquet"), 0, "its stacks do not form a tree"
            )
        return table

    @functools.cached_property
    def _frames(self) -> parquet.Columns:
        # The key compares frames without Python: 3 ms a segment (measured, 11,000 frames).
        columns = ("name", "module", "kind", "hash(name, module, kind) AS key")
        table = parquet.read(self.path / "frames.parquet", columns)
        last = int(self.frame.max(initial=0))
        if last >= max(1, len(table["name"])):
            raise errors.DamagedFileError(
                str(self.path / "frames.parquet"), 0, f"function {last} is missing"
            )
        return table

    @property
    def frame(self) -> npt.NDArray[np.uint32]:
        return self._nodes["frame"]

    @property
    def up(self) -> npt.NDArray[np.uint32]:
        """Distance back to each node's parent; 0: none."""
        return self._nodes["up"]

    @property
    def size(self) -> npt.NDArray[np.uint32]:
        """Number of nodes in each subtree."""
        return self._nodes["size"]

    @functools.cached_property
    def end(self) -> npt.NDArray[np.int64]:
        """End of each node's subtree."""
        end: npt.NDArray[np.int64] = np.arange(len(self.size)) + self.size
        return end

    def mark_below(self, nodes: npt.NDArray[np.integer]) -> npt.NDArray[np.bool_]:
        """Mark these nodes and all below them: each subtree is a slice."""
        edges = np.zeros(len(self.frame) + 1, np.int64)
        np.add.at(edges, nodes, 1)
        np.add.at(edges, self.end[nodes], -1)
        marked: npt.NDArray[np.bool_] = np.cumsum(edges[:-1]) > 0
        return marked

    @functools.cached_property
    def flags(self) -> npt.NDArray[np.uint8]:
        """Flags of store.tree; heatmaps need no other column."""
        if "_nodes" in self.__dict__:
            return self._nodes["flags"]
        return parquet.read(self.path / "nodes.parquet", ("flags",))["flags"]

    @functools.cached_property
    def path_key(self) -> npt.NDArray[np.uint64]:
        """64-bit hash of each node's path, the same in all segments that this process reads."""
        parent = np.arange(len(self.up)) - self.up
        return tree.path_keys(self.frame_key[self.frame], parent, self.size)

    @functools.cached_property
    def own(self) -> npt.NDArray[np.int64]:
        """Samples of the segment that end in each node."""
        return parquet.read(self.path / "nodes.parquet", ("own",))["own"].astype(np.int64)

    @functools.cached_property
    def outermost(self) -> npt.NDArray[np.bool_]:
        """Mark nodes without an ancestor of the same frame."""
        return tree.outermost(self.frame, self.size)

    @functools.cached_property
    def owners(self) -> process_reader.Tables | None:
        """The processes behind the tasks; None: an older segment, or a capture of another tool."""
        present = all((self.path / name).is_file() for name in process_tables.FILES)
        return process_reader.read(self.path) if present else None

    @property
    def frame_name(self) -> npt.NDArray[np.object_]:
        """Functions, then processes."""
        return self._frames["name"]

    @property
    def frame_key(self) -> npt.NDArray[np.uint64]:
        """64-bit hash of name, module and kind, the same in all segments that this process reads."""
        return self._frames["key"]

    @property
    def frame_kind(self) -> npt.NDArray[np.uint8]:
        return self._frames["kind"]

    def frames(self, rows: npt.NDArray[np.int64] | slice) -> Iterator[tuple[str, str, int]]:
        columns = (self._frames[column][rows].tolist() for column in ("name", "module", "kind"))
        return zip(*columns, strict=True)


class Frames:
    """Frames of several segments under one numbering, compared by their key."""

    def __init__(self) -> None:
        self._keys = np.zeros(0, np.uint64)
        self._fresh: list[tuple[Names, npt.NDArray[np.int64]]] = []

    def number(self, names: Names, frame: npt.NDArray[np.integer]) -> npt.NDArray[np.int64]:
        """Return the common numbers of a segment's frames."""
        used = np.zeros(len(names.frame_key), bool)
        used[frame] = True
        distinct = np.flatnonzero(used)
        keys = names.frame_key[distinct]
        number = key_index.find(keys, self._keys)
        fresh = number < 0
        number[fresh] = np.arange(len(self._keys), len(self._keys) + int(fresh.sum()))
        self._keys = np.concatenate([self._keys, keys[fresh]])
        self._fresh.append((names, distinct[fresh]))
        numbers = np.zeros(len(used), np.int64)
        numbers[distinct] = number
        common: npt.NDArray[np.int64] = numbers[frame]
        return common

    def columns(self) -> tuple[list[str], list[str], list[int]]:
        """Return name, module and kind of each frame, by number."""
        rows = [row for names, fresh in self._fresh for row in names.frames(fresh)]
        return [row[0] for row in rows], [row[1] for row in rows], [row[2] for row in rows]


class Tables:
    """Stacks, frames and tasks of several segments under one numbering."""

    def __init__(self, *, with_process: bool = False) -> None:
        self.with_process = with_process  # as the first frame of each stack
        self.frames = Frames()
        self.stacks: dict[int, int] = {}
        self.paths: list[Integers] = []
        self.tasks: dict[tuple[int, int, str, str, str], int] = {}

    def number_stacks(self, names: Names, nodes: Integers) -> Integers:
        """Return the common numbers of a segment's nodes."""
        distinct, inverse = np.unique(nodes, return_inverse=True)
        keys = names.path_key[distinct].tolist()
        fresh = [i for i, key in enumerate(keys) if key not in self.stacks]
        self.stacks |= {keys[i]: len(self.paths) + n for n, i in enumerate(fresh)}
        self.paths += self._read_paths(names, distinct[fresh])
        return np.array([self.stacks[key] for key in keys], np.int64)[inverse]

    def number_tasks(self, rows: Iterable[tuple[int, int, str, str, str]]) -> Integers:
        """Return the common numbers of tasks, given as rows of TASK."""
        return np.array([self.tasks.setdefault(row, len(self.tasks)) for row in rows], np.int64)

    def number_rows(self, names: Names, task: npt.NDArray[np.integer]) -> Integers:
        """Return the common numbers of the tasks that a segment's samples refer to."""
        file = names.path / "tasks.parquet"
        columns = parquet.read(file, TASK)
        number = self.number_tasks(zip(*(columns[name].tolist() for name in TASK), strict=True))
        if len(task) and int(task.max()) >= len(number):
            raise errors.DamagedFileError(str(file), 0, "tasks are missing")
        return number[task] if len(number) else np.zeros(0, np.int64)

    def _read_paths(self, names: Names, nodes: Integers) -> list[Integers]:
        """Return the frames from the process, or below it, down to each node."""
        if not len(nodes):
            return []
        columns, at, alive = [], nodes.copy(), np.ones(len(nodes), bool)
        while alive.any():
            up = names.up[at]
            shown = alive & ((up > 0) | self.with_process)
            columns.append(np.where(shown, names.frame[at].astype(np.int64), -1))
            alive, at = alive & (up > 0), at - up
        table = np.stack(columns[::-1], axis=1)
        used = table >= 0
        flat = self.frames.number(names, table[used])
        return np.split(flat, np.cumsum(used.sum(axis=1))[:-1])
