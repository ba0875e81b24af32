"""The C decoder and the Python one give the same answer, on good bytes and on hostile ones."""

from __future__ import annotations

import importlib
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from overnight.sources.perf import events, records

EXTENSION = importlib.import_module("overnight.sources.perf._perfdata")
SAMPLE_TYPE = events.SAMPLE_IP | events.SAMPLE_TID | events.SAMPLE_TIME | events.SAMPLE_CPU


def record(kind: int, body: bytes, misc: int = 0, size: int | None = None) -> bytes:
    return struct.pack("<IHH", kind, misc, 8 + len(body) if size is None else size) + body


def sample(pid: int, tid: int, time: int, cpu: int, misc: int = 1) -> bytes:
    return record(9, struct.pack("<QiiQII", 0xFFFF, pid, tid, time, cpu, 0), misc)


STREAM = (
    record(3, struct.pack("<ii", 7, 7) + b"kubelet\0")
    + sample(7, 9, 1_000, 39)
    + record(2, struct.pack("<QQ", 1, 5))
    + record(13, struct.pack("<Q", 2))
    + sample(-1, -1, 2**64 - 1, 95, misc=2)
)
BOTH = pytest.mark.parametrize("decode", [records.decode_records, EXTENSION.decode_records])


@BOTH
def test_columns_names_and_losses(decode) -> None:
    time, cpu, pid, tid, mode, names, lost = decode(memoryview(STREAM), SAMPLE_TYPE)
    assert struct.unpack("<2Q", time) == (1_000, 2**64 - 1)
    assert struct.unpack("<2I", cpu) == (39, 95)
    assert struct.unpack("<2i", pid) == (7, -1)
    assert struct.unpack("<2i", tid) == (9, -1)
    assert mode == b"\x01\x02"
    assert names == [(7, b"kubelet")]
    assert lost == 7


@BOTH
def test_a_record_cut_off_by_the_end_is_left_out(decode) -> None:
    assert len(decode(memoryview(STREAM[:-1]), SAMPLE_TYPE)[4]) == 1


@BOTH
@pytest.mark.parametrize(
    ("bad", "problem"),
    [
        (record(9, b"\0" * 8), "a sample of 16 bytes that needs 40"),
        (record(1, b"", size=7), "a record of 7 bytes"),
        (record(1, b"", size=0), "a record of 0 bytes"),
    ],
)
def test_bytes_that_contradict_themselves_are_refused(decode, bad: bytes, problem: str) -> None:
    good = sample(1, 1, 1, 1)
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - the arguments are checked below
        decode(memoryview(good + bad), SAMPLE_TYPE)
    assert caught.value.args == (problem, len(good))


def outcome(decode, stream: bytes, sample_type: int) -> object:
    try:
        return decode(memoryview(stream), sample_type)
    except ValueError as error:
        return error.args


hostile = st.lists(
    st.one_of(
        st.binary(max_size=48),
        st.builds(
            record,
            st.sampled_from([1, 2, 3, 9, 13, 2**32 - 1]),
            st.binary(max_size=64),
            st.integers(0, 2**16 - 1),
            st.one_of(st.none(), st.integers(0, 2**16 - 1)),
        ),
        st.just(STREAM),
    ),
    max_size=8,
).map(b"".join)


@given(hostile, st.integers(min_value=0, max_value=2**64 - 1))
def test_both_agree_on_any_bytes(stream: bytes, sample_type: int) -> None:
    assert outcome(EXTENSION.decode_records, stream, sample_type) == outcome(
        records.decode_records, stream, sample_type
    )
