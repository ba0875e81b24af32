"""One column of numbers as bytes that compress well.

The differences between consecutive readings are encoded, all of one key, then all of the next: the
seconds of a core resemble each other more than the cores of a second (measured: 13 % smaller). They are
laid out in byte planes, all low bytes first, so that lzma sees one kind of noise at a time.
"""

from __future__ import annotations

import array
import lzma
import zlib
from collections.abc import Sequence
from typing import NamedTuple

from overnight.store.ring import layout, records

# Matches are rare in noise: the literal coder matters, with four bits of the previous byte as context. A
# dictionary of 256 KiB keeps the encoder at 3 MB.
FILTERS = (
    {
        "id": lzma.FILTER_LZMA1,
        "dict_size": 1 << 18,
        "lc": 4,
        "lp": 0,
        "pb": 0,
        "mode": lzma.MODE_NORMAL,
        "mf": lzma.MF_BT4,
        "nice_len": 32,
        "depth": 0,
    },
)
PLAIN, LZMA = 0, 1
# What invalid values raise where numbers and names are expected.
INVALID = (
    AttributeError, IndexError, KeyError, OverflowError, RecursionError, TypeError, ValueError,
)  # fmt: skip


class DamagedError(Exception):
    """Stored bytes are invalid. The message follows the name of what is damaged: "is cut short"."""


class EmptyError(DamagedError):
    """Not even one whole record: a writer has just begun, or was killed at the begin."""


class NewerVersionError(DamagedError):
    """A later version of overnight wrote it."""

    def __init__(self, version: int) -> None:
        super().__init__(
            f"has version {version}; this overnight reads versions up to {layout.VERSION}: "
            "update overnight"
        )


def parse_number(value: float) -> int:
    """Return a stored number; raise one of INVALID where 63 bits do not hold it."""
    number = int(value)
    if abs(number) >> 62:
        raise ValueError("a number is out of range")
    return number


def wrap(number: int) -> int:
    """Wrap a number to 64 bits, with a sign."""
    return (number + (1 << 63)) % (1 << 64) - (1 << 63)


class Coded(NamedTuple):
    """A column in planes. `zigzag`: some steps are negative, and the sign is the lowest bit."""

    data: bytes
    planes: int
    zigzag: bool


def pack(data: bytes) -> tuple[int, bytes]:
    """Return the codec's number and the bytes to store."""
    if len(data) >= 32:
        packed = lzma.compress(data, lzma.FORMAT_RAW, filters=FILTERS)
        if len(packed) < len(data):
            return LZMA, packed
    return PLAIN, data


def expand(codec: int, stored: bytes, size: int) -> bytes:
    """Unpack exactly `size` bytes, in no more memory than that, whatever the data claims."""
    if not 0 <= size <= layout.MAX_BYTES:
        raise DamagedError(f"claims {size} bytes")
    if codec == PLAIN:
        data = stored
    elif codec == LZMA:
        unpacker = lzma.LZMADecompressor(lzma.FORMAT_RAW, filters=FILTERS)
        try:
            # One byte more than expected, to detect excess.
            data = unpacker.decompress(stored, max_length=size + 1)
        except (lzma.LZMAError, EOFError) as error:
            raise DamagedError(f"cannot be unpacked: {error}") from error
    else:
        raise DamagedError(f"has an unknown compression ({codec})")
    if len(data) != size:
        raise DamagedError(f"holds {len(data)} bytes or more instead of {size}")
    return data


def inflate(stored: bytes, max_bytes: int) -> bytes:
    """Decompress zlib data to at most `max_bytes`."""
    unpacker = zlib.decompressobj()
    try:
        data = unpacker.decompress(stored, max(1, max_bytes))
    except zlib.error as error:
        raise DamagedError(f"cannot be unpacked: {error}") from error
    if not unpacker.eof:
        raise DamagedError("is cut short or too large")
    return data


def split(data: bytes) -> list[bytes]:
    """Return the eight byte planes of 64-bit numbers, lowest first."""
    return [data[plane::8] for plane in range(8)]


def code(planes: Sequence[bytes]) -> Coded:
    """Encode a column from its planes (two's complement; 1, 2 or 8), in as few planes as possible."""
    kept = list(planes)
    if len(kept) == 8 and kept[7].count(0) < len(kept[7]):
        numbers = records.join_planes(kept)
        # A Python loop, for the few columns that can fall: gauges, and iowait, which the kernel corrects.
        twisted = array.array("Q", [n << 1 if n >= 0 else ~(n << 1) for n in numbers])
        return Coded(*_trimmed(split(twisted.tobytes())), True)
    return Coded(*_trimmed(kept), False)


def _trimmed(planes: list[bytes]) -> tuple[bytes, int]:
    while planes and planes[-1].count(0) == len(planes[-1]):
        planes.pop()
    return b"".join(planes), len(planes)


def decode(data: bytes, planes: int, zigzag: bool, count: int) -> Sequence[int]:
    """Decode the `count` numbers of a column; the inverse of `code`."""
    if not 0 <= planes <= 8 or len(data) != planes * count:
        raise DamagedError(f"has a column of {len(data)} bytes instead of {planes} times {count}")
    if planes == 0:
        return bytes(count)
    if planes == 1 and not zigzag:
        return data
    parts = [data[plane * count : (plane + 1) * count] for plane in range(planes)]
    if zigzag:
        return array.array(
            "q", [n >> 1 if not n & 1 else ~(n >> 1) for n in records.join_planes(parts, "Q")]
        )
    return records.join_planes(parts, "H" if planes <= 2 else "q")


def lanes(coded: Coded, count: int) -> int:
    """Return a column of one or two planes as one large integer, 32 bits per number."""
    if coded.zigzag or coded.planes > 2 or len(coded.data) != coded.planes * count:
        raise DamagedError("has a sum over a column that cannot be summed")
    parts = [coded.data[plane * count : (plane + 1) * count] for plane in range(coded.planes)]
    if not parts:
        return 0
    return int.from_bytes(records.join_planes(parts, "I").tobytes(), "little")


def code_lanes(total: int, count: int) -> Coded:
    """Encode a column from one large integer, 32 bits per number."""
    data = total.to_bytes(4 * count, "little")
    return code([data[plane::4] for plane in range(4)])
