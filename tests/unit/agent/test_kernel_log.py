"""A recorder that is killed at any moment, and the next one: each line is in an event once, or reported lost."""

from __future__ import annotations

import collections
import os
import pathlib
import random
from collections.abc import Callable, Iterable

import pytest
from killer import KilledError, Killer

from overnight.agent import kernel_log, recorder_loop
from overnight.model import clock
from overnight.model.event import LINES_LOST, Event
from overnight.sources import kmsg
from overnight.sources.kernelrules import rulefiles

RULE = """
[[rule]]
name = "test-line"
kind = "test.line"
severity = "info"
regex = 'marked line of (?P<key>\\w+)'
meaning = "A line of a test."
incident = "{key}"
matches = [{ line = "marked line of x", fields = { key = "x" } }]
misses = ["another line"]
"""
BOOT = "0123"


class Device:
    """A kernel log of the last lines; a descriptor of it is a number of a reader."""

    def __init__(self, keeps: int = 1000) -> None:
        self.lines: collections.deque[tuple[int, bytes]] = collections.deque(maxlen=keeps)
        self.written = 0
        self.now = clock.Clock(10**18, 10**12)
        self._next: dict[int, int] = {}
        self.write("the kernel booted")

    def pass_time(self, seconds: float) -> None:
        ns = round(seconds * 1e9)
        self.now = clock.Clock(self.now.wall_ns + ns, self.now.monotonic_ns + ns)

    def write(self, text: str) -> None:
        stamp = self.now.monotonic_ns // 1000
        self.lines.append((self.written, f"6,{self.written},{stamp},-;{text}\n".encode()))
        self.written += 1

    def open(self, *_: object) -> int:
        self._next[len(self._next)] = 0
        return len(self._next) - 1

    def read(self, descriptor: int, _size: int) -> bytes:
        oldest = self.lines[0][0] if self.lines else 0
        if self._next[descriptor] < oldest:
            self._next[descriptor] = oldest
            raise BrokenPipeError
        for number, data in self.lines:
            if number == self._next[descriptor]:
                self._next[descriptor] += 1
                return data
        raise BlockingIOError


class Recorder:
    """The loop of a recorder whose ring, `stored`, outlives it."""

    def __init__(self, folder: pathlib.Path, device: Device, stored: dict[str, Event], steps: Callable[[str], None]) -> None:  # fmt: skip
        self._stored, self._steps = stored, steps
        position = kernel_log.Position(folder / "kernel-log.json", BOOT)
        write = position.write

        def write_in_steps(*given: object) -> None:
            steps("before the position")
            write(*given)  # type: ignore[arg-type]
            steps("after the position")

        position.write = write_in_steps  # type: ignore[method-assign]
        rules = rulefiles.load(folder / "rules")
        unstored = [event for event in position.events if stored.get(event.id) != event]
        self.loop = recorder_loop.RecorderLoop(
            recorder_loop.Parts(
                "db-7", BOOT, (), (), self,
                open_log=lambda: kernel_log.open_kernel_log(folder, rules, position),
                read_clock=lambda: device.now,
            )
        )  # fmt: skip
        self.loop.report(unstored)

    def event(self, event: Event) -> None:
        self._steps("before the event")
        self._stored[event.id] = event
        self._steps("after the event")

    def ignore(self, *_: object, **__: object) -> None: ...

    numbers = facts = note_gap = tick = ignore


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> Device:
    device = Device()
    (tmp_path / "rules").mkdir()
    (tmp_path / "rules/test.toml").write_text(RULE)
    used = {
        "open": device.open,
        "read": device.read,
        "lseek": lambda *_: 0,
        "close": lambda _: None,
    }
    monkeypatch.setattr(kmsg, "os", type("os", (), {**vars(os), **{n: staticmethod(f) for n, f in used.items()}}))  # fmt: skip
    # Of the device, also for its default: a stamp that is later than the machine's uptime is not in the past.
    monkeypatch.setattr(kmsg.KernelLog.__init__, "__defaults__", (lambda: device.now,))
    return device


def lines_of(stored: Iterable[Event]) -> dict[str, int]:
    counts: dict[str, int] = collections.Counter()
    for event in stored:
        if event.kind == "test.line":
            counts[str(event.fields["key"])] += event.count
    return counts


def lost_numbers(stored: Iterable[Event]) -> set[int]:
    lost = [event for event in stored if event.kind == LINES_LOST]
    return {number for event in lost for number in range(int(event.fields["first"]), int(event.fields["last"]) + 1)}  # fmt: skip


def play(folder: pathlib.Path, device: Device, seed: int) -> tuple[dict[str, Event], dict[str, int]]:  # fmt: skip
    """Write lines while recorders are killed at random steps; return what is stored, and the lines by key."""
    chance, stored, truth = random.Random(seed), {}, collections.Counter[str]()
    recorder: Recorder | None = Recorder(folder, device, stored, lambda _: None)
    assert recorder is not None
    recorder.loop.tick()
    for _ in range(60):
        device.pass_time(chance.choice((0.01, 0.3, 1.0, 4.0, 15.0)))
        for _ in range(chance.randrange(4)):
            key = chance.choice("abc")
            device.write(f"marked line of {key}" if chance.random() < 0.8 else "another line")
            truth[key] += b"marked" in device.lines[-1][1]
        try:
            killer = Killer(chance.randrange(12) if chance.random() < 0.4 else 10**6)
            if recorder is None and chance.random() < 0.6:
                recorder = Recorder(folder, device, stored, killer)
            if recorder is not None:
                recorder._steps = killer
                chance.choice((recorder.loop.read_log, recorder.loop.tick))()
        except KilledError:
            recorder = None
    recorder = Recorder(folder, device, stored, lambda _: None)
    for _ in range(3):
        recorder.loop.tick()
        device.pass_time(20)
    recorder.loop.finish()
    return stored, truth


@pytest.mark.parametrize("seed", range(25))
def test_each_line_is_counted_once_whenever_the_recorder_is_killed(
    tmp_path: pathlib.Path, device: Device, seed: int
) -> None:
    stored, truth = play(tmp_path, device, seed)
    assert lines_of(stored.values()) == {key: count for key, count in truth.items() if count}
    assert lost_numbers(stored.values()) == set()


def test_lines_that_the_kernel_overwrote_meanwhile_are_reported_with_their_numbers(
    tmp_path: pathlib.Path, device: Device
) -> None:
    device.lines = collections.deque(device.lines, maxlen=10)
    stored: dict[str, Event] = {}
    Recorder(tmp_path, device, stored, lambda _: None).loop.tick()
    for _ in range(30):
        device.write("marked line of a")
    recorder = Recorder(tmp_path, device, stored, lambda _: None)
    recorder.loop.tick()
    assert lost_numbers(stored.values()) == set(range(1, 21))
    assert lines_of(stored.values()) == {"a": 10}
    lost = [event for event in stored.values() if event.kind == LINES_LOST]
    assert [(event.count, event.text) for event in lost] == [(20, "lines 1 to 20 of the kernel log were overwritten unread")]  # fmt: skip
    for _ in range(30):
        device.write("another line")
    recorder.loop.tick()
    (event,) = [event for event in stored.values() if event.kind == LINES_LOST]
    device.pass_time(11)
    recorder.loop.tick()
    (event,) = [event for event in stored.values() if event.kind == LINES_LOST]
    assert (event.count, event.fields["first"], event.fields["last"]) == (40, 1, 50)


@pytest.mark.parametrize("content", ["", "{", "[]", '{"boot": "0123"}', '{"boot": "0123", "sequence": "x", "ahead_us": 0, "events": []}'])  # fmt: skip
def test_a_damaged_position_is_none(tmp_path: pathlib.Path, content: str) -> None:
    (tmp_path / "kernel-log.json").write_text(content)
    assert kernel_log.Position(tmp_path / "kernel-log.json", BOOT).sequence is None


def test_the_position_of_another_boot_is_none(tmp_path: pathlib.Path) -> None:
    kernel_log.Position(tmp_path / "kernel-log.json", BOOT).write(7, 0, ())
    assert kernel_log.Position(tmp_path / "kernel-log.json", BOOT).sequence == 7
    assert kernel_log.Position(tmp_path / "kernel-log.json", "4567").sequence is None


def test_a_machine_that_was_set_back_to_a_snapshot_is_read_on(
    tmp_path: pathlib.Path, device: Device
) -> None:
    kernel_log.Position(tmp_path / "kernel-log.json", BOOT).write(5000, 0, ())
    stored: dict[str, Event] = {}
    device.write("another line")
    recorder = Recorder(tmp_path, device, stored, lambda _: None)
    device.write("marked line of a")
    recorder.loop.tick()
    assert lines_of(stored.values()) == {"a": 1}
    assert lost_numbers(stored.values()) == set()


def test_what_happened_while_no_recorder_ran_has_its_own_limits(
    tmp_path: pathlib.Path, device: Device
) -> None:
    """100 incidents of ten minutes are read within a second: they are no flood."""
    stored: dict[str, Event] = {}
    Recorder(tmp_path, device, stored, lambda _: None).loop.tick()
    for number in range(100):
        device.pass_time(6)
        device.write(f"marked line of k{number}")
    Recorder(tmp_path, device, stored, lambda _: None).loop.tick()
    assert lines_of(stored.values()) == {f"k{number}": 1 for number in range(100)}
