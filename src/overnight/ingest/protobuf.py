"""Reads Protocol Buffers field by field; every length is checked against the data."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5


class WireError(Exception):
    """The bytes are not a valid message. Readers turn it into a DamagedFileError."""

    def __init__(self, problem: str, offset: int, *, ends_early: bool = False) -> None:
        super().__init__(problem, offset)
        self.problem = problem
        self.offset = offset
        self.ends_early = ends_early


@dataclasses.dataclass(frozen=True, slots=True)
class Field:
    """One field: an unsigned number, or bytes; `offset` is its position in the file."""

    number: int
    value: int | memoryview
    offset: int


def _varint(data: memoryview, at: int, base: int) -> tuple[int, int]:
    value = shift = 0
    while at < len(data):
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFFFFFFFFFFFFFF, at
        shift += 7
        if shift > 63:
            raise WireError("a number of more than ten bytes", base + at)
    raise WireError("a number that does not end", base + at, ends_early=True)


def fields(data: memoryview, base: int = 0) -> Iterator[Field]:
    """Yield every field of a message that begins at byte `base` of its file."""
    at, end = 0, len(data)
    while at < end:
        start = at
        key, at = _varint(data, at, base)
        wire, number = key & 7, key >> 3
        if number == 0:
            raise WireError("a field without a number", base + start)
        if wire == VARINT:
            value, at = _varint(data, at, base)
            yield Field(number, value, base + start)
            continue
        if wire == BYTES:
            size, at = _varint(data, at, base)
        elif wire in {FIXED64, FIXED32}:
            size = 8 if wire == FIXED64 else 4
        else:
            raise WireError(f"a field of unknown kind {wire}", base + start)
        if size > end - at:
            raise WireError("a field that extends past the end", base + start, ends_early=True)
        chunk = data[at : at + size]
        if wire == BYTES:
            yield Field(number, chunk, base + at)
        else:
            yield Field(number, int.from_bytes(chunk, "little"), base + start)
        at += size


def inside(field: Field) -> Iterator[Field]:
    """Yield the fields of a field that is itself a message."""
    if isinstance(field.value, int):
        raise WireError("a number instead of a message", field.offset)
    return fields(field.value, field.offset)


def numbers(field: Field) -> dict[int, int]:
    """Return the last number of each field of a message."""
    return {item.number: item.value for item in inside(field) if isinstance(item.value, int)}


def repeated(field: Field, number: int) -> list[int]:
    """Return the values of a repeated number inside a message, packed or not."""
    values: list[int] = []
    for item in inside(field):
        if item.number == number:
            if isinstance(item.value, int):
                values.append(item.value)
            else:
                at = 0
                while at < len(item.value):
                    value, at = _varint(item.value, at, item.offset)
                    values.append(value)
    return values


def signed(value: int) -> int:
    """Convert an int64, which is encoded as unsigned."""
    return value - (1 << 64) if value >= 1 << 63 else value
