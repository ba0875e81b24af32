"""Reads the ring, also during writing: everything up to the last reading."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import pathlib
from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING

from overnight import errors
from overnight.model.event import Event
from overnight.store.ring import (
    block_encoder,
    blocks,
    columns,
    frames,
    journal,
    layout,
    open_block,
    retention,
)

if TYPE_CHECKING:
    from overnight.model.pins import Pin

MAX_PROBLEMS = 100
MONTH_US = 31 * 86_400_000_000
EVER = 1 << 62
EVENT_FIELDS = {field.name: field for field in dataclasses.fields(Event)}


@dataclasses.dataclass(frozen=True, order=True)
class Gap:
    """Time in which nothing was recorded, and why; wall clock."""

    begin_us: int
    end_us: int
    why: str


@dataclasses.dataclass(frozen=True)
class Change:
    """A fact that changed; None: it did not exist."""

    time_us: int
    key: str
    before: Mapping[str, object] | None
    after: Mapping[str, object] | None


@dataclasses.dataclass(frozen=True)
class Facts:
    """The facts at the begin of a window (None: unknown), and the changes within."""

    state: Mapping[str, Mapping[str, object]] | None
    changes: tuple[Change, ...]


@dataclasses.dataclass(frozen=True)
class Stretch:
    """Readings of one boot in one block; `uptime_us` is the monotonic clock at the first."""

    boot: str
    begin_us: int
    end_us: int
    uptime_us: int


class Reader:
    """Reads the rings under HOME. Damaged parts are skipped and listed in `problems`.

    With `within` it reads readings, events and gaps of [begin, end) alone, as if nothing else had been recorded.
    """

    def __init__(self, home: pathlib.Path, within: tuple[int, int] = (0, EVER)) -> None:
        self.home = home
        self.problems: list[str] = []
        self._within = within

    def _clip(self, begin_us: int, end_us: int) -> tuple[int, int]:
        return max(begin_us, self._within[0]), min(end_us, self._within[1])

    def hosts(self) -> tuple[str, ...]:
        return layout.hosts(self.home)

    def extent(self, host: str) -> tuple[int, int] | None:
        """Return the times of a host's first and last reading, wall clock, µs; None: no readings."""
        folder = layout.host_folder(self.home, host)
        named = sorted(
            name.stamp_us
            for kind in (layout.RING, layout.OPEN)
            for name, _ in layout.files(folder, kind)
        )
        # The outermost files hold them, but one may have been cut off before its first block.
        spans = map(retention.span_us, named)
        first = next(filter(None, (list(self._blocks(host, *span)) for span in spans)), None)
        last = next(filter(None, (list(self._blocks(host, at, EVER)) for at in named[::-1])), None)
        if first is None or last is None:
            return None
        begin, end = self._clip(
            min(block.head.begin_us for block in first), max(block.head.end_us for block in last)
        )
        return (begin, end) if begin <= end else None

    def stretches(self, host: str, begin_us: int = 0) -> tuple[Stretch, ...]:
        """Return what is stored of a host since then, one stretch per block, by time; only heads are read."""
        heads = [block.head for block in self._blocks(host, *self._clip(begin_us, EVER))]
        heads.sort(key=lambda head: (head.begin_us, head.boot))
        return tuple(
            Stretch(head.boot, head.begin_us, head.end_us, head.begin_mono_us) for head in heads
        )

    def signals(self, host: str, begin_us: int, end_us: int) -> dict[str, tuple[str, ...]]:
        """Return the signals with numbers in a window, and their columns."""
        begin_us, end_us = self._clip(begin_us, end_us)
        signals: dict[str, dict[str, None]] = {}
        for block in self._blocks(host, begin_us, end_us):
            with self._noting(block):
                for entry in frames.tables_of(block):
                    names = dict.fromkeys(map(str, entry["columns"]))
                    signals.setdefault(str(entry["signal"]), {}).update(names)
        return {signal: tuple(names) for signal, names in sorted(signals.items())}

    def numbers(
        self,
        host: str,
        signal: str,
        begin_us: int,
        end_us: int,
        keys: Collection[str] | None = None,
        columns: Collection[str] | None = None,
    ) -> Iterator[frames.Frame]:
        """Yield the readings in [begin, end), one frame per block, by time; cost grows with the window."""
        window = self._clip(begin_us, end_us)
        for block in self._blocks(host, *window):
            cut: list[frames.Frame] = []
            with self._noting(block):
                clocks = frames.clocks_of(block)
                cut = frames.frames_of(block, clocks, signal, window, keys, columns)
            yield from cut

    def times(
        self, host: str, begin_us: int, end_us: int, signal: str | None = None
    ) -> tuple[int, ...]:
        """Return when a signal, or any if None, was read in [begin, end); wall clock, in order."""
        begin_us, end_us = self._clip(begin_us, end_us)
        found: set[int] = set()
        for block in self._blocks(host, begin_us, end_us):
            with self._noting(block):
                found.update(at for at in frames.times_of(block, signal) if begin_us <= at < end_us)
        return tuple(sorted(found))

    def facts(self, host: str, signal: str, begin_us: int, end_us: int | None = None) -> Facts:
        """Return the facts at `begin_us`, and the changes until `end_us`."""
        until = begin_us + 1 if end_us is None else end_us
        state: dict[str, Mapping[str, object]] | None = None
        at_begin: dict[str, Mapping[str, object]] | None = None
        changes: list[Change] = []
        for block in self._blocks(host, self._facts_begin(host, begin_us), until):
            with self._noting(block):
                for time_us, _, name, full, changed, gone in _facts_of(block):
                    if name != signal or time_us >= until:
                        continue
                    after: dict[str, Mapping[str, object]] = {} if full else dict(state or {})
                    after.update(changed)
                    for key in gone:
                        after.pop(key, None)
                    if time_us > begin_us and state is not None:
                        changes.extend(
                            Change(time_us, key, state.get(key), after.get(key))
                            for key in {**state, **after}
                            if state.get(key) != after.get(key)
                        )
                    state = after if full or state is not None else None
                    if time_us <= begin_us:
                        at_begin = state
        return Facts(at_begin, tuple(changes))

    def recorded_facts(
        self, host: str, begin_us: int, end_us: int
    ) -> Iterator[tuple[str, open_block.Changes]]:
        """Yield all facts recorded in [begin, end) with their boot, unchanged, to copy them."""
        for block in self._blocks(host, begin_us, end_us):
            recorded: list[tuple[str, open_block.Changes]] = []
            with self._noting(block):
                boot = str(block.directory().get("boot", ""))
                recorded = [(boot, f) for f in _facts_of(block) if begin_us <= f.wall_us < end_us]
            yield from recorded

    def events(
        self,
        begin_us: int,
        end_us: int,
        hosts: Collection[str] | None = None,
        kinds: Collection[str] | None = None,
    ) -> tuple[Event, ...]:
        """Return the events that overlap [begin, end), by time. A kind that ends with a dot is a prefix."""
        begin_us, end_us = self._clip(begin_us, end_us)
        by_id: dict[tuple[str, str], Event] = {}
        first, last = layout.month_of(begin_us - MONTH_US), layout.month_of(end_us)
        for host in self.hosts():
            if hosts is not None and host not in hosts:
                continue
            for path in sorted(layout.host_folder(self.home, host).glob("events-*.jsonl")):
                if not first <= path.stem.removeprefix("events-")[:6] <= last:
                    continue
                for number, entry in journal.read_lines(path):
                    event = parse_event(entry)
                    if event is None:
                        self._note(f"{path}: line {number} is not an event")
                    else:
                        by_id[host, event.id or f"{path.name}:{number}"] = event
        events = [
            event
            for event in by_id.values()
            if event.overlaps(begin_us, end_us) and (kinds is None or any(map(event.is_of, kinds)))
        ]
        return tuple(sorted(events, key=lambda event: (event.time_us, event.id)))

    def gaps(self, host: str, begin_us: int = 0, end_us: int = EVER) -> tuple[Gap, ...]:
        """Return the gaps that overlap [begin, end)."""
        begin_us, end_us = self._clip(begin_us, end_us)
        gaps = set()
        path = layout.host_folder(self.home, host) / "gaps.jsonl"
        for number, entry in journal.read_lines(path):
            try:
                begin, end, why = (
                    str((entry or {})[name]) for name in ("begin_us", "end_us", "why")
                )
                gap = Gap(int(begin), int(end), why)
            except (KeyError, ValueError):
                self._note(f"{path}: line {number} is not a gap")
                continue
            if gap.begin_us < end_us and max(gap.begin_us, gap.end_us) >= begin_us:
                gaps.add(gap)
        return tuple(sorted(gaps))

    def pins(self, host: str) -> tuple[Pin, ...]:
        return layout.ring_pins(self.home, host).pins()

    def _facts_begin(self, host: str, at_us: int) -> int:
        """Return the begin of the last file until `at_us` that starts with all facts."""
        folder = layout.host_folder(self.home, host)
        for name, path in reversed(layout.files(folder, layout.RING)):
            if name.stamp_us <= at_us:
                with _opened(path) as descriptor:
                    head = descriptor >= 0 and blocks.read_head(
                        os.pread(descriptor, blocks.HEAD_BYTES, 0)
                    )
                if head and head.flags & blocks.BEGINS_FACTS:
                    return name.stamp_us
        return min(at_us, 0)

    def _blocks(self, host: str, begin_us: int, end_us: int) -> Iterator[blocks.Block]:
        """Yield the blocks that overlap [begin, end), by the time they were opened."""
        folder = layout.host_folder(self.home, host)
        # Open blocks first: one that is packed in the meantime is then found among the finished.
        still_open = dict(self._open_blocks(folder, begin_us, end_us))
        for name, path in layout.files(folder, layout.RING):
            begin, end = retention.span_us(name.stamp_us)
            if begin >= end_us or end <= begin_us:
                continue
            with _opened(path) as descriptor:
                if descriptor < 0:
                    continue
                for block in blocks.blocks_of(path, descriptor):
                    if isinstance(block, blocks.Damage):
                        if not block.cut_off:
                            self._note(f"{path}: the data at byte {block.begin} {block.what}")
                        continue
                    still_open.pop((block.head.stamp_us, block.head.boot), None)
                    if block.head.begin_us < end_us and begin_us <= block.head.end_us:
                        yield block
        for _, block in sorted(still_open.items()):
            if block.head.begin_us < end_us and begin_us <= block.head.end_us:
                yield block

    def _open_blocks(
        self, folder: pathlib.Path, begin_us: int, end_us: int
    ) -> Iterator[tuple[tuple[int, str], blocks.Block]]:
        for name, path in layout.files(folder, layout.OPEN):
            begin, end = retention.span_us(name.stamp_us)
            if begin >= end_us or end <= begin_us:
                continue
            try:
                with path.open("rb") as file:
                    block = open_block.parse(file.read(layout.MAX_BYTES))
                if block.damage:
                    self._note(f"{path}: {block.damage}")
                if not block.tables and not block.facts:
                    continue
                data = block_encoder.pack_at_once(block, packed=False)
            except FileNotFoundError:
                continue
            except (OSError, columns.DamagedError, *columns.INVALID) as error:
                errors.raise_own(error)
                if path.exists() and path.stat().st_size:
                    self._note(f"{path}: {error}")
                continue
            head = blocks.read_head(data)
            assert head is not None, "it was just made"
            yield (head.stamp_us, head.boot), blocks.Block(head, path, -1, 0, data)

    @contextlib.contextmanager
    def _noting(self, block: blocks.Block) -> Iterator[None]:
        try:
            yield
        except (columns.DamagedError, OSError, *columns.INVALID) as error:
            errors.raise_own(error)
            self._note(f"{block.path}: the block at byte {block.offset} {error}")

    def _note(self, problem: str) -> None:
        if problem not in self.problems and len(self.problems) < MAX_PROBLEMS:
            self.problems.append(problem)


@contextlib.contextmanager
def _opened(path: pathlib.Path) -> Iterator[int]:
    """Open a file; -1 if it was removed in the meantime."""
    try:
        file = path.open("rb", buffering=0)
    except OSError as error:
        errors.raise_own(error)
        yield -1
        return
    with file:
        yield file.fileno()


def _facts_of(block: blocks.Block) -> Iterator[open_block.Changes]:
    directory = block.directory()
    if "facts" not in directory:
        return
    walls, monos = frames.clocks_of(block)
    try:
        for at, name, full, changed, gone in json.loads(block.chunk(directory["facts"])):
            facts = {key: dict(fact) for key, fact in changed.items()}
            what = (str(name), bool(full), facts, [str(key) for key in gone])
            yield open_block.Changes(walls[at], monos[at], *what)
    except columns.INVALID as error:
        raise columns.DamagedError(f"has invalid facts ({error})") from error


def _is_scalar(value: object) -> bool:
    return isinstance(value, str | float) or (isinstance(value, int) and -EVER < value < EVER)


def parse_event(entry: dict[str, object] | None) -> Event | None:
    """Parse an event; ignore fields that a later version added."""
    if entry is None:
        return None
    known = {name: value for name, value in entry.items() if name in EVENT_FIELDS}
    for name, value in known.items():
        wanted = {"int": int, "str": str}.get(str(EVENT_FIELDS[name].type), dict)
        scalars = value.values() if isinstance(value, dict) else (value,)
        if not isinstance(value, wanted) or not all(map(_is_scalar, scalars)):
            return None
    if not {"time_us", "kind"} <= known.keys():
        return None
    return Event(**known)  # type: ignore[arg-type]  # each was compared above
