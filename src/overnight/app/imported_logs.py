"""Stores logs of other tools as the recorder would have: events of kernel logs and of CPU time, CPU time as signals."""

from __future__ import annotations

import bisect
import contextlib
import dataclasses
import hashlib
import itertools
import pathlib
import shutil
import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import cast

from overnight import errors
from overnight.agent import event_tracker, kernel_events, watches
from overnight.agent.watches import cores
from overnight.ingest import logs
from overnight.model import clock, cpu, files, times
from overnight.model.event import IMPORTED, Event, boot_name
from overnight.model.finding import Need
from overnight.model.text import printable
from overnight.sources import kernelrules, kmsg
from overnight.store import added_events
from overnight.store.ring import layout, writer
from overnight.store.ring import reader as rings

MAX_ANCHORS = 100_000  # lines whose time is known, to find the boot time of another file
MAX_ANCHOR_TEXT = 200  # characters
MAX_STRETCHES = 1000  # without a gap; each is a file
MAX_HOURS = 24 * 400  # each hour is a file
MAX_GAP_US = 2 * times.SECOND_US  # between two readings: mpstat prints whole seconds
SAME_US = 2 * times.SECOND_US  # dmesg -T shows whole seconds, and seconds since boot are as exact
TICKS = 10_000  # a second: mpstat prints hundredths of a percent
TEMPORARY = "importing"  # folder in HOME; only one import writes at a time


@dataclasses.dataclass(frozen=True)
class Imported:
    path: str
    format: str
    host: str
    begin_us: int
    end_us: int
    notes: tuple[str, ...]
    samples: int = 0
    lost: int = 0
    segments: int = 0
    lines: int = 0  # of a kernel log
    readings: int = 0  # of the CPU time of all cores
    events: int = 0
    damaged: int = 0  # lines that cannot be read
    known: bool = False  # the same file was imported before


@dataclasses.dataclass
class Context:
    """What the files of one import tell about each other."""

    host: str | None  # --host
    boot_us: int | None  # --boot
    hosts: set[str] = dataclasses.field(default_factory=set)
    anchors: dict[str, int | None] = dataclasses.field(default_factory=dict)  # wall time by text
    boots: list[int] = dataclasses.field(default_factory=list)

    def choose_host(self, file: logs.LogFile) -> str:
        if file.host:
            self.hosts.add(file.host)
        if self.host or file.host:
            return self.host or str(file.host)
        if len(self.hosts) != 1:
            raise errors.UsageError(
                f"{file.path} does not name its host",
                why="the other files name " + (", ".join(sorted(self.hosts)[:5]) or "none"),
                todo="name it: --host NAME",
            )
        (host,) = self.hosts
        file.note(f"it does not name its host: {host} is that of the other files")
        return host

    def learn(self, line: logs.Line) -> None:
        """Remember when a line was written, for a file that has only the time since boot."""
        if line.wall_us is None:
            return
        _remember(self.anchors, line.text, line.wall_us)
        if line.monotonic_us is not None and len(self.boots) < MAX_ANCHORS:
            self.boots.append(line.wall_us - line.monotonic_us)

    def find_boot(self, file: logs.LogFile, lines: Iterable[logs.Entry]) -> int:
        """Return the time of the boot: given, or from the same lines in another file."""
        if self.boot_us is not None:
            return self.boot_us
        own: dict[str, int | None] = {}
        for line in lines:
            if isinstance(line, logs.Line) and line.monotonic_us is not None:
                _remember(own, line.text, line.monotonic_us)
        pairs = ((self.anchors.get(text), us) for text, us in own.items())
        offsets = [wall - us for wall, us in pairs if wall is not None and us is not None]
        offsets = offsets or self.boots
        if not offsets:
            raise errors.UsageError(
                f"the times in {file.path} are seconds since boot",
                why="no other file has the same lines with a date",
                todo="name the boot time: --boot '2026-11-15 22:10:03' (uptime -s), or add dmesg -T or journalctl -k",
            )
        boot_us = round(statistics.median(offsets))
        file.note(f"the boot time {times.format_instant(boot_us)} is from the other files, to about a second")  # fmt: skip
        return boot_us


def _remember(known: dict[str, int | None], text: str, us: int) -> None:
    """Remember the time of a line; one that occurs twice tells nothing."""
    text = text[:MAX_ANCHOR_TEXT]
    if text in known or len(known) < MAX_ANCHORS:
        known[text] = None if text in known else us


def register(
    home: pathlib.Path, path: pathlib.Path, contains: Need, host: str, begin_us: int, end_us: int
) -> bool:
    """Store, as an event, what a file contains and from when to when; return whether it is new."""
    key = f"{_digest(path)} {host} {begin_us}".encode("utf-8", "surrogatepass")
    event = Event(
        begin_us,
        IMPORTED,
        f"imported {printable(path.name)}",
        host,
        severity="info",
        id=f"{IMPORTED}-{hashlib.blake2b(key, digest_size=8).hexdigest()}",
        until_us=end_us,
        source="import",
        fields={"contains": str(contains)},
    )
    return added_events.add(home, [event]) > 0


def _digest(path: pathlib.Path) -> str:
    with path.open("rb") as content:
        return hashlib.file_digest(content, "blake2b").hexdigest()


def store_file(
    home: pathlib.Path,
    reader: logs.Reader,
    file: logs.LogFile,
    context: Context,
    rules: Iterable[kernelrules.Rule],
) -> Imported:
    """Store the events and readings of a file; the same file again changes nothing."""
    entries = reader.read(file)
    first = next(entries, None)
    if first is None:
        why = f"no line of {reader.NAME} can be read in it; {file.damaged} are damaged"
        raise errors.DamagedFileError(str(file.path), 0, why)
    host = context.choose_host(file)
    entries = itertools.chain((first,), entries)
    if isinstance(first, logs.Line):
        contains, boot_us = Need.EVENTS, 0
        if first.wall_us is None:
            again = reader.read(dataclasses.replace(file, notes={}, damaged=0))
            boot_us = context.find_boot(file, again)
        lines = cast("Iterator[logs.Line]", entries)
        events = _find_events(file, lines, host, boot_us, context, rules)
    else:
        contains = Need.CPU
        events = _store_readings(home, file, host, cast("Iterator[logs.Reading]", entries))
    if not file.entries:
        raise errors.DamagedFileError(str(file.path), 0, "no time in it is between 2000 and 2100")
    fresh = _drop_stored(home, host, events, file)
    if len(fresh) < len(events):
        file.note(f"{len(events) - len(fresh)} of its events were stored before")
    added_events.add(home, fresh)
    is_new = register(home, file.path, contains, host, file.begin_us, file.end_us)
    return Imported(
        path=str(file.path),
        format=reader.NAME,
        host=host,
        begin_us=file.begin_us,
        end_us=file.end_us,
        notes=tuple(file.notes),
        lines=file.entries if contains is Need.EVENTS else 0,
        readings=file.entries if contains is Need.CPU else 0,
        events=len(events),
        damaged=file.damaged,
        known=not is_new,
    )


class _Events:
    """Events as the recorder would have reported them, each in its last form."""

    def __init__(self, host: str) -> None:
        self._tracker = event_tracker.EventTracker(host, "", clock.Clock(0, 0))
        self._latest: dict[str, Event] = {}

    def add(
        self, sightings: watches.Sightings, now: clock.Clock, source: str | None = None
    ) -> None:
        self._keep(self._tracker.track(sightings, now, source))
        self._keep(self._tracker.expire(now))

    def _keep(self, events: Iterable[Event]) -> None:
        self._latest.update({event.id: event for event in events})

    def finish(self, file: logs.LogFile) -> list[Event]:
        self._keep(self._tracker.close())
        if dropped := sum(self._tracker.dropped.values()):
            file.note(f"{dropped} events were dropped: more than {event_tracker.MAX_NEW_A_MINUTE} of a kind in a minute")  # fmt: skip
        # The time since boot is not known.
        return [dataclasses.replace(event, monotonic_ns=0) for event in self._latest.values()]


def _find_events(
    file: logs.LogFile,
    lines: Iterable[logs.Line],
    host: str,
    boot_us: int,
    context: Context,
    rules: Iterable[kernelrules.Rule],
) -> list[Event]:
    """Apply the rules as the recorder does, by the lines' own time."""
    watch = kernel_events.KernelWatch(rules)
    found, last = _Events(host), clock.Clock(0, 0)
    for line in lines:
        context.learn(line)
        at_us = boot_us + (line.monotonic_us or 0) if line.wall_us is None else line.wall_us
        is_wanted = watch.wanted(line.text.encode("utf-8", "backslashreplace"))
        if not file.accept(at_us, at_us) or not is_wanted:
            continue
        now = clock.Clock(at_us * 1000, at_us * 1000)
        text = printable(line.text[: kmsg.TEXT_LIMIT])[: kmsg.TEXT_LIMIT]
        record = kmsg.Record(file.entries, at_us, 4, int(line.by_process), text, {}, read_at=now)
        last = max(last, now, key=lambda each: each.wall_ns)
        found.add(watch.check([record], last), last)
    found.add(watch.finish(last), last)
    return found.finish(file)


def _drop_stored(
    home: pathlib.Path, host: str, events: list[Event], file: logs.LogFile
) -> list[Event]:
    """Return the events that no other log of the same host, nor its recorder, has shown."""
    known: dict[tuple[str, str], list[int]] = {}
    for event in rings.Reader(home).events(file.begin_us - SAME_US, file.end_us + SAME_US, [host]):
        known.setdefault((event.kind, event.text), []).append(event.time_us)
    return [
        event
        for event in events
        if all(
            abs(event.time_us - time_us) > SAME_US
            for time_us in known.get((event.kind, event.text), ())
        )
    ]


def _store_readings(
    home: pathlib.Path, file: logs.LogFile, host: str, readings: Iterable[logs.Reading]
) -> list[Event]:
    """Write a ring beside the host's own and move its files there: a killed import leaves no half of one.

    The names follow from the content, so that the same file again has the same names. Returns what the
    recorder's watch sees in the readings.
    """
    root, temporary, boot = home / "signals", home / TEMPORARY, _digest(file.path)[:24]
    files.make_folder(root)
    with files.locked(root), contextlib.ExitStack() as undo:
        shutil.rmtree(temporary, ignore_errors=True)  # of a killed import
        undo.callback(shutil.rmtree, temporary, ignore_errors=True)
        files.make_folder(temporary)
        stored = _find_stored(home, host, boot)
        events = _write_ring(temporary, file, host, boot, readings, stored)
        target = layout.host_folder(home, host)
        for _, path in layout.files(layout.host_folder(temporary, host), layout.RING):
            layout.name_folder(target, host)
            if not (target / path.name).exists():
                files.publish(path, target / path.name)
    return events


def _find_stored(home: pathlib.Path, host: str, boot: str) -> Callable[[logs.Reading], bool]:
    """Return whether the CPU time of a reading is stored already, from another source than this boot."""
    own = boot_name(boot)
    others = [each for each in rings.Reader(home).stretches(host) if each.boot != own]
    begins = [each.begin_us for each in others]
    ends = list(itertools.accumulate((each.end_us for each in others), max))

    def is_stored(reading: logs.Reading) -> bool:
        before = bisect.bisect_left(begins, reading.end_us)
        return before > 0 and ends[before - 1] > reading.begin_us

    return is_stored


def _write_ring(
    home: pathlib.Path,
    file: logs.LogFile,
    host: str,
    boot: str,
    readings: Iterable[logs.Reading],
    is_stored: Callable[[logs.Reading], bool],
) -> list[Event]:
    """Write counters that rise by what each reading shows; after a gap as of another boot."""
    ring: writer.Writer | None = None
    ticks: dict[int, dict[str, int]] = {}
    watch, found = cores.CorePinned(), _Events(host)
    last_us, written_us, left_out, stretches, hours = 0, 0, 0, 0, set[int]()
    for reading in readings:
        if reading.begin_us < last_us or reading.end_us - reading.begin_us > times.DAY_US:
            file.damaged += 1
            continue
        if not file.accept(reading.begin_us, reading.end_us):
            continue
        last_us = reading.end_us
        if is_stored(reading):
            left_out, written_us = left_out + 1, 0
            continue
        hours.add(reading.end_us // times.HOUR_US)
        if ring is None or reading.begin_us - written_us > MAX_GAP_US:
            _close(ring, home)
            stretches += 1
            ring = writer.Writer(home, host, f"{boot}{stretches:08x}", budget_bytes=1 << 50, age_seconds=1e12)  # fmt: skip
            ticks = {core: dict.fromkeys(row, 0) for core, row in reading.cores.items()}
            _watch(watch, found, _write(ring, reading.begin_us, ticks), ticks)
        if stretches > MAX_STRETCHES or len(hours) > MAX_HOURS:
            why = f"more than {MAX_STRETCHES} gaps, or {MAX_HOURS} hours"
            raise errors.DamagedFileError(str(file.path), 0, why)
        for core, row in reading.cores.items():
            counters = ticks.setdefault(core, {})
            for mode, percent in row.items():
                rise = percent / 100 * TICKS * (reading.end_us - reading.begin_us) / 1e6
                counters[mode] = counters.get(mode, 0) + round(rise)
        shown = {core: ticks[core] for core in reading.cores}
        _watch(watch, found, _write(ring, reading.end_us, shown), shown)
        written_us = reading.end_us
    _close(ring, home)
    if left_out:
        file.note(f"{left_out} of its readings are left out: the CPU time of those seconds is stored already")  # fmt: skip
    return found.finish(file)


def _watch(
    watch: cores.CorePinned,
    found: _Events,
    now: clock.Clock,
    ticks: Mapping[int, Mapping[str, int]],
) -> None:
    rows = {str(core): tuple(row.get(m, 0) for m in cpu.MODES) for core, row in ticks.items()}
    found.add(watch.check("cpu", now, rows), now, watch.name)


def _write(ring: writer.Writer, at_us: int, ticks: Mapping[int, Mapping[str, int]]) -> clock.Clock:
    modes = tuple(mode for mode in cpu.MODES if any(mode in row for row in ticks.values()))
    now = clock.Clock(at_us * 1000, at_us * 1000)
    rows = {str(core): [row.get(mode, 0) for mode in modes] for core, row in ticks.items()}
    ring.numbers("cpu", modes, now, rows)
    ring.tick(now)
    return now


def _close(ring: writer.Writer | None, home: pathlib.Path) -> None:
    if ring is None:
        return
    ring.close()
    if ring.dropped:
        raise files.find_lost_write(home)
