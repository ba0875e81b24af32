"""Reads the ring, also while it is written: everything up to the last look."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import pathlib
from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

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

__all__ = ["Change", "Facts", "Gap", "Reader", "Stretch", "Told"]

MOST_PROBLEMS = 100
MONTH_US = 31 * 86_400_000_000
EVER = 1 << 62
EVENT_FIELDS = {field.name: field for field in dataclasses.fields(Event)}


@dataclasses.dataclass(frozen=True)
class Gap:
    """Time of which nothing was recorded, and why; wall clock."""

    begin_us: int
    end_us: int
    why: str


@dataclasses.dataclass(frozen=True)
class Change:
    """A fact that became another; None: it was not there before, or is gone."""

    time_us: int
    key: str
    before: Mapping[str, object] | None
    after: Mapping[str, object] | None


@dataclasses.dataclass(frozen=True)
class Facts:
    """What was so at the begin of a window, and what changed within. `state` None: not known."""

    state: Mapping[str, Mapping[str, object]] | None
    changes: tuple[Change, ...]


@dataclasses.dataclass(frozen=True)
class Stretch:
    """Looks of one boot that are kept together; `uptime_us` is the monotonic clock at the first."""

    boot: str
    begin_us: int
    end_us: int
    uptime_us: int


class Told(NamedTuple):
    """Facts as one look told them; `full`: what is not named is gone."""

    monotonic_ns: int
    wall_us: int
    boot: str
    signal: str
    full: bool
    changed: dict[str, dict[str, object]]
    gone: list[str]


class Reader:
    """Questions to the rings under HOME. What is damaged is left out, and told in `problems`."""

    def __init__(self, home: pathlib.Path) -> None:
        self.home = home
        self.problems: list[str] = []

    def hosts(self) -> tuple[str, ...]:
        """Every host that has a ring here."""
        return layout.hosts(self.home)

    def extent(self, host: str) -> tuple[int, int] | None:
        """First and last look of a host, wall clock, µs; None where there is none."""
        folder = layout.host_folder(self.home, host)
        named = sorted(
            name.stamp_us
            for kind in (layout.RING, layout.OPEN)
            for name, _ in layout.files(folder, kind)
        )
        # The outermost files hold it, but one may have been cut off before its first block.
        begin = end = None
        for stamp in named:
            if heads := [block.head for block in self._blocks(host, *retention.span_us(stamp))]:
                begin = min(head.begin_us for head in heads)
                break
        for stamp in reversed(named):
            if heads := [block.head for block in self._blocks(host, stamp, EVER)]:
                end = max(head.end_us for head in heads)
                break
        return None if begin is None or end is None else (begin, end)

    def stretches(self, host: str) -> tuple[Stretch, ...]:
        """What is kept of a host, a stretch a block, by time; only heads are read."""
        return tuple(
            Stretch(head.boot, head.begin_us, head.end_us, head.begin_mono_us)
            for head in sorted(
                (block.head for block in self._blocks(host, 0, EVER)),
                key=lambda head: (head.begin_us, head.boot),
            )
        )

    def signals(self, host: str, begin_us: int, end_us: int) -> dict[str, tuple[str, ...]]:
        """The signals of numbers in a window, and the columns of each."""
        found: dict[str, dict[str, None]] = {}
        for block in self._blocks(host, begin_us, end_us):
            with self._noting(block):
                for entry in block.directory()["tables"]:
                    found.setdefault(str(entry["signal"]), {}).update(
                        dict.fromkeys(map(str, entry["columns"]))
                    )
        return {signal: tuple(names) for signal, names in sorted(found.items())}

    def numbers(
        self,
        host: str,
        signal: str,
        begin_us: int,
        end_us: int,
        keys: Collection[str] | None = None,
        columns: Collection[str] | None = None,
    ) -> Iterator[frames.Frame]:
        """The looks in [begin, end), a frame a block, by time; costs as much as the window is long."""
        window = (begin_us, end_us)
        for block in self._blocks(host, begin_us, end_us):
            made: list[frames.Frame] = []
            with self._noting(block):
                clocks = frames.clocks_of(block)
                made = frames.frames_of(block, clocks, signal, window, keys, columns)
            yield from made

    def facts(self, host: str, signal: str, begin_us: int, end_us: int | None = None) -> Facts:
        """What was so at `begin_us`, and what changed until `end_us`."""
        until = begin_us + 1 if end_us is None else end_us
        state: dict[str, Mapping[str, object]] | None = None
        at_begin: dict[str, Mapping[str, object]] | None = None
        changes: list[Change] = []
        for block in self._blocks(host, self._facts_begin(host, begin_us), until):
            with self._noting(block):
                for time_us, full, changed, gone in _facts_of(block, signal):
                    if time_us >= until:
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

    def facts_told(self, host: str, begin_us: int, end_us: int) -> Iterator[Told]:
        """What was told of any fact in [begin, end), as it was: to write it down elsewhere."""
        for block in self._blocks(host, begin_us, end_us):
            made: list[Told] = []
            with self._noting(block):
                boot = str(block.directory().get("boot", ""))
                made = [
                    Told(mono, wall, boot, signal, full, changed, gone)
                    for wall, mono, signal, full, changed, gone in _all_facts_of(block)
                    if begin_us <= wall < end_us
                ]
            yield from made

    def events(
        self,
        begin_us: int,
        end_us: int,
        hosts: Collection[str] | None = None,
        kinds: Collection[str] | None = None,
    ) -> tuple[Event, ...]:
        """Events that touch [begin, end), by time. A kind that ends with a dot stands for all below it."""
        found: list[Event] = []
        first, last = layout.month_of(begin_us - MONTH_US), layout.month_of(end_us)
        for host in self.hosts():
            if hosts is not None and host not in hosts:
                continue
            told: dict[str, Event] = {}
            for path in sorted(layout.host_folder(self.home, host).glob("events-*.jsonl")):
                if not first <= path.stem.removeprefix("events-") <= last:
                    continue
                for number, entry in journal.read_lines(path):
                    one = _event(entry)
                    if one is None:
                        self._note(f"{path}: line {number} is no event")
                    else:
                        told[one.id or f"{path.name}:{number}"] = one
            found.extend(told.values())
        return tuple(
            sorted(
                (
                    one
                    for one in found
                    if one.time_us < end_us
                    and max(one.until_us, one.time_us) >= begin_us
                    and _is_of(one.kind, kinds)
                ),
                key=lambda one: (one.time_us, one.id),
            )
        )

    def gaps(self, host: str, begin_us: int = 0, end_us: int = EVER) -> tuple[Gap, ...]:
        """When nothing was recorded, and why: what touches [begin, end)."""
        found = set()
        path = layout.host_folder(self.home, host) / "gaps.jsonl"
        for number, entry in journal.read_lines(path):
            try:
                said = entry or {}
                gap = Gap(int(str(said["begin_us"])), int(str(said["end_us"])), str(said["why"]))
            except (KeyError, ValueError):
                self._note(f"{path}: line {number} is no gap")
                continue
            if gap.begin_us < end_us and max(gap.begin_us, gap.end_us) >= begin_us:
                found.add(gap)
        return tuple(sorted(found, key=lambda gap: (gap.begin_us, gap.end_us, gap.why)))

    def pins(self, host: str) -> tuple[Pin, ...]:
        """The pinned windows of a host."""
        return layout.ring_pins(self.home, host).pins()

    def _facts_begin(self, host: str, at_us: int) -> int:
        """The begin of the last file that begins no later than `at_us` with all facts in it."""
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
        """The blocks that touch [begin, end), by the time they were begun."""
        folder = layout.host_folder(self.home, host)
        # Open blocks first: one that is packed meanwhile is then found among the finished.
        still_open = dict(self._open_blocks(folder, begin_us, end_us))
        for name, path in layout.files(folder, layout.RING):
            begin, end = retention.span_us(name.stamp_us)
            if begin >= end_us or end <= begin_us:
                continue
            with _opened(path) as descriptor:
                if descriptor < 0:
                    continue
                for found in blocks.blocks_of(path, descriptor):
                    if isinstance(found, blocks.Damage):
                        if found.what != "is cut off":
                            self._note(f"{path}: what stands at byte {found.begin} {found.what}")
                        continue
                    still_open.pop((found.head.stamp_us, found.head.boot), None)
                    if found.head.begin_us < end_us and begin_us <= found.head.end_us:
                        yield found
        for key in sorted(still_open):
            block = still_open[key]
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
                    made = open_block.parse(file.read(layout.MOST_BYTES))
            except FileNotFoundError:
                continue
            except (OSError, columns.DamagedError) as error:
                if path.exists() and path.stat().st_size:
                    self._note(f"{path}: {error}")
                continue
            if made.damage:
                self._note(f"{path}: {made.damage}")
            if not made.tables and not made.facts:
                continue
            data = block_encoder.pack_at_once(made, packed=False)
            head = blocks.read_head(data)
            assert head is not None, "it was just made"
            yield (head.stamp_us, head.boot), blocks.Block(head, path, -1, 0, data)

    @contextlib.contextmanager
    def _noting(self, block: blocks.Block) -> Iterator[None]:
        try:
            yield
        except (columns.DamagedError, OSError, KeyError, TypeError, ValueError) as error:
            self._note(f"{block.path}: the block at byte {block.offset} {error}")

    def _note(self, problem: str) -> None:
        if problem not in self.problems and len(self.problems) < MOST_PROBLEMS:
            self.problems.append(problem)


@contextlib.contextmanager
def _opened(path: pathlib.Path) -> Iterator[int]:
    """A descriptor; -1 for a file that was trimmed meanwhile."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        yield -1
        return
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _facts_of(
    block: blocks.Block, signal: str
) -> Iterator[tuple[int, bool, dict[str, dict[str, object]], list[str]]]:
    for wall, _, name, full, changed, gone in _all_facts_of(block):
        if name == signal:
            yield wall, full, changed, gone


def _all_facts_of(
    block: blocks.Block,
) -> Iterator[tuple[int, int, str, bool, dict[str, dict[str, object]], list[str]]]:
    said = block.directory()
    if "facts" not in said:
        return
    walls, monos = frames.clocks_of(block)
    try:
        for at, name, full, changed, gone in json.loads(block.chunk(said["facts"])):
            yield walls[at], 1000 * monos[at], str(name), bool(full), dict(changed), list(gone)
    except (ValueError, TypeError, IndexError, RecursionError) as error:
        raise columns.DamagedError(f"its facts make no sense ({error})") from error


def _is_of(kind: str, kinds: Collection[str] | None) -> bool:
    if kinds is None:
        return True
    return any(kind == one or (one.endswith(".") and kind.startswith(one)) for one in kinds)


def _event(entry: dict[str, object] | None) -> Event | None:
    """An event as it was told; what a later version adds is left out."""
    if entry is None:
        return None
    known = {name: value for name, value in entry.items() if name in EVENT_FIELDS}
    for name, value in known.items():
        wanted = {"int": int, "str": str}.get(str(EVENT_FIELDS[name].type), dict)
        if not isinstance(value, wanted):
            return None
    if "time_us" not in known or "kind" not in known:
        return None
    return Event(**known)  # type: ignore[arg-type]  # each was compared above
