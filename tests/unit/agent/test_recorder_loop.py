"""The loop on fake signals: everything is stored and watched, and no failure ends it."""

from __future__ import annotations

import dataclasses
import errno
import os
import threading
import time
from typing import TYPE_CHECKING

import noise
import pytest

from overnight import sources
from overnight.agent import event_pins, queues, recorder_loop, schedule, watches
from overnight.model import clock
from overnight.model.event import Event
from overnight.model.pins import Pins

if TYPE_CHECKING:
    from overnight.model.pins import Pin

NOW = clock.Clock(1_700_000_000_000_000_000, 5_000_000_000)


class MemorySink:
    """A sink that keeps everything in lists."""

    def __init__(self) -> None:
        self.rows: list[tuple] = []
        self.words: list[tuple] = []
        self.events: list[Event] = []
        self.gaps: list[tuple] = []
        self.ticks = 0

    def numbers(self, signal, columns, clock, rows, every=()):
        self.rows.append((signal, columns, rows))

    def facts(self, signal, clock, rows):
        self.words.append((signal, rows))

    def event(self, event):
        self.events.append(event)

    def note_gap(self, begin_us, end_us, why):
        self.gaps.append((begin_us, end_us, why))

    def tick(self, clock):
        self.ticks += 1


def signal(name: str, readings, every: float = 1.0) -> sources.Signal:
    """A signal whose readings come from a list; an exception in it is raised."""
    remaining = iter(readings)

    def read():
        reading = next(remaining)
        if isinstance(reading, Exception):
            raise reading
        return reading

    return sources.Signal(name, every, "core", ("n",), lambda root: read)


class Above:
    """A watch that sees every value above ten."""

    name = "above"
    needs = ("a",)

    def check(self, signal, now, rows):
        for key, row in rows.items():
            if row[0] > 10:
                yield watches.Sighting("test.above", key, now, f"{key} is {row[0]}", core=int(key))


class Log:
    """Lines that come through a pipe, each of them a sighting."""

    def __init__(self) -> None:
        self.read_end, self.write_end = os.pipe()
        self.counts = {"rule": 3}
        self.lines = (7, 0, 0)

    def fileno(self) -> int:
        return self.read_end

    def sightings(self, now):
        os.set_blocking(self.read_end, False)
        try:
            text = os.read(self.read_end, 100).decode()
        except BlockingIOError:
            return []
        fields = {"rule": "ena-tx-paused", "device": "0000:20:03.0", "queue": 5}
        return [watches.Sighting("net.driver_reset", "ena", now, text, "critical", fields=fields)]

    def finish(self, now):
        return self.sightings(now)

    has_moved = False

    def flush(self, now):
        return ()

    def note_position(self, events) -> None: ...

    def close(self) -> None:
        os.close(self.read_end)
        os.close(self.write_end)


def parts(sink: MemorySink, *signals, **changes) -> recorder_loop.Parts:
    return recorder_loop.Parts(
        **{"host": "db-7", "boot": "0123", "signals": signals, "watches": (Above(),), "sink": sink}
        | changes
    )


def test_a_reading_is_stored_and_watched():
    sink = MemorySink()
    loop = recorder_loop.RecorderLoop(parts(sink, signal("a", [{"0": (5,), "1": (50,)}])))
    assert loop.poll("a", NOW) is None
    assert sink.rows == [("a", ("n",), {"0": (5,), "1": (50,)})]
    (event,) = sink.events
    assert (event.kind, event.core, event.source, event.host) == ("test.above", 1, "above", "db-7")


def test_a_failed_signal_is_counted_reopened_and_reported():
    sink = MemorySink()
    opened = []
    readings = iter([OSError(5, "I/O error"), {"0": (1,)}])

    def start(root):
        opened.append(root)

        def read():
            reading = next(readings)
            if isinstance(reading, Exception):
                raise reading
            return reading

        return read

    failing = sources.Signal("a", 1.0, "", ("n",), start)
    loop = recorder_loop.RecorderLoop(parts(sink, failing))
    assert isinstance(loop.poll("a", NOW), OSError)
    assert loop.states["a"].failures == 1
    loop.finish()
    assert sink.words[-1][0] == "agent-problems"
    assert "I/O error" in sink.words[-1][1]["a"]["problem"]
    assert loop.poll("a", NOW) is None
    assert len(opened) == 2


def test_the_loop_runs_for_its_time_and_survives_every_failure():
    sink = MemorySink()
    stop = threading.Event()
    bad = signal("bad", [sources.NoDataError("not here")])
    broken = signal("broken", [ValueError("junk"), {"0": (1,)}])
    good = signal("a", [{"0": (n,)} for n in range(100)], every=0.05)
    recorder_loop.RecorderLoop(parts(sink, bad, broken, good)).run(stop, 0.3)
    assert sum(name == "a" for name, _, _ in sink.rows) >= 3
    assert sink.ticks >= 1


def test_a_stalled_loop_records_a_gap(monkeypatch):
    monkeypatch.setattr(recorder_loop, "LATE_SECONDS", 0.1)
    sink = MemorySink()
    stop = threading.Event()

    def stall():
        time.sleep(1.3)
        return {"0": (1,)}

    slow = sources.Signal("a", 60.0, "", ("n",), lambda root: stall)
    began = time.monotonic()
    recorder_loop.RecorderLoop(parts(sink, slow)).run(stop, 1.5)
    (gap,) = sink.gaps
    assert 100_000 < gap[1] - gap[0] < (time.monotonic() - began) * 1e6
    assert "did not let the agent run" in gap[2]


def test_stop_ends_the_loop():
    stop = threading.Event()
    threading.Timer(0.1, stop.set).start()
    recorder_loop.RecorderLoop(parts(MemorySink())).run(stop, 60)
    assert stop.is_set()


@pytest.fixture
def log():
    pipe_log = Log()
    yield pipe_log
    pipe_log.close()


def test_a_kernel_line_becomes_an_event_on_the_core_of_its_queue(log):
    sink = MemorySink()
    facts = {"eth0 q5": {"interface": "eth0", "queue": 5, "core": 39}}
    drivers = {"eth0": {"driver": "ena", "bus": "0000:20:03.0"}}
    nic = sources.FactSignal("nic-queues", 10.0, "queue", lambda root: lambda: facts)
    nics = sources.FactSignal("nic-drivers", 60.0, "nic", lambda root: lambda: drivers)
    loop = recorder_loop.RecorderLoop(parts(sink, nic, nics, open_log=lambda: (log, "")))
    loop.poll("nic-queues", NOW)
    loop.poll("nic-drivers", NOW)
    os.write(log.write_end, b"TX q 5 is paused for too long")
    loop.read_log()
    (event,) = sink.events
    assert (event.kind, event.core, event.source) == ("net.driver_reset", 39, "ena-tx-paused")
    assert event.fields["interface"] == "eth0"


def test_a_line_wakes_the_loop(log):
    sink = MemorySink()
    timer = threading.Timer(0.05, os.write, (log.write_end, b"reset"))
    timer.start()
    recorder_loop.RecorderLoop(parts(sink, open_log=lambda: (log, ""))).run(threading.Event(), 0.3)
    assert [event.kind for event in sink.events][:1] == ["net.driver_reset"]


def test_a_queue_of_several_cores_has_no_core_and_a_process_line_keeps_its_key():
    known = queues.QueueCores()
    known.learn("nic-queues", {"eth0 q1": {"interface": "eth0", "queue": 1, "core": -1}})
    seen = watches.Sighting(
        "net.tx_timeout", "0000:1", NOW, "", fields={"interface": "eth0", "queue": 1}
    )
    assert (known.place(seen).core, known.place(seen).key) == (-1, "eth0")
    written = dataclasses.replace(seen, fields={**seen.fields, "written_by_process": True})
    assert known.place(written).key == "0000:1"


def test_windows_around_warnings_are_pinned_and_the_least_severe_is_dropped_first(tmp_path):
    folder = Pins(tmp_path)
    pins = event_pins.EventPins(lambda: [folder], 2)

    def event(name: str, severity: str, at: int) -> Event:
        return Event(at, "k", "t", id=name, severity=severity, until_us=at + 5_000_000)

    pins.event(event("quiet", "info", 1))
    pins.event(event("bad", "critical", 100_000_000))
    pins.event(event("old", "warning", 200_000_000))
    pins.event(event("new", "warning", 300_000_000))
    pinned = {pin.id: pin for pin in folder.pins()}
    assert sorted(pinned) == ["bad", "new"]
    assert (pinned["bad"].begin_us, pinned["bad"].end_us) == (40_000_000, 135_000_000)


def test_a_window_is_extended_only_near_its_end(tmp_path, monkeypatch):
    calls: list[Pin] = []
    monkeypatch.setattr(Pins, "pin", lambda _, pin: calls.append(pin))
    pins = event_pins.EventPins(lambda: [Pins(tmp_path)])
    for second in range(60):
        pins.event(Event(0, "k", "t", id="e", severity="warning", until_us=second * 1_000_000))
    assert [pin.end_us // 1_000_000 for pin in calls] == [30, 50, 70]


def test_a_missing_permission_and_an_unread_kernel_log_are_recorded():
    """A diagnosis reports both as missing evidence."""
    sink = MemorySink()
    denied = signal("interrupts", [PermissionError(13, "Permission denied"), {"0": (1,)}])
    loop = recorder_loop.RecorderLoop(
        parts(sink, denied, open_log=lambda: (None, "/dev/kmsg cannot be read"))
    )
    assert isinstance(loop.poll("interrupts", NOW), PermissionError)
    loop.finish()
    name, rows = sink.words[-1]
    assert name == "agent-problems"
    assert rows["interrupts"]["denied"] is True
    assert rows["kernel-log"] == {"problem": "/dev/kmsg cannot be read"}
    assert loop.poll("interrupts", NOW) is None
    loop.finish()
    assert sink.words[-1][1].keys() == {"kernel-log"}


TOO_MANY = OSError(errno.EMFILE, "Too many open files", "/sys/class/net")


def test_an_error_of_the_agent_itself_is_reported_at_once_and_when_it_is_over():
    sink = MemorySink()
    loop = recorder_loop.RecorderLoop(parts(sink, signal("a", [TOO_MANY, TOO_MANY, {"0": (1,)}])))
    assert loop.poll("a", NOW) is TOO_MANY
    assert sink.words == [
        ("agent-problems", {"a": {"problem": "Too many open files", "exhausted": True}})
    ]
    assert loop.poll("a", NOW) is TOO_MANY
    assert len(sink.words) == 1
    assert loop.poll("a", NOW) is None
    assert sink.words[1:] == [("agent-problems", {})]
    assert (loop.states["a"].lost, loop.states["a"].lost_why) == (2, "Too many open files")


def test_an_error_of_the_agent_itself_is_retried_long_before_an_absent_interface(monkeypatch):
    monkeypatch.setattr(schedule, "OWN_RETRY_SECONDS", 0.01)
    stop = threading.Event()
    sink = MemorySink()
    monkeypatch.setattr(sink, "numbers", lambda name, *_, **__: name == "a" and stop.set())
    failing = signal("a", [TOO_MANY, {"0": (1,)}], every=600.0)
    loop = recorder_loop.RecorderLoop(parts(sink, failing))
    loop.run(stop, noise.HANG_SECONDS)
    assert stop.is_set()


def test_a_window_that_could_not_be_pinned_is_pinned_with_the_next_report(tmp_path, monkeypatch):
    folder, failing = Pins(tmp_path), [TOO_MANY]
    pin = folder.pin
    monkeypatch.setattr(
        folder, "pin", lambda wanted: (failing and _raise(failing.pop())) or pin(wanted)
    )
    pins = event_pins.EventPins(lambda: [folder])
    for _ in range(2):
        pins.event(Event(0, "k", "t", id="e", severity="warning"))
    assert [pinned.id for pinned in folder.pins()] == ["e"]


def _raise(error):
    raise error
