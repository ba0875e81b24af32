"""Copies a part of a ring: the windows in full, the history of a few signals, all facts.

Numbers go through the ring's own writer with their recorded times, so every query gets the same answer
from the copy.
"""

from __future__ import annotations

import dataclasses
import heapq
import itertools
import json
import pathlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from overnight.model import clock, files
from overnight.model.pins import EVER_NS
from overnight.model.times import HOUR_US, MINUTE_US
from overnight.store.ring import frames, layout, open_block, reader, writer

if TYPE_CHECKING:
    from overnight.model.event import Event
    from overnight.store.bundle import scrubber

EVER = 1 << 62
# Held in memory at once: ten minutes of every signal on 192 cores are about 100 MB.
FULL_US = 10 * MINUTE_US
HISTORY_US = 3 * HOUR_US
NO_LIMIT = 1 << 60

Span = tuple[int, int]


class Wanted(NamedTuple):
    """The part of a host's ring to copy; wall clock, µs."""

    windows: tuple[Span, ...]  # every signal
    history: Mapping[str, int]  # signals copied from that moment on, also outside of the windows


class Row(NamedTuple):
    wall_us: int
    mono_us: int
    signal: str
    columns: tuple[str, ...]
    keys: Mapping[str, Sequence[int]]


def merge_spans(spans: Iterable[Span]) -> tuple[Span, ...]:
    """Merge spans that touch, by time.

    >>> merge_spans([(5, 9), (0, 3), (3, 4)])
    ((0, 4), (5, 9))
    """
    merged: list[Span] = []
    for begin, end in sorted(spans):
        if merged and begin <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(end, merged[-1][1])
        else:
            merged.append((begin, end))
    return tuple(merged)


def copy_signals(
    source: reader.Reader,
    target: pathlib.Path,
    host: str,
    wanted: Wanted,
    masks: scrubber.Scrubber,
    progress: Callable[[float], None] = lambda _share: None,
) -> int:
    """Copy the wanted part of a host's ring; return the readings. Damage is in the source's `problems`."""
    out = _Out(target, host, masks)
    try:
        extent = source.extent(host)
        if extent is not None:
            first, last = extent[0], extent[1] + 1
            # The first and the last reading of all: the observed time of a host is evidence, too.
            edges = ((first, first + 1), (last - 1, last))
            wanted = wanted._replace(windows=merge_spans((*wanted.windows, *edges)))
            for begin, end, full in _chunks(first, last, wanted):
                numbers = [
                    frame
                    for name in source.signals(host, begin, end)
                    if full or wanted.history.get(name, EVER) <= begin
                    for frame in source.numbers(host, name, begin, end)
                ]
                out.write(numbers, list(source.recorded_facts(host, begin, end)))
                progress((end - first) / (last - first))
    finally:
        out.close()
    _copy_events(source, target, host, masks)
    return out.readings


def _chunks(first: int, last: int, wanted: Wanted) -> Iterator[tuple[int, int, bool]]:
    """Split [first, last) at the edges of windows and at the begin of each history."""
    edges = {first, last, *wanted.history.values(), *itertools.chain(*wanted.windows)}
    inside = sorted(edge for edge in edges if first <= edge <= last)
    for begin, end in itertools.pairwise(inside):
        full = any(b <= begin and end <= e for b, e in wanted.windows)
        step = FULL_US if full else HISTORY_US
        for at in range(begin, end, step):
            yield at, min(at + step, end), full


class _Out:
    """The ring being written, with one writer per boot."""

    def __init__(self, target: pathlib.Path, host: str, masks: scrubber.Scrubber) -> None:
        self.readings = 0
        self._target, self._host, self._masks = target, host, masks
        self._boot = ""
        self._writer: writer.Writer | None = None
        self._facts: dict[str, dict[str, dict[str, Any]]] = {}

    def write(
        self, numbers: list[frames.Frame], recorded: list[tuple[str, open_block.Changes]]
    ) -> None:
        """Write the readings and facts of one span, ordered by boot and clock."""
        begins = sorted(
            [(frame.wall_us[0], frame.boot) for frame in numbers]
            + [(facts.wall_us, boot) for boot, facts in recorded]
        )
        for boot in dict.fromkeys(boot for _, boot in begins):
            ring = self._of(boot)
            readings = (self._rows(frame) for frame in numbers if frame.boot == boot)
            facts = [facts for of_boot, facts in recorded if of_boot == boot]
            facts.sort(key=lambda facts: facts.mono_us)
            for entry in heapq.merge(facts, *readings, key=lambda entry: entry.mono_us):
                now = clock.Clock(entry.wall_us * 1000, entry.mono_us * 1000)
                if isinstance(entry, Row):
                    ring.numbers(entry.signal, entry.columns, now, entry.keys)
                    self.readings += 1
                else:
                    self._write_facts(ring, now, entry)

    def _of(self, boot: str) -> writer.Writer:
        if self._writer is None or self._boot != boot:
            self.close()
            self._facts = {}
            self._boot = boot
            self._writer = writer.Writer(
                self._target,
                self._host,
                boot,
                budget_bytes=NO_LIMIT,
                age_seconds=NO_LIMIT,
                block_seconds=layout.FILE_SECONDS,
            )
        return self._writer

    def _rows(self, frame: frames.Frame) -> Iterator[Row | open_block.Changes]:
        rows: list[dict[str, tuple[int, ...]]] = [{} for _ in frame.wall_us]
        for k, key in enumerate(frame.keys):
            readings, own = frame.numbers_of(k)
            masked = key if key.isdecimal() else self._masks.name("keys of signals", key)
            values = zip(*(frame.values[name][own] for name in frame.columns), strict=True)
            for n, row in zip(readings, values, strict=True):
                rows[n][masked] = row
        for mono, wall, keys in zip(frame.monotonic_ns, frame.wall_us, rows, strict=True):
            yield Row(wall, mono // 1000, frame.signal, frame.columns, keys)

    def _write_facts(
        self, ring: writer.Writer, now: clock.Clock, facts: open_block.Changes
    ) -> None:
        known = self._facts.get(facts.signal)
        if known is None and not facts.full:
            return  # the block with the full facts is damaged
        state = {} if facts.full or known is None else known
        for key, fact in facts.changed.items():
            state[self._masks.name("keys of facts", key)] = {
                name: self._masks.fact(name, value) if isinstance(value, str) else value
                for name, value in fact.items()
            }
        for key in facts.gone:
            state.pop(self._masks.name("keys of facts", key), None)
        self._facts[facts.signal] = state
        ring.facts(facts.signal, now, state)

    def close(self) -> None:
        """Pack everything and sync; raise OSError if the disk is full."""
        if self._writer is None:
            return
        closing, self._writer = self._writer, None
        closing.close()
        if closing.dropped or layout.files(closing.folder, layout.OPEN):
            raise files.find_lost_write(self._target)


def _copy_events(
    source: reader.Reader, target: pathlib.Path, host: str, masks: scrubber.Scrubber
) -> None:
    """Copy events, gaps and pins of all stored time."""
    folder = layout.host_folder(target, host)
    lines: dict[str, list[dict[str, object]]] = {}
    for event in source.events(-EVER, EVER, (host,)):
        name = f"events-{layout.month_of(event.time_us)}.jsonl"
        lines.setdefault(name, []).append(_scrubbed(event, masks).as_json())
    lines["gaps.jsonl"] = [
        {**dataclasses.asdict(gap), "why": masks.text("gaps", gap.why)} for gap in source.gaps(host)
    ]
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    (folder / "host").write_bytes(host.encode("utf-8", "surrogatepass"))
    for name, entries in lines.items():
        text = "".join(json.dumps(entry, separators=(",", ":")) + "\n" for entry in entries)
        if text:
            (folder / name).write_text(text, "ascii")
    pins = layout.ring_pins(target, host)
    for pin in source.pins(host):
        if pin.end_ns < EVER_NS:  # otherwise its file is unreadable
            pins.pin(dataclasses.replace(pin, why=masks.text("pins", pin.why)))


def _scrubbed(event: Event, masks: scrubber.Scrubber) -> Event:
    return dataclasses.replace(
        event,
        text=masks.text("event texts", event.text),
        unit=masks.name("unit names", event.unit),
        process=masks.name("process names", event.process),
        fields={
            masks.name("event fields", name): masks.text("event fields", value, name)
            if isinstance(value, str)
            else value
            for name, value in event.fields.items()
        },
    )
