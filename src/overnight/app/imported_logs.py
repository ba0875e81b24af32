"""Stores logs of other tools as the recorder would have stored them: kernel-log lines as events, CPU time as signals."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import pathlib
import shutil
import statistics
from collections.abc import Iterable, Iterator, Mapping

from overnight import errors
from overnight.agent import event_tracker, kernel_events, watches
from overnight.ingest import logs
from overnight.model import clock, cpu, files, times
from overnight.model.event import IMPORTED, Event
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
MAX_STEP_US = times.DAY_US
TICKS = 10_000  # a second: mpstat prints hundredths of a percent
TEMPORARY = "importing"  # folder in HOME; only one import writes at a time


@dataclasses.dataclass
class Context:
    """What the files of one import tell about each other."""

    host: str | None  # --host
    boot_us: int | None  # --boot
    hosts: set[str] = dataclasses.field(default_factory=set)
    anchors: dict[str, int | None] = dataclasses.field(default_factory=dict)  # wall time by text
    boots: list[int] = dataclasses.field(default_factory=list)

    def choose_host(self, file: logs.LogFile) -> str:
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
        if line.monotonic_us is not None and len(self.boots) < MAX_ANCHORS:
            self.boots.append(line.wall_us - line.monotonic_us)
        text = line.text[:MAX_ANCHOR_TEXT]
        if text in self.anchors:
            self.anchors[text] = None  # twice: it tells nothing
        elif len(self.anchors) < MAX_ANCHORS:
            self.anchors[text] = line.wall_us

    def find_boot(self, file: logs.LogFile, lines: Iterable[logs.Line]) -> int:
        """Return the time of the boot: given, or from the same lines in another file."""
        if self.boot_us is not None:
            return self.boot_us
        found: dict[str, int | None] = {}
        for line in lines:
            text = line.text[:MAX_ANCHOR_TEXT]
            wall_us = self.anchors.get(text)
            if wall_us is not None and line.monotonic_us is not None:
                found[text] = None if text in found else wall_us - line.monotonic_us
        offsets = [us for us in found.values() if us is not None] or self.boots
        if not offsets:
            raise errors.UsageError(
                f"the times in {file.path} are seconds since boot",
                why="no other file has the same lines with a date",
                todo="name the boot time: --boot '2026-11-15 22:10:03' (uptime -s), or add dmesg -T or journalctl -k",
            )
        boot_us = round(statistics.median(offsets))
        file.note(f"the boot time {times.format_instant(boot_us)} is from the other files, to about a second")  # fmt: skip
        return boot_us


@dataclasses.dataclass
class Stored:
    host: str
    begin_us: int = 1 << 62
    end_us: int = 0
    lines: int = 0
    readings: int = 0
    events: int = 0
    is_new: bool = False

    def include(self, begin_us: int, end_us: int) -> None:
        self.begin_us, self.end_us = min(self.begin_us, begin_us), max(self.end_us, end_us)


def register(
    home: pathlib.Path, path: pathlib.Path, contains: Need, host: str, begin_us: int, end_us: int
) -> bool:
    """Store, as an event, what a file contains and from when to when; return whether it is new."""
    with path.open("rb") as content:
        digest = hashlib.file_digest(content, "blake2b")
    digest.update(f"{host} {begin_us}".encode("utf-8", "surrogatepass"))
    event = Event(
        begin_us,
        IMPORTED,
        f"imported {printable(path.name)}",
        host,
        severity="info",
        id=f"{IMPORTED}-{digest.hexdigest()[:16]}",
        until_us=end_us,
        source="import",
        fields={"contains": str(contains)},
    )
    return added_events.add(home, [event]) > 0


def store_file(
    home: pathlib.Path,
    reader: logs.Reader,
    file: logs.LogFile,
    context: Context,
    rules: Iterable[kernelrules.Rule],
) -> Stored:
    """Store the events and readings of a file; the same file again changes nothing."""
    entries = reader.read(file)
    first = next(entries, None)
    if first is None:
        why = f"no line of {reader.NAME} can be read in it; {file.damaged} are damaged"
        raise errors.DamagedFileError(str(file.path), 0, why)
    host = context.choose_host(file)
    if file.host:
        context.hosts.add(file.host)
    stored = Stored(host)

    def every() -> Iterator[logs.Entry]:
        yield first
        yield from entries

    if isinstance(first, logs.Line):
        boot_us = None
        if first.wall_us is None:
            again = dataclasses.replace(file, notes={}, damaged=0)
            lines = (entry for entry in reader.read(again) if isinstance(entry, logs.Line))
            boot_us = context.find_boot(file, lines)
        lines = (entry for entry in every() if isinstance(entry, logs.Line))
        events = list(_find_events(file, lines, boot_us, context, stored, rules))
        stored.events = len(events)
        fresh = _drop_stored(home, events, stored)
        if len(fresh) < len(events):
            file.note(f"{len(events) - len(fresh)} of its events were stored before")
        added_events.add(home, fresh)
    else:
        readings = (entry for entry in every() if isinstance(entry, logs.Reading))
        _store_readings(home, file, readings, stored)
    if not stored.end_us:
        raise errors.DamagedFileError(str(file.path), 0, "no time in it is between 2000 and 2100")
    contains = Need.EVENTS if isinstance(first, logs.Line) else Need.CPU
    stored.is_new = register(home, file.path, contains, host, stored.begin_us, stored.end_us)
    return stored


def _find_events(
    file: logs.LogFile,
    lines: Iterable[logs.Line],
    boot_us: int | None,
    context: Context,
    stored: Stored,
    rules: Iterable[kernelrules.Rule],
) -> Iterator[Event]:
    """Apply the rules as the recorder does, by the lines' own time; yield each event in its last form."""
    watch = kernel_events.KernelWatch(rules)
    tracker = event_tracker.EventTracker(stored.host, "", clock.Clock(0, 0))
    latest: dict[str, Event] = {}

    def track(sightings: Iterable[watches.Sighting], now: clock.Clock) -> None:
        for sighting in sightings:
            source = str(sighting.fields.get("rule", "kernel-log"))
            latest.update({e.id: e for e in tracker.track([sighting], now, source)})
        latest.update({event.id: event for event in tracker.expire(now)})

    last = clock.Clock(0, 0)
    for line in lines:
        context.learn(line)
        wall_us = line.wall_us
        if wall_us is None:
            wall_us = (boot_us or 0) + (line.monotonic_us or 0)
        if not logs.is_plausible(wall_us):
            file.damaged += 1
            continue
        stored.lines += 1
        stored.include(wall_us, wall_us)
        if not watch.wanted(line.text.encode("utf-8", "backslashreplace")):
            continue
        now = clock.Clock(wall_us * 1000, wall_us * 1000)
        text = printable(line.text[: kmsg.TEXT_LIMIT])[: kmsg.TEXT_LIMIT]
        record = kmsg.Record(stored.lines, wall_us, 4, int(line.by_process), text, {}, read_at=now)
        last = max(last, now, key=lambda each: each.wall_ns)
        track(watch.check([record], last), last)
    track(watch.finish(last), last)
    latest.update({event.id: event for event in tracker.close()})
    for event in latest.values():
        yield dataclasses.replace(event, monotonic_ns=0)  # not known
    if tracker.dropped:
        file.note(f"{sum(tracker.dropped.values())} events were dropped: more than {event_tracker.MAX_NEW_A_MINUTE} of a kind in a minute")  # fmt: skip


def _drop_stored(home: pathlib.Path, events: list[Event], stored: Stored) -> list[Event]:
    """Return the events that no other log of the same host, nor its recorder, has shown."""
    window = (stored.begin_us - SAME_US, stored.end_us + SAME_US)
    known: dict[tuple[str, str], list[int]] = {}
    for event in rings.Reader(home).events(*window, [stored.host]):
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
    home: pathlib.Path, file: logs.LogFile, readings: Iterable[logs.Reading], stored: Stored
) -> None:
    """Write a ring beside the host's own and move its files there: a killed import leaves no half of one.

    The names follow from the content, so that the same file again has the same names.
    """
    with file.path.open("rb") as content:
        digest = hashlib.file_digest(content, "blake2b").hexdigest()
    root, temporary = home / "signals", home / TEMPORARY
    files.make_folder(root)
    with files.locked(root), contextlib.ExitStack() as undo:
        shutil.rmtree(temporary, ignore_errors=True)  # of a killed import
        undo.callback(shutil.rmtree, temporary, ignore_errors=True)
        files.make_folder(temporary)
        _write_ring(temporary, digest, file, readings, stored)
        if not stored.readings:
            return
        target = layout.host_folder(home, stored.host)
        layout.name_folder(target, stored.host)
        for _, path in layout.files(layout.host_folder(temporary, stored.host), layout.RING):
            if not (target / path.name).exists():
                files.publish(path, target / path.name)


def _write_ring(
    home: pathlib.Path,
    digest: str,
    file: logs.LogFile,
    readings: Iterable[logs.Reading],
    stored: Stored,
) -> None:
    """Write counters that rise by what each reading shows; after a gap as of another boot."""
    ring: writer.Writer | None = None
    ticks: dict[int, dict[str, int]] = {}
    last_us, stretches, hours = 0, 0, set[int]()
    for reading in readings:
        seconds = (reading.end_us - reading.begin_us) / 1e6
        sane = logs.is_plausible(reading.begin_us) and logs.is_plausible(reading.end_us)
        if not sane or reading.begin_us < last_us or seconds * 1e6 > MAX_STEP_US:
            file.damaged += 1
            continue
        hours.add(reading.end_us // times.HOUR_US)
        if ring is None or reading.begin_us - last_us > MAX_GAP_US:
            stretches += 1
            if ring is not None:
                _close(ring, file)
            boot = hashlib.blake2b(f"{digest}-{stretches}".encode(), digest_size=16).hexdigest()
            ring = writer.Writer(home, stored.host, boot, budget_bytes=1 << 50, age_seconds=1e12)
            ticks = {core: dict.fromkeys(row, 0) for core, row in reading.cores.items()}
            _write(ring, reading.begin_us, ticks)
        if stretches > MAX_STRETCHES or len(hours) > MAX_HOURS:
            why = f"more than {MAX_STRETCHES} gaps, or {MAX_HOURS} hours"
            raise errors.DamagedFileError(str(file.path), 0, why)
        for core, row in reading.cores.items():
            counters = ticks.setdefault(core, {})
            for mode, percent in row.items():
                counters[mode] = counters.get(mode, 0) + round(percent * TICKS / 100 * seconds)
        _write(ring, reading.end_us, {core: ticks[core] for core in reading.cores})
        last_us = reading.end_us
        stored.readings += 1
        stored.include(reading.begin_us, reading.end_us)
    if ring is not None:
        _close(ring, file)


def _write(ring: writer.Writer, at_us: int, ticks: Mapping[int, Mapping[str, int]]) -> None:
    modes = tuple(mode for mode in cpu.MODES if any(mode in row for row in ticks.values()))
    now = clock.Clock(at_us * 1000, at_us * 1000)
    rows = {str(core): [row.get(mode, 0) for mode in modes] for core, row in ticks.items()}
    ring.numbers("cpu", modes, now, rows)
    ring.tick(now)


def _close(ring: writer.Writer, file: logs.LogFile) -> None:
    ring.close()
    if ring.dropped:
        raise errors.CannotError(
            f"cannot store {file.path}",
            why="the disk is full, or cannot be written",
            todo="free disk space, or choose another disk: overnight --home DIR import FILE",
        )
