"""Read the samples of a window that pass the filters.

The cost grows with the window, not with the night: whole segments answer from the sums written at
ingest, and of the two at the edges only the row groups that overlap are read.
"""

from __future__ import annotations

import dataclasses
import functools
import pathlib
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from overnight import errors
from overnight.model.flame import FrameKind
from overnight.model.selection import Coverage, Damage, Selection, Window
from overnight.queries import coverage as coverages
from overnight.queries import segment_tables
from overnight.store import hours, parquet, segments, tree

CACHED_SEGMENTS = 64
CACHED_METAS = 4096  # five days of 2-minute segments, some 2 kB each
STACKS = ("nodes.parquet", "frames.parquet")
TABLES = (*STACKS, "samples.parquet", "tasks.parquet")


@dataclasses.dataclass(frozen=True)
class Part:
    """Samples of one segment by node, filters applied, idle ones counted separately."""

    segment: segments.Segment
    names: segment_tables.Names
    own: npt.NDArray[np.int64]
    idle: int

    @property
    def samples(self) -> int:
        return int(self.own.sum())


@dataclasses.dataclass(frozen=True)
class Sums:
    """A segment that is entirely in the window and not filtered: the sums written at ingest suffice."""

    segment: segments.Segment
    names: segment_tables.Names
    samples: int
    idle: int


class Reader:
    """Reads a catalogue, each file compared with its checksum once. Damaged segments are only in the coverage."""

    def __init__(self, catalogue: segments.Catalogue) -> None:
        self.catalogue = catalogue
        self.names: Callable[[segments.Segment], segment_tables.Names] = functools.lru_cache(
            CACHED_SEGMENTS
        )(lambda segment: segment_tables.Names(self.meta(segment), segment.path))
        self._metas: dict[pathlib.Path, segments.Meta] = {}
        self._checked: dict[pathlib.Path, frozenset[str]] = {}
        self._damaged: dict[segments.Segment, tuple[str, segments.Meta | None]] = {}
        self._hours: dict[pathlib.Path, hours.Hour] = {}

    def hosts(self, wanted: Iterable[str] = ()) -> tuple[str, ...]:
        """Return the wanted hosts, or all; raise CannotError if one has no profiles."""
        known = self.catalogue.hosts()
        chosen = tuple(wanted) or known
        absent = sorted(set(chosen) - set(known))
        if absent or not known:
            raise errors.CannotError(
                f"no profiles of {', '.join(absent)}" if absent else "no profiles are stored here",
                why=f"hosts with profiles in {self.catalogue.home}: {', '.join(known) or 'none'}",
                todo="`overnight record`, or `overnight import FILE`; or choose another data home with --home DIR",
            )
        return chosen

    def extent(self, hosts: Iterable[str] = ()) -> Window:
        """Return the window from the first to the last moment stored."""
        stored = [each for host in self.hosts(hosts) for each in self.catalogue.segments(host)]
        if not stored:
            raise errors.CannotError(
                "no segment is complete yet",
                why="the recorder writes one every few minutes",
                todo="wait for the first one, or `overnight import FILE`",
            )
        return Window(min(s.begin_us for s in stored), max(s.end_us for s in stored))

    def touched(
        self, hosts: Iterable[str], window: Window, *files: str
    ) -> tuple[segments.Segment, ...]:
        """Return the segments that overlap the window and whose `files`, which will be read, are intact."""
        listed = self.listed(hosts, window)
        return tuple(segment for segment in listed if self.is_intact(segment, files))

    def listed(self, hosts: Iterable[str], window: Window) -> tuple[segments.Segment, ...]:
        """Return the segments that overlap the window, by name: no file is opened."""
        return tuple(
            segment
            for host in hosts
            for segment in self.catalogue.segments(host, window.begin_us, window.end_us)
        )

    def is_intact(self, segment: segments.Segment, files: Collection[str]) -> bool:
        """Return whether the segment and these files are as they were written; remember if not."""
        checked = self._checked.get(segment.path)
        if segment in self._damaged or (checked is not None and checked.issuperset(files)):
            return segment not in self._damaged
        meta = None
        try:
            meta = self.meta(segment)
            # The descriptions in hour files have no checksums.
            meta = meta if meta.files else segment.meta()
            why = segment.find_damage(meta, set(files).difference(checked or ()))
        except errors.OvernightError as error:
            why = error.what
        if why and not segment.path.is_dir():  # it was removed in the meantime
            return False
        if why:
            self._damaged[segment] = why, meta
        else:
            self._checked[segment.path] = (checked or frozenset()).union(files)
        return not why

    def damage(self, hosts: Collection[str], window: Window) -> tuple[Damage, ...]:
        """Return the segments of the window that were found to be damaged."""
        return tuple(
            segment.damage(why, meta, window)
            for segment, (why, meta) in self._damaged.items()
            if segment.host in hosts
            and segment.begin_us < window.end_us
            and segment.end_us > window.begin_us
        )

    def meta(self, segment: segments.Segment) -> segments.Meta:
        """Return a segment's description, cached: it never changes."""
        meta = self._metas.get(segment.path)
        if meta is None:
            if len(self._metas) >= CACHED_METAS:
                self._metas.clear()
            meta = self._metas[segment.path] = segment.meta()
        return meta

    def planes(
        self, touched: Sequence[segments.Segment], mode: str
    ) -> dict[pathlib.Path, hours.Plane]:
        """Return the sums by second of the segments whose hour has a file; cache their descriptions."""
        hours.read_ahead({hours.hour_file(segment) for segment in touched}, mode)
        planes: dict[pathlib.Path, hours.Plane] = {}
        read: dict[pathlib.Path, hours.Plane | None] = {}
        for segment in touched:
            file = hours.hour_file(segment)
            if file not in read:
                read[file] = hours.read(file, mode, self._hours.get(file))
            plane = read[file]
            entry = plane.hour.entries.get(segment.path.name) if plane else None
            if plane and entry:
                self._hours[file] = plane.hour
                planes[segment.path] = plane
                self._metas.setdefault(segment.path, entry.meta)
        return planes

    def read_ahead(self, listed: Iterable[segments.Segment], *files: str) -> None:
        """Prefetch the descriptions and these files of many segments that were not checked yet."""
        segments.read_ahead(
            (segment.path / name, 0, 0)
            for segment in listed
            if segment.path not in self._checked
            for name in ("segment.json", *files)
        )

    def metas(self, hosts: Iterable[str], window: Window, *files: str) -> coverages.Metas:
        """Return the segments of `touched` with their descriptions."""
        return {segment: self.meta(segment) for segment in self.touched(hosts, window, *files)}

    def resolved(
        self,
        chosen: Selection,
        hosts: Iterable[str],
        window: Window,
        compared: Mapping[segments.Segment, segments.Meta] = {},
    ) -> Selection:
        """Return the selection of one event of the window, and of the segments compared with it."""
        return coverages.resolve_event(chosen, {**compared, **self.metas(hosts, window)}, window)

    def parts(
        self, hosts: Iterable[str], window: Window, chosen: Selection, *files: str
    ) -> Iterator[Part]:
        """Yield the window, one segment at a time; `files` are checked, too."""
        for segment in self.touched(hosts, window):
            summed = self._is_summed(segment, window, chosen)
            if self.is_intact(segment, (*(STACKS if summed else TABLES), *files)):
                yield self._part(segment, window, chosen)

    def _part(self, segment: segments.Segment, window: Window, chosen: Selection) -> Part:
        names, counts = self.names(segment), self._counts(segment, window, chosen)
        # Of a hundred thousand nodes a short window has samples in a few thousand.
        flags = names.flags[counts["node"]] if "node" in counts else names.flags
        is_idle = (flags & tree.IDLE) > 0
        idle = int(counts["n"][is_idle].sum())
        if not chosen.idle:
            counts = {**counts, "n": np.where(is_idle, 0, counts["n"])}
        own = _by_node(names, counts)
        if chosen.by_node:
            own = np.where(node_mask(names, chosen), own, 0)
        return Part(segment, names, own, idle)

    def parts_or_sums(
        self, hosts: Iterable[str], window: Window, chosen: Selection
    ) -> Iterator[Part | Sums]:
        """Yield the window, one segment at a time; read tables only where sums do not suffice."""
        if chosen.by_node or chosen.idle:
            yield from self.parts(hosts, window, chosen)
            return
        for segment in self.touched(hosts, window):
            summed = self._is_summed(segment, window, chosen)
            if not self.is_intact(segment, ("frames.parquet",) if summed else TABLES):
                continue
            if summed:
                meta = self.meta(segment)
                yield Sums(segment, self.names(segment), meta.samples - meta.idle, meta.idle)
            else:
                yield self._part(segment, window, chosen)

    def own(
        self, segment: segments.Segment, window: Window, chosen: Selection
    ) -> npt.NDArray[np.int64]:
        """Return a segment's samples by node, idle ones included."""
        return _by_node(self.names(segment), self._counts(segment, window, chosen))

    def _counts(
        self, segment: segments.Segment, window: Window, chosen: Selection
    ) -> parquet.Columns:
        """Return samples as `n` by `node`; without `node`, of all nodes in order."""
        if self._is_summed(segment, window, chosen):
            return {"n": self.names(segment).own}
        return self.rows(segment, "node, sum(count)::BIGINT AS n", window, chosen, "GROUP BY node")

    def _is_summed(self, segment: segments.Segment, window: Window, chosen: Selection) -> bool:
        """Return whether the sums written at ingest answer: they count the first event."""
        whole = window.begin_us <= segment.begin_us and segment.end_us <= window.end_us
        other = chosen.cores or chosen.by_task or chosen.event_in(self.meta(segment).events)
        return whole and not other

    def rows(
        self,
        segment: segments.Segment,
        columns: str,
        window: Window,
        chosen: Selection = Selection(),
        group: str = "",
    ) -> parquet.Columns:
        """Query a segment's samples; filters on stacks and idle samples are the caller's."""
        file = segment.path / "samples.parquet"
        where = self.where(segment, window, chosen)
        rows = parquet.query(f"SELECT {columns} FROM {parquet.table(file)} WHERE {where} {group}")  # noqa: S608 - built from numbers
        if "node" in rows and len(rows["node"]):
            last = int(rows["node"].max())
            if last >= len(self.names(segment).frame):
                raise errors.DamagedFileError(str(file), 0, f"stack {last} is missing")
        return rows

    def where(self, segment: segments.Segment, window: Window, chosen: Selection) -> str:
        """Return the condition on a segment's samples; it is built from numbers only."""
        parts = [
            f"time_us >= {window.begin_us} AND time_us < {window.end_us}",
            f"event = {chosen.event_in(self.meta(segment).events)}",
        ]
        if chosen.cores:
            parts.append(f"cpu IN ({', '.join(str(int(core)) for core in chosen.cores)})")
        if chosen.by_task:
            texts = ("process", "thread", "unit")
            tasks = parquet.read(segment.path / "tasks.parquet", (*texts, "pid"))
            mask = np.ones(len(tasks["process"]), bool)
            for name in texts:
                if pattern := getattr(chosen, name):
                    mask &= matches(tasks[name], pattern)
            if chosen.pids:
                mask &= np.isin(tasks["pid"], chosen.pids)
            numbers = ", ".join(map(str, np.flatnonzero(mask).tolist()))
            parts.append(f"task IN ({numbers})" if numbers else "false")
        return " AND ".join(parts)

    def coverage(
        self,
        hosts: tuple[str, ...],
        window: Window,
        chosen: Selection = Selection(),
        metas: coverages.Metas | None = None,
        *,
        samples: int = 0,
        idle: int = 0,
    ) -> Coverage:
        """Return how much of the window was recorded; `metas`: the segments that were read, by default all."""
        metas = self.metas(hosts, window) if metas is None else metas
        damaged = self.damage(hosts, window)
        return coverages.measure(hosts, window, metas, chosen, damaged, samples=samples, idle=idle)

    def cover_parts(
        self,
        hosts: tuple[str, ...],
        window: Window,
        parts: Sequence[Part | Sums],
        chosen: Selection,
    ) -> Coverage:
        metas = {part.segment: part.names.meta for part in parts}
        samples, idle = sum(part.samples for part in parts), sum(part.idle for part in parts)
        return self.coverage(hosts, window, chosen, metas, samples=samples, idle=idle)


def _by_node(names: segment_tables.Names, counts: parquet.Columns) -> npt.NDArray[np.int64]:
    if "node" not in counts:
        return counts["n"]
    own = np.zeros(len(names.frame), np.int64)
    own[counts["node"]] = counts["n"]
    return own


def matches(texts: npt.NDArray[np.object_], pattern: str) -> npt.NDArray[np.bool_]:
    """Mark the texts that match a regular expression; each distinct text is searched once."""
    search = functools.cache(re.compile(pattern).search)
    return np.array([search(text) is not None for text in texts.tolist()], bool)


def passing_nodes(names: segment_tables.Names, chosen: Selection) -> npt.NDArray[np.bool_]:
    """Mark the nodes that pass the filters on stacks and idle samples."""
    mask = node_mask(names, chosen)
    return mask if chosen.idle else mask & ((names.flags & tree.IDLE) == 0)


def node_mask(names: segment_tables.Names, chosen: Selection) -> npt.NDArray[np.bool_]:
    """Mark the nodes that pass the filters on stacks."""
    mask = np.ones(len(names.frame), bool)
    if chosen.side:
        mask &= ((names.flags & tree.KERNEL) > 0) == (chosen.side == "kernel")
    if chosen.function:
        hit = matches(names.frame_name, chosen.function) & (names.frame_kind != FrameKind.PROCESS)
        # A node passes if it or an ancestor matches.
        mask &= names.mark_below(np.flatnonzero(hit[names.frame]))
    return mask
