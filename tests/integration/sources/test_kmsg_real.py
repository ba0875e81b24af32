"""Lines written to the real /dev/kmsg and read back. Each is marked as a rehearsal."""

from __future__ import annotations

import contextlib
import os
import pathlib
import select
import time
from collections.abc import Iterator

import pytest

from overnight.agent import kernel_events
from overnight.model import clock
from overnight.sources import kmsg
from overnight.sources.kernelrules import rulefiles

pytestmark = pytest.mark.needs_root
PAUSED = "ena 0000:ff:03.0 rehearsal0: TX q 5 is paused for too long (threshold 5000000). Time since last napi 6596000 usec. napi scheduled: 1"
SECONDS = 10_000  # milliseconds to wait for a line before the test fails


def write(*texts: str) -> None:
    """Write each line with its own descriptor: the kernel limits the rate of a descriptor."""
    for text in texts:
        # Level 7 keeps it off the console; without the newline it cannot be read yet.
        pathlib.Path("/dev/kmsg").write_bytes(f"<7>overnight rehearsal: {text}\n".encode())


@pytest.fixture
def log() -> Iterator[kmsg.KernelLog]:
    with contextlib.closing(kmsg.KernelLog.open()) as opened:
        yield opened


def read_until(log: kmsg.KernelLog, text: str) -> list[kmsg.Record]:
    """Return all records up to the one with that text."""
    records: list[kmsg.Record] = []
    waiting = select.poll()
    waiting.register(log.fileno(), select.POLLIN)
    while not any(text in entry.text for entry in records):
        assert waiting.poll(SECONDS), f"{text!r} did not come"
        records += log.read()
    return records


def test_a_line_arrives_and_becomes_a_sighting(log: kmsg.KernelLog) -> None:
    before = time.monotonic_ns()
    write(PAUSED)
    (record,) = [entry for entry in read_until(log, PAUSED) if PAUSED in entry.text]
    assert record.from_user
    assert record.priority == 7
    watch = kernel_events.KernelWatch(rulefiles.built_in())
    now = clock.Clock(time.time_ns(), time.monotonic_ns())
    (sighting,) = watch.check([record], now)
    assert sighting.kind == "net.driver_reset"
    assert sighting.fields["queue"] == 5
    assert sighting.fields["interface"] == "rehearsal0"
    assert sighting.fields["device"] == "0000:ff:03.0"
    assert sighting.fields["written_by_process"] is True
    assert sighting.text.startswith("overnight rehearsal: ")
    # The kernel uses another clock, but the event has the right time.
    assert before <= sighting.begin.monotonic_ns <= now.monotonic_ns


def test_the_filter_lets_the_line_through_on_real_bytes(log: kmsg.KernelLog) -> None:
    watch = kernel_events.KernelWatch(rulefiles.built_in())
    write("nothing special", PAUSED, "the last")
    records: list[kmsg.Record] = []
    waiting = select.poll()
    waiting.register(log.fileno(), select.POLLIN)
    while not records:
        assert waiting.poll(SECONDS)
        records += log.read(wanted=watch.wanted)
    assert [PAUSED in entry.text for entry in records] == [True]


def test_hostile_lines_are_escaped(log: kmsg.KernelLog) -> None:
    write("\x1b[31mred\x07", "one\n6,1,2,-;Trigger reset is on", "café \\x41", "end of them")
    texts = [entry.text for entry in read_until(log, "end of them")]
    assert all(text.isprintable() for text in texts)
    assert r"overnight rehearsal: \x1b[31mred\x07" in texts
    assert r"overnight rehearsal: one\n6,1,2,-;Trigger reset is on" in texts, "one line, not two"
    assert "overnight rehearsal: café \\x41" in texts


def test_from_the_beginning_and_not_at_the_end() -> None:
    write("before it was opened")
    descriptor = os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK)
    with contextlib.closing(kmsg.KernelLog(descriptor)) as from_boot:
        sequences = []
        while not from_boot.drained:
            sequences += [entry.sequence for entry in from_boot.read(100)]
    assert sequences == sorted(sequences)
    assert len(sequences) + from_boot.lost == sequences[-1] - sequences[0] + 1
    with contextlib.closing(kmsg.KernelLog.open()) as at_the_end:
        write("after it was opened")
        texts = [entry.text for entry in read_until(at_the_end, "after it was opened")]
    assert not any("before it was opened" in text for text in texts)


def test_behind_a_line_and_what_is_missing() -> None:
    with contextlib.closing(kmsg.KernelLog.open()) as log:
        write("the last that was read")
        read_until(log, "the last that was read")
        position = log.position
    assert position is not None
    write("while nobody read", "the end of these")
    with contextlib.closing(kmsg.KernelLog.open(after=position)) as again:
        assert again.position == position
        own = [entry.text for entry in read_until(again, "the end of these")]
        assert [text for text in own if "rehearsal" in text] == [
            "overnight rehearsal: while nobody read",
            "overnight rehearsal: the end of these",
        ]
        assert again.holes == []
    with contextlib.closing(kmsg.KernelLog.open(after=-8)) as overwritten:
        first = overwritten.read(1)[0].sequence
        assert overwritten.holes == [(-7, first - 1)]
        assert overwritten.lost == first + 7
