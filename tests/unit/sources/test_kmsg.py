from __future__ import annotations

import contextlib
import errno
import os
import pathlib
from collections.abc import Iterator

import hypothesis
import pytest
from hypothesis import strategies as st

from overnight import errors, sources
from overnight.model import clock
from overnight.sources import kmsg

READ_AT = clock.Clock(1_000_000_000_000, 5_000_000_000)


def record(data: bytes, ahead_us: int = 0) -> kmsg.Record:
    parsed = kmsg.parse_record(data, READ_AT, ahead_us)
    assert parsed is not None
    return parsed


def test_a_missing_device_is_reported(tmp_path: pathlib.Path) -> None:
    error = kmsg.try_kmsg(tmp_path)
    assert error is not None
    assert error.errno == errno.ENOENT
    with pytest.raises(sources.NoDataError):
        kmsg.KernelLog.open(tmp_path)


def test_a_device_that_cannot_be_opened_is_reported(tmp_path: pathlib.Path) -> None:
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/kmsg").symlink_to("kmsg")
    with pytest.raises(errors.MissingPermissionError):
        kmsg.KernelLog.open(tmp_path)


def test_an_empty_log_is_readable(tmp_path: pathlib.Path) -> None:
    (tmp_path / "dev").mkdir()
    os.mkfifo(tmp_path / "dev/kmsg")
    assert kmsg.try_kmsg(tmp_path) is None


@pytest.mark.parametrize("after", [None, 7])
def test_a_container_with_another_file_in_its_place_has_no_lines(
    tmp_path: pathlib.Path, after: int | None
) -> None:
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/kmsg").symlink_to("/dev/null")
    with contextlib.closing(kmsg.KernelLog.open(tmp_path, after)) as log:
        assert log.read() == []


@pytest.mark.needs_root
def test_the_log_of_this_host() -> None:
    assert kmsg.try_kmsg() is None


def test_a_kernel_record() -> None:
    parsed = record(
        b"3,991,1529063497,-;ena 0000:20:03.0 eth0: Trigger reset is on\n"
        b" SUBSYSTEM=pci\n DEVICE=+pci:0000:20:03.0\n"
    )
    assert (parsed.sequence, parsed.monotonic_us, parsed.priority) == (991, 1529063497, 3)
    assert (parsed.facility, parsed.from_user) == (0, False)
    assert parsed.text == "ena 0000:20:03.0 eth0: Trigger reset is on"
    assert parsed.properties == {"SUBSYSTEM": "pci", "DEVICE": "+pci:0000:20:03.0"}
    assert parsed.device == "0000:20:03.0"


def test_a_partial_record_with_its_caller() -> None:
    parsed = record(b"6,7,8,c,caller=C39;more\n")
    assert (parsed.sequence, parsed.priority, parsed.text) == (7, 6, "more")


@pytest.mark.parametrize("number", [8, 12, 30], ids=["user", "user warning", "daemon"])
def test_a_line_written_by_a_process_is_marked(number: int) -> None:
    fake = b"[12345.678] ena 0000:20:03.0 eth0: Trigger reset is on"
    parsed = record(b"%d,1,2,-;%s\n" % (number, fake))
    assert parsed.from_user
    assert parsed.text == fake.decode()


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (rb"a\x1b[31m b", r"a\x1b[31m b"),
        (rb"one\x0atwo\x09\x00", r"one\ntwo\t\x00"),
        (rb"caf\xc3\xa9", "café"),
        (rb"\xff\xfe", r"\xff\xfe"),
        (rb"back\x5cslash \x5cx41", r"back\slash \x41"),
        (rb"\xe2\x80\xae right to left", r"\u202e right to left"),
        (b"raw \x1b \xff", r"raw \x1b \xff"),
    ],
)
def test_control_characters_are_escaped(raw: bytes, text: str) -> None:
    assert record(b"6,1,2,-;" + raw + b"\n").text == text


def test_a_dictionary_cannot_be_forged_and_is_bounded() -> None:
    assert record(rb"12,1,2,-;x\x0a DEVICE=+pci:0000:00:00.0" + b"\n").device == ""
    many = b"".join(b" K%d=%s\n" % (n, b"v" * 5000) for n in range(1000))
    parsed = record(b"6,1,2,-;x\n" + many)
    assert len(parsed.properties) == kmsg.MAX_PROPERTIES
    assert max(map(len, parsed.properties.values())) == 256


@pytest.mark.parametrize(
    "data",
    [b"", b";", b"no record", b"a,b,c,-;x", b"6,1;x", b"6,1,2;x", b"6" * 9000 + b",1,2,-;x"],
)
def test_bytes_that_are_not_a_record_are_ignored(data: bytes) -> None:
    assert kmsg.parse_record(data) is None


@hypothesis.given(st.binary(max_size=9000))
@hypothesis.settings(max_examples=60)
def test_any_bytes_give_a_printable_record_or_none(body: bytes) -> None:
    for data in (body, b"6,1,2,-;" + body):
        parsed = kmsg.parse_record(data)
        if parsed is not None:
            assert parsed.text.isprintable()
            assert len(parsed.text) <= kmsg.TEXT_LIMIT


def test_when_a_line_was_written() -> None:
    assert record(b"6,1,4000000,-;x\n").instant == clock.Clock(999_000_000_000, 4_000_000_000)
    ahead = record(b"6,1,4000000,-;x\n", ahead_us=16_000)
    assert ahead.instant.monotonic_ns == 4_016_000_000
    late = record(b"6,1,4000000,-;x\n", ahead_us=2_000_000)
    assert late.instant == READ_AT, "never after it was read"


def test_drift_is_the_smallest_of_the_last_minutes() -> None:
    drift = kmsg.Drift()
    assert drift.ahead_us == 0
    drift.learn(1_000_500, 1_000_000)
    drift.learn(2_000_050, 2_000_000)
    drift.learn(8_000_000, 3_000_000)  # the reader was starved for five seconds
    assert drift.ahead_us == 50
    drift.learn(302_000_900, 302_000_000)
    assert drift.ahead_us == 50, "a reading of five minutes ago counts"
    drift.learn(1_000_000_000_700, 1_000_000_000_000)
    assert drift.ahead_us == 700, "a reading of days ago does not count"


def test_drift_ignores_a_line_that_was_read_long_after_it_was_written() -> None:
    """A line without a newline stays unreadable until the next one, here 30 s later."""
    drift = kmsg.Drift()
    hour_us = 3_600_000_000
    drift.learn(hour_us + 30_000_000, hour_us)
    assert drift.ahead_us == 0, "its own time, not the time of the reading, is the event's"
    drift.learn(hour_us + 40_000_000, hour_us + 39_990_000)
    assert drift.ahead_us == 10_000


class Log:
    """A pipe that keeps each write apart, as /dev/kmsg does."""

    def __init__(self) -> None:
        reading, self._writing = os.pipe2(os.O_NONBLOCK | os.O_DIRECT)
        self.log = kmsg.KernelLog(reading, lambda: READ_AT)

    def write(self, *sequences: int, text: str = "x") -> None:
        for sequence in sequences:
            os.write(self._writing, b"6,%d,%d,-;%s\n" % (sequence, sequence, text.encode()))

    def close(self) -> None:
        self.log.close()
        os.close(self._writing)


@pytest.fixture
def log() -> Iterator[Log]:
    pipe_log = Log()
    yield pipe_log
    pipe_log.close()


def test_reading_never_blocks(log: Log) -> None:
    assert log.log.read() == []
    assert log.log.drained
    log.write(1, 2, 3)
    assert [entry.sequence for entry in log.log.read(2)] == [1, 2]
    assert not log.log.drained
    assert [entry.sequence for entry in log.log.read()] == [3]
    assert (log.log.lines, log.log.lost) == (3, 0)


def test_lost_lines_are_counted(log: Log) -> None:
    log.write(10, 11, 15)
    log.log.read()
    assert log.log.lost == 3
    log.write(20)
    log.log.read()
    assert (log.log.lost, log.log.lines) == (7, 4)


def test_only_wanted_lines_are_parsed_and_all_are_counted(log: Log) -> None:
    log.write(1, 2)
    log.write(3, text="Trigger reset")
    entries = log.log.read(wanted=lambda data: b"reset" in data)
    assert [entry.sequence for entry in entries] == [3]
    assert (log.log.lines, log.log.lost) == (3, 0)


def test_an_overwritten_record_is_not_an_error(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel returns EPIPE once, then the oldest record that is left."""
    log.write(1)
    log.log.read()
    log.write(90)
    real, failed = os.read, []

    def read(descriptor: int, size: int) -> bytes:
        if not failed:
            failed.append(True)
            raise BrokenPipeError
        return real(descriptor, size)

    monkeypatch.setattr(os, "read", read)
    assert [entry.sequence for entry in log.log.read()] == [90]
    assert log.log.lost == 88


def test_lines_from_before_the_start_do_not_change_the_drift(log: Log) -> None:
    log.write(1)
    assert log.log.read()[0].ahead_us == 0
    log.write(4_999_000)
    assert log.log.read()[0].ahead_us == 1000
