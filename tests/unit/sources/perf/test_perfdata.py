from __future__ import annotations

import contextlib
import pathlib
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from overnight import errors
from overnight.sources.perf import events, perfdata

SAMPLE_TYPE = events.SAMPLE_TID | events.SAMPLE_TIME | events.SAMPLE_CPU
ATTR_SIZE = 144


def perf_data(stream: bytes, *, size: int | None = None) -> bytes:
    """A small perf.data: header, one attribute, records."""
    start = perfdata.HEADER.size + ATTR_SIZE
    head = perfdata.HEADER.pack(
        b"PERFILE2", 104, ATTR_SIZE, perfdata.HEADER.size, ATTR_SIZE, start,
        len(stream) if size is None else size, 0, 0,
    )  # fmt: skip
    attr = perfdata.ATTR_START.pack(1, 128, 0, 97, SAMPLE_TYPE, 0, 0)
    return head + attr.ljust(ATTR_SIZE, b"\0") + stream


def sample(tid: int) -> bytes:
    return struct.pack("<IHHiiQII", 9, 1, 32, 7, tid, 5, 3, 0)


COMM = struct.pack("<IHHii16s", 3, 0, 32, 7, 7, b"kub\x1b[31m\0")
GOOD = perf_data(COMM + sample(7) + sample(8))


def write(folder: pathlib.Path, body: bytes) -> pathlib.Path:
    path = folder / "perf.data"
    path.write_bytes(body)
    return path


def test_samples_of_a_file(tmp_path: pathlib.Path) -> None:
    samples = perfdata.read_samples(write(tmp_path, GOOD))
    assert len(samples) == 2
    assert list(samples.tid) == [7, 8]
    assert list(samples.cpu) == [3, 3]
    assert samples.comms == {0: "swapper", 7: "kub\x1b[31m"}
    assert samples.finished


def test_a_killed_recorders_file_is_read_to_its_end(tmp_path: pathlib.Path) -> None:
    samples = perfdata.read_samples(write(tmp_path, perf_data(sample(1) + b"\x09\0\0", size=0)))
    assert len(samples) == 1
    assert not samples.finished


@pytest.mark.parametrize(
    ("body", "at"),
    [(b"", 0), (b"PERFILE2", 8), (b"\x7fELF" * 40, 0), (perf_data(b"\x01\0\0\0\0\0\x02\0"), 216)],
)
def test_what_is_no_perf_data_is_refused_with_the_byte(
    tmp_path: pathlib.Path, body: bytes, at: int
) -> None:
    with pytest.raises(errors.DamagedFileError) as caught:
        perfdata.read_samples(write(tmp_path, body))
    assert caught.value.offset == at


@given(st.integers(0, len(GOOD) - 1), st.integers(1, 255), st.integers(0, len(GOOD)))
def test_flipped_and_cut_files_are_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, at: int, flip: int, cut: int
) -> None:
    body = bytearray(GOOD)
    body[at] ^= flip
    path = write(tmp_path_factory.mktemp("flip"), bytes(body[:cut]))
    with contextlib.suppress(errors.DamagedFileError):
        assert len(perfdata.read_samples(path)) <= 2
