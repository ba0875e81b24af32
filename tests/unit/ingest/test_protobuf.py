from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from overnight.ingest import protobuf


def test_each_kind_of_field_is_read() -> None:
    data = b"\x08\x96\x01" + b"\x12\x02hi" + b"\x19\x01" + b"\0" * 7 + b"\x25\x02\0\0\0"
    fields = [
        (field.number, field.value if isinstance(field.value, int) else bytes(field.value))
        for field in protobuf.fields(memoryview(data), 100)
    ]
    assert fields == [(1, 150), (2, b"hi"), (3, 1), (4, 2)]
    assert [field.offset for field in protobuf.fields(memoryview(data), 100)] == [
        100,
        105,
        107,
        116,
    ]


@pytest.mark.parametrize(
    ("data", "problem", "offset", "ends_early"),
    [
        (b"\x08", "does not end", 1, True),
        (b"\x08\x80", "does not end", 2, True),
        (b"\x08" + b"\x80" * 10, "more than ten bytes", 11, False),
        (b"\x08\x01\x12\x05hi", "past the end", 2, True),
        (b"\x08\x01\x19\x00", "past the end", 2, True),
        (b"\x0b", "unknown kind 3", 0, False),
        (b"\x00\x00", "without a number", 0, False),
    ],
)
def test_an_invalid_message_is_reported_with_its_offset(
    data: bytes, problem: str, offset: int, ends_early: bool
) -> None:
    with pytest.raises(protobuf.WireError, match=problem) as caught:
        list(protobuf.fields(memoryview(data)))
    assert (caught.value.offset, caught.value.ends_early) == (offset, ends_early)


def test_repeated_numbers_may_be_packed_or_not() -> None:
    field = protobuf.Field(9, memoryview(b"\x08\x01\x0a\x03\x02\x80\x01\x08\x03\x10\x07"), 0)
    assert protobuf.repeated(field, 1) == [1, 2, 128, 3]
    assert protobuf.repeated(field, 3) == []
    assert protobuf.numbers(field) == {1: 3, 2: 7}
    with pytest.raises(protobuf.WireError):
        protobuf.inside(protobuf.Field(9, 7, 0))


def test_negative_numbers() -> None:
    assert [protobuf.signed(value) for value in (5, 2**64 - 1, 2**63)] == [5, -1, -(2**63)]


@given(st.binary(max_size=200))
def test_any_bytes_end_or_are_refused(data: bytes) -> None:
    read, offset = 0, 0
    try:
        for field in protobuf.fields(memoryview(data)):
            read += 1 if isinstance(field.value, int) else len(field.value)
    except protobuf.WireError as error:
        offset = error.offset
    assert 0 <= offset <= len(data)
    assert read <= len(data)
