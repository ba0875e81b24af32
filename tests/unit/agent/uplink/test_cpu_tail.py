from __future__ import annotations

import os
import pathlib

import uplinks

from overnight.agent.uplink import cpu_tail
from overnight.model import cpu
from overnight.store.ring import reader, records


def follow(tail: cpu_tail.CpuTail) -> dict[int, list[int]]:
    return {
        reading.wall_us: [reading.ticks[name][core] for name in cpu.MODES for core in range(4)]
        for reading in tail.poll()
    }


def stored(home: pathlib.Path) -> dict[int, list[int]]:
    """All readings, as the ring's reader reads them."""
    found: dict[int, list[int]] = {}
    for frame in reader.Reader(home).numbers(uplinks.HOST, "cpu", 0, 1 << 62):
        for n, wall_us in enumerate(frame.wall_us):
            found[wall_us] = [
                frame.series(str(core), name)[1][n] for name in cpu.MODES for core in range(4)
            ]
    return found


def test_readings_are_those_of_the_reader_also_across_blocks(tmp_path: pathlib.Path) -> None:
    ring = uplinks.LiveRing(tmp_path)
    tail = cpu_tail.CpuTail(ring.folder)
    found: dict[int, list[int]] = {}
    for second in range(1300):  # two blocks are sealed, packed and removed meanwhile
        busy = {second % 4: (70_000 if second % 50 == 0 else 300, 0, 1, 0, 0, 0, 0, 0, 0, 0)}
        ring.second(busy)
        if second % 7 == 0:
            found |= follow(tail)
    found |= follow(tail)
    assert found == stored(tmp_path)
    assert len(found) == 1300


def test_a_place_is_where_another_process_continues(tmp_path: pathlib.Path) -> None:
    ring = uplinks.LiveRing(tmp_path)
    ring.seconds(30)
    readings = list(cpu_tail.CpuTail(ring.folder).poll())
    assert {reading.boot for reading in readings} == {uplinks.BOOT[:8]}  # as in the ring's blocks
    again = cpu_tail.CpuTail(ring.folder, readings[17].place)
    assert list(again.poll()) == readings[17:]
    ring.seconds(5)
    assert len(list(again.poll())) == 5


def test_a_file_that_is_gone_is_no_obstacle(tmp_path: pathlib.Path) -> None:
    ring = uplinks.LiveRing(tmp_path)
    ring.seconds(3)
    tail = cpu_tail.CpuTail(ring.folder, ("1-00000000.open", 500))
    assert len(list(tail.poll())) == 3
    assert list(cpu_tail.CpuTail(tmp_path / "nowhere").poll()) == []


def test_a_clock_that_is_set_back_begins_another_file(tmp_path: pathlib.Path) -> None:
    ring = uplinks.LiveRing(tmp_path)
    tail = cpu_tail.CpuTail(ring.folder)
    ring.seconds(5)
    assert len(list(tail.poll())) == 5
    ring.wall_ns -= 3600 * 10**9
    ring.seconds(5)
    found = list(tail.poll())
    assert len(found) == 5
    assert len({reading.place[0] for reading in found}) == 1


def test_files_are_read_in_the_order_in_which_they_were_written(tmp_path: pathlib.Path) -> None:
    """The name of the later file is the earlier time: the clock was set back between them."""
    ring = uplinks.LiveRing(tmp_path)
    ring.seconds(5)
    ring.wall_ns -= 3600 * 10**9
    ring.seconds(5)
    files = sorted(ring.folder.glob("*.open"), reverse=True)
    assert len(files) == 2
    for n, path in enumerate(files):
        os.utime(path, (1000 + n, 1000 + n))
    monotonic = [reading.mono_us for reading in cpu_tail.CpuTail(ring.folder).poll()]
    assert monotonic == sorted(monotonic)
    assert len(monotonic) == 10


def test_a_record_that_is_being_written_is_read_later(tmp_path: pathlib.Path) -> None:
    ring = uplinks.LiveRing(tmp_path)
    ring.seconds(4)
    (path,) = ring.folder.glob("*.open")
    data = path.read_bytes()
    os.truncate(path, len(data) - 5)  # within the last record, of another signal
    tail = cpu_tail.CpuTail(ring.folder)
    assert len(list(tail.poll())) == 4
    last = list(cpu_tail.CpuTail(ring.folder).poll())[-1].place[1]
    _, length, _ = records.RECORD.unpack_from(data, last)
    end = last + records.RECORD.size + length
    for size, count in ((end - 1, 3), (end, 4)):  # read as soon as it is complete
        path.write_bytes(data[:size])
        assert len(list(cpu_tail.CpuTail(ring.folder).poll())) == count
    for end in range(len(data) - 200, len(data), 7):
        path.write_bytes(data[:end])
        assert len(list(cpu_tail.CpuTail(ring.folder).poll())) in (2, 3, 4)


def test_damage_ends_a_file_not_the_tail(tmp_path: pathlib.Path) -> None:
    ring = uplinks.LiveRing(tmp_path)
    ring.seconds(4)
    (path,) = ring.folder.glob("*.open")
    data = bytearray(path.read_bytes())
    data[200] ^= 255
    path.write_bytes(data)
    tail = cpu_tail.CpuTail(ring.folder)
    assert len(list(tail.poll())) < 4
    ring.ring.close()
    other = uplinks.LiveRing(tmp_path)
    other.seconds(3)
    assert len(list(tail.poll())) == 3
