"""The ring after kill -9, on a full disk, and read by others while it is written."""

from __future__ import annotations

import os
import pathlib
import random
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest
import rings

from overnight.model.event import Event
from overnight.store.ring import check, reader

# A block of this many cores does not fit into the rest of its last page.
CORES = 64
SUPPORT = pathlib.Path(rings.__file__).parent
# Writes simulated seconds as fast as it can and prints each one that is stored.
WRITER = """
import pathlib, sys
import rings
home, begin, end = pathlib.Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
writer = rings.open_writer(home, block_seconds=20)
for second in range(begin, end):
    rings.record(writer, range(second, second + 1), cores=8)
    print(second, flush=True)
writer.close()
"""


def _start(home: pathlib.Path, begin: int, end: int) -> subprocess.Popen[str]:
    source = pathlib.Path(reader.__file__).parents[3]
    return subprocess.Popen(
        [sys.executable, "-c", WRITER, str(home), str(begin), str(end)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": f"{SUPPORT}{os.pathsep}{source}"},
    )


def test_kill_9_at_any_time_loses_nothing_that_was_written(tmp_path: pathlib.Path) -> None:
    seeded = random.Random(20261115)
    begin, kept = 0, []
    for _ in range(25):
        child = _start(tmp_path, begin, begin + 100_000)
        assert child.stdout is not None
        last = begin
        # Kill it after a number of seconds, in the middle of a later one: the pipe lets it run ahead.
        for _ in range(seeded.randrange(1, 90)):
            last = int(child.stdout.readline())
        child.send_signal(signal.SIGKILL)
        last = max([last, *(int(line) for line in child.stdout if line.endswith("\n"))])
        child.wait()
        child.stdout.close()
        kept.append(range(begin, last + 1))
        begin = last + 50
    source = reader.Reader(tmp_path)
    numbers = rings.everything(source)
    written: rings.Numbers = {}
    for seconds in kept:
        written.update(rings.expected_numbers(seconds, cores=8))
    assert {at: numbers[at] for at in written} == written
    # The only other second is the one in which it was killed, before it was printed.
    assert {at for at, _, _ in numbers} - {at for at, _, _ in written} <= {
        rings.us(seconds.stop) for seconds in kept
    }
    assert source.problems == []
    rings.open_writer(tmp_path).close()
    assert rings.open_files(tmp_path) == []
    assert rings.everything(source) == numbers
    assert check.check(tmp_path).problems == ()


def test_readers_see_everything_that_was_printed_while_it_is_written(
    tmp_path: pathlib.Path,
) -> None:
    child = _start(tmp_path, 0, 1500)
    assert child.stdout is not None
    source = reader.Reader(tmp_path)
    reads = 0
    for line in child.stdout:
        second = int(line)
        if second % 25:
            continue
        numbers = rings.everything(
            source, begin_us=rings.us(second - 60), end_us=rings.us(second + 1)
        )
        assert numbers == rings.expected_numbers(range(max(0, second - 60), second + 1), cores=8)
        reads += 1
    child.stdout.close()
    assert child.wait() == 0
    assert reads == 60
    assert source.problems == []


@pytest.fixture
def small_disk(tmp_path: pathlib.Path) -> Iterator[pathlib.Path]:
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(disk)], check=True)
    try:
        yield disk
    finally:
        # Lazily: a failed test may still have a file open there.
        subprocess.run(["umount", "-l", str(disk)], check=True)


def _fill(disk: pathlib.Path) -> pathlib.Path:
    path = disk / "filler"
    with path.open("ab", buffering=0) as file:
        for size in (65536, 4096, 1):
            try:
                while True:
                    file.write(bytes(size))
            except OSError:
                continue
    return path


@pytest.mark.needs_root
def test_a_full_disk_drops_readings_notes_gaps_and_continues(small_disk: pathlib.Path) -> None:
    writer = rings.open_writer(small_disk, block_seconds=30)
    rings.record(writer, range(100), cores=CORES)
    # Packing frees space, and how much is packed in a tick depends on its time: pack all of it first.
    while len(rings.open_files(small_disk)) > 1:
        writer.tick(rings.at(99))
    writer.facts("units", rings.at(100), {"a": {"state": "active"}})
    filler = _fill(small_disk)
    rings.record(writer, range(100, 300), cores=CORES)
    event = Event(rings.us(200), "net.driver_reset", id="while it was full")
    writer.event(event)
    assert writer.dropped
    source = reader.Reader(small_disk)
    so_far = {at for at, _, _ in rings.everything(source)}
    assert so_far >= {rings.us(second) for second in range(100)}
    filler.unlink()
    rings.record(writer, range(300, 400), cores=CORES)
    writer.close()
    numbers = rings.everything(source)
    expected = rings.expected_numbers(range(400), cores=CORES)
    assert all(expected[at] == value for at, value in numbers.items())
    seconds = {at for at, _, _ in numbers}
    assert seconds >= {rings.us(n) for n in (*range(100), *range(301, 400))}
    gaps = source.gaps(rings.HOST)
    missing = {rings.us(second) for second in range(400)} - seconds
    assert missing
    assert all(any(g.begin_us <= second <= g.end_us for g in gaps) for second in missing)
    assert all("No space left" in gap.why for gap in gaps)
    assert source.events(0, rings.EVER) == (event,)
    assert check.check(small_disk).problems == ()
    assert source.problems == []


@pytest.mark.needs_root
def test_a_block_that_a_full_disk_cannot_store_is_packed_later(small_disk: pathlib.Path) -> None:
    """Its readings stay in the open block and are packed once there is space."""
    writer = rings.open_writer(small_disk, block_seconds=10_000)
    rings.record(writer, range(200), cores=8)
    filler = _fill(small_disk)
    writer.close()
    assert len(rings.open_files(small_disk)) == 1
    assert rings.everything(reader.Reader(small_disk)) == rings.expected_numbers(
        range(200), cores=8
    )
    filler.unlink()
    rings.open_writer(small_disk).close()
    assert rings.open_files(small_disk) == []
    assert rings.everything(reader.Reader(small_disk)) == rings.expected_numbers(
        range(200), cores=8
    )
