"""Read the samples of a window that pass the filters.

The cost grows with the window, not with the night: whole segments answer from the sums written at
ingest, and of the two at the edges only the row groups that overlap are read.
"""

from __future__ import annotations

import dataclasses
import functools
import pathlib
import re
from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np
import numpy.typing as npt

from overnight import errors
from overnight.model.flame import FrameKind
from overnight.model.selection import Coverage, Selection, Window, match_event
from overnight.queries import segment_tables
from overnight.store import hours, parquet, segments, tree

CACHED_SEGMENTS = 64
CACHED_METAS = 4096  # five days of 2-minute segments, some 2 kB each


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
    """Reads a catalogue; caches the tables of the segments read last."""

    def __init__(self, catalogue: segments.Catalogue) -> None:
        self.catalogue = catalogue
        self.names: Callable[[segments.Segment], segment_tables.Names] = functools.lru_cache(
            CACHED_SEGMENTS
        )(lambda segment: segment_tables.Names(self.meta(segment), segment.path))
        self._metas: dict[pathlib.Path, segments.Meta] = {}
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
                todo="overnight record, or overnight import FILE; or choose another data home with --home DIR",
            )
        return chosen

    def extent(self, hosts: Iterable[str] = ()) -> Window:
        """Return the window from the first to the last moment stored."""
        stored = [each for host in self.hosts(hosts) for each in self.catalogue.segments(host)]
        if not stored:
            raise errors.CannotError(
                "no segment is complete yet",
                why="the recorder writes one every few minutes",
                todo="wait for the first one, or overnight import FILE",
            )
        return Window(min(s.begin_us for s in stored), max(s.end_us for s in stored))

    def touched(self, hosts: Iterable[str], window: Window) -> tuple[segments.Segment, ...]:
        """Return the segments of these hosts that overlap the window."""
        return tuple(
            segment
            for host in hosts
            for segment in self.catalogue.segments(host, window.begin_us, window.end_us)
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

    def read_ahead(self, touched: Iterable[segments.Segment]) -> None:
        """Prefetch the descriptions of many segments that were not read yet."""
        segments.read_ahead(
            (segment.path / "segment.json", 0, 0)
            for segment in touched
            if segment.path not in self._metas
        )

    def resolved(self, chosen: Selection, hosts: Iterable[str], window: Window) -> Selection:
        """Complete the event's name where only its first letters were given."""
        if isinstance(chosen.event, int):
            return chosen
        metas = [self.meta(segment) for segment in self.touched(hosts, window)]
        if not metas:
            return chosen
        names = (name for meta in metas for name in meta.events)
        return dataclasses.replace(chosen, event=match_event(chosen.event, names))

    def parts(self, hosts: Iterable[str], window: Window, chosen: Selection) -> Iterator[Part]:
        """Yield the window, one segment at a time."""
        for segment in self.touched(hosts, window):
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
        filtered = chosen.cores or chosen.by_task or chosen.by_node or chosen.idle
        for segment in self.touched(hosts, window):
            inside = window.begin_us <= segment.begin_us and segment.end_us <= window.end_us
            meta = self.meta(segment)
            if inside and not filtered and not event_of(meta, chosen):
                yield Sums(segment, self.names(segment), meta.samples - meta.idle, meta.idle)
            else:
                yield self._part(segment, window, chosen)

    def own(self, segment: segments.Segment, window: Window) -> npt.NDArray[np.int64]:
        """Return a segment's samples by node, idle ones included."""
        return _by_node(self.names(segment), self._counts(segment, window, Selection()))

    def _counts(
        self, segment: segments.Segment, window: Window, chosen: Selection
    ) -> parquet.Columns:
        """Return samples as `n` by `node`; without `node`, of all nodes in order."""
        whole = window.begin_us <= segment.begin_us and segment.end_us <= window.end_us
        event = event_of(self.meta(segment), chosen)
        if whole and not (chosen.cores or chosen.by_task or event):
            return {"n": self.names(segment).own}
        return self.rows(segment, "node, sum(count)::BIGINT AS n", window, chosen, "GROUP BY node")

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
            f"event = {event_of(self.meta(segment), chosen)}",
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
        samples: int = 0,
    ) -> Coverage:
        """Return how much of the window was recorded, without reading samples."""
        metas = [(segment, self.meta(segment)) for segment in self.touched(hosts, window)]
        return coverage_of_segments(hosts, window, metas, chosen, samples=samples)


def _by_node(names: segment_tables.Names, counts: parquet.Columns) -> npt.NDArray[np.int64]:
    if "node" not in counts:
        return counts["n"]
    own = np.zeros(len(names.frame), np.int64)
    own[counts["node"]] = counts["n"]
    return own


def matches(texts: npt.NDArray[np.object_], pattern: str) -> npt.NDArray[np.bool_]:
    """Mark the texts that match a regular expression; each distinct text is searched once."""
    search = re.compile(pattern).search
    answer: dict[str, bool] = {}
    out = np.empty(len(texts), bool)
    for i, text in enumerate(texts.tolist()):
        if text not in answer:
            answer[text] = search(text) is not None
        out[i] = answer[text]
    return out


def node_mask(names: segment_tables.Names, chosen: Selection) -> npt.NDArray[np.bool_]:
    """Mark the nodes that pass the filters on stacks."""
    mask = np.ones(len(names.frame), bool)
    if chosen.side:
        mask &= ((names.flags & tree.KERNEL) > 0) == (chosen.side == "kernel")
    if chosen.function:
        hit = matches(names.frame_name, chosen.function) & (names.frame_kind != FrameKind.PROCESS)
        # A node passes if it or an ancestor matches: every match passes its whole subtree, a slice.
        starts = np.flatnonzero(hit[names.frame])
        edges = np.zeros(len(names.frame) + 1, np.int64)
        np.add.at(edges, starts, 1)
        np.add.at(edges, starts + names.size[starts], -1)
        mask &= np.cumsum(edges[:-1]) > 0
    return mask


def event_of(meta: segments.Meta, chosen: Selection) -> int:
    """Return the number of the selected event in a segment; -1: not recorded there."""
    if isinstance(chosen.event, int):
        return chosen.event
    return meta.events.index(chosen.event) if chosen.event in meta.events else -1


def recorded_seconds(segment: segments.Segment, meta: segments.Meta, window: Window) -> float:
    """Return how much of the window a segment covers, its gaps excluded."""
    at, end = max(segment.begin_us, window.begin_us), min(segment.end_us, window.end_us)
    recorded = 0
    for begin, until, _ in sorted(meta.gaps):
        recorded += max(0, min(begin, end) - at)
        at = max(at, until)
    return (recorded + max(0, end - at)) / 1e6


def _lost(metas: list[tuple[segments.Segment, segments.Meta]], window: Window) -> tuple[int, bool]:
    """Return the samples lost in the window, and whether that is only an upper bound."""
    lost, bounded = 0, False
    for segment, meta in metas:
        if window.begin_us <= segment.begin_us and segment.end_us <= window.end_us:
            lost += meta.lost
            continue
        # Without times, a segment may have lost them at any moment.
        for begin, end, count in meta.losses or ((segment.begin_us, segment.end_us, meta.lost),):
            if begin < window.end_us and end > window.begin_us and count:
                lost += count
                bounded = bounded or begin < window.begin_us or end > window.end_us
    return lost, bounded


def coverage_of_parts(
    hosts: tuple[str, ...], window: Window, parts: Sequence[Part | Sums], chosen: Selection
) -> Coverage:
    return coverage_of_segments(
        hosts,
        window,
        [(part.segment, part.names.meta) for part in parts],
        chosen,
        samples=sum(part.samples for part in parts),
        idle=sum(part.idle for part in parts),
    )


def coverage_of_segments(
    hosts: tuple[str, ...],
    window: Window,
    metas: list[tuple[segments.Segment, segments.Meta]],
    chosen: Selection,
    *,
    samples: int,
    idle: int = 0,
) -> Coverage:
    seconds = core_seconds = capacity = 0.0
    gaps: dict[tuple[int, int, str], None] = {}
    notes: dict[str, None] = {}
    events: dict[str, None] = {}
    without = 0
    for segment, meta in metas:
        event = event_of(meta, chosen)
        if event < 0:
            without += 1
            continue
        known = {core for core in meta.cores if core >= 0}
        cores = len(known & set(chosen.cores) if chosen.cores else known)
        each = recorded_seconds(segment, meta, window)
        seconds += each
        core_seconds += each * cores
        capacity += each * cores * meta.frequency
        gaps.update((g, None) for g in meta.gaps if g[0] < window.end_us and g[1] > window.begin_us)
        notes.update(dict.fromkeys(meta.notes))
        events.update(dict.fromkeys(meta.events[event : event + 1]))
    if without:
        notes[f"{chosen.event} was not recorded in {without} of {len(metas)} segments"] = None
    lost, bounded = _lost(metas, window)
    if bounded:
        notes[
            f"at most {lost:,} samples were lost in this window: the exact time of some is unknown"
        ] = None
    if len(events) > 1:
        notes[f"samples of different perf events are added up: {', '.join(events)}"] = None
    return Coverage(
        hosts=hosts,
        window=window,
        recorded_seconds=round(seconds, 6),
        core_seconds=core_seconds,
        capacity=capacity,
        samples=samples,
        idle=idle,
        lost=lost,
        segments=len(metas),
        gaps=tuple(gaps),
        notes=tuple(notes),
    )
