"""perf.data files that overnight writes and reads back."""

from __future__ import annotations

import os
import struct

import perfsamples
import pytest
from hypothesis import given
from hypothesis import strategies as st

from overnight.sources import perf
from overnight.sources.perf import events, segmentfile

BEGAN = perf.Clock(1_700_000_000_000_000_000, 5_000_000_000)
ENDED = perf.Clock(1_700_000_002_000_000_000, 7_000_000_000)
ATTR = events.EventAttr()


def sample(time: int, cpu: int = 0, pid: int = 7) -> bytes:
    body = struct.pack("<QiiQIIQQ", 0xABC, pid, pid, time, cpu, 0, 1, 0xABC)
    return struct.pack("<IHH", 9, 2, 8 + len(body)) + body


def lost(count: int, event: int = 11) -> bytes:
    return struct.pack("<IHHQQ", 2, 0, 24, event, count)


def parts() -> dict[int, bytes]:
    return segmentfile.features("web-1", ["overnight"], 2, (BEGAN, ENDED))


def write(path, *records: bytes, finish: bool = True) -> bytes:
    file = segmentfile.SegmentFile.create(path, ATTR.pack(), [11, 12])
    file.write(list(records))
    if finish:
        file.finish(parts())
    else:
        os.close(file.descriptor)
    return path.read_bytes()


def clock_of(path) -> tuple[int, int]:
    data = path.read_bytes()
    at = data.rindex(struct.pack("<II", 1, 1))
    return struct.unpack_from("<QQ", data, at + 8)


def test_written_records_are_read_back(tmp_path):
    write(tmp_path / "a", sample(1), sample(2, cpu=1), lost(3))
    samples = perfsamples.read_samples(tmp_path / "a")
    assert list(samples.time) == [1, 2]
    assert list(samples.cpu) == [0, 1]
    assert samples.lost == 3
    assert samples.finished


def test_unfinished_is_readable_and_completing_it_gives_the_same_file(tmp_path):
    whole = write(tmp_path / "a", sample(1), sample(2))
    write(tmp_path / "b", sample(1), sample(2), finish=False)
    assert not perfsamples.read_samples(tmp_path / "b").finished
    assert segmentfile.complete(tmp_path / "b", parts())
    assert (tmp_path / "b").read_bytes() == whole
    assert not segmentfile.complete(tmp_path / "b", parts())


@given(cut=st.integers(1, 200))
def test_a_file_cut_anywhere_keeps_its_whole_records(tmp_path_factory, cut):
    path = tmp_path_factory.mktemp("cut") / "a"
    size = len(write(path, sample(1), sample(2), sample(3), finish=False))
    os.truncate(path, max(size - cut, 0))
    segmentfile.complete(path, parts())
    if segmentfile.read_head(path):
        samples = perfsamples.read_samples(path)
        assert list(samples.time) == [1, 2, 3][: max(0, 3 - -(-cut // len(sample(1))))]


def test_zeros_at_the_end_are_not_records(tmp_path):
    path = tmp_path / "a"
    write(path, sample(1), finish=False)
    with path.open("ab") as file:
        file.write(bytes(4096))
    assert segmentfile.complete(path, parts())
    assert list(perfsamples.read_samples(path).time) == [1]


def test_a_header_of_zeros_is_replaced(tmp_path):
    whole = write(tmp_path / "a", sample(1))
    head = segmentfile.read_head(tmp_path / "a")
    write(tmp_path / "b", sample(1), finish=False)
    with (tmp_path / "b").open("r+b") as file:
        file.write(bytes(len(head)))
    assert not segmentfile.complete(tmp_path / "b", parts())
    assert segmentfile.complete(tmp_path / "b", parts(), head)
    assert (tmp_path / "b").read_bytes() == whole


@given(junk=st.binary(max_size=400))
def test_hostile_bytes_are_left_alone(tmp_path_factory, junk):
    path = tmp_path_factory.mktemp("junk") / "a"
    path.write_bytes(junk)
    assert not segmentfile.complete(path, parts())
    assert not segmentfile.set_clock(path, BEGAN)
    assert segmentfile.count_lost(path) == 0
    assert path.read_bytes() == junk


@given(at=st.integers(0, 700), value=st.integers(0, 255), head_cut=st.integers(0, 300))
def test_damaged_headers_raise_nothing(tmp_path_factory, at, value, head_cut):
    path = tmp_path_factory.mktemp("flip") / "a"
    data = bytearray(write(path, sample(1), lost(2)))
    data[at % len(data)] = value
    path.write_bytes(data[: len(data) - head_cut])
    segmentfile.set_clock(path, ENDED)
    segmentfile.count_lost(path)
    segmentfile.complete(path, parts())


def test_the_clock_reference_follows_a_step_and_nothing_else(tmp_path):
    path = tmp_path / "a"
    before = write(path, sample(1))
    noise = perf.Clock(BEGAN.wall_ns + 9_000_100, BEGAN.monotonic_ns + 9_000_000)
    assert not segmentfile.set_clock(path, noise)
    assert path.read_bytes() == before
    stepped = perf.Clock(BEGAN.wall_ns + 10**9, BEGAN.monotonic_ns)
    assert segmentfile.set_clock(path, stepped)
    assert clock_of(path) == (stepped.wall_ns, stepped.monotonic_ns)
    assert list(perfsamples.read_samples(path).time) == [1]


def test_lost_records_are_counted_and_similar_bytes_in_a_stack_are_not(tmp_path):
    chain = struct.pack("<QiiQIIQ", 1, 7, 7, 5, 0, 0, 3) + lost(999, event=10)
    decoy = struct.pack("<IHH", 9, 2, 8 + len(chain)) + chain
    write(tmp_path / "a", lost(4), decoy, sample(1), lost(5, event=12))
    assert segmentfile.count_lost(tmp_path / "a") == 9
    assert perfsamples.read_samples(tmp_path / "a").lost == 9


def test_side_band_excludes_samples():
    stream = memoryview(sample(1) + lost(1) + sample(2) + b"\x01")
    assert segmentfile.sideband(stream) == lost(1)


def test_a_full_disk_leaves_the_file_as_it_was(tmp_path, monkeypatch):
    file = segmentfile.SegmentFile.create(tmp_path / "a", ATTR.pack(), [1])
    file.write([sample(1)])

    def half(descriptor, chunks):
        return os.write(descriptor, b"".join(chunks)[:10])

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "writev", half)
    monkeypatch.setattr(os, "pwrite", full)
    with pytest.raises(OSError, match="No space"):
        file.write([sample(2), sample(3)])
    monkeypatch.undo()
    file.finish(parts())
    assert list(perfsamples.read_samples(tmp_path / "a").time) == [1]
