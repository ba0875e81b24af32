"""One column of numbers as bytes that compress well.

What is coded are the differences from one look to the next, all of one key, then all of the next:
a core's seconds resemble each other more than a second's cores do (measured: 13 % smaller). They are
laid out in byte planes, all low bytes first: lzma then sees one kind of noise at a time.
"""

from __future__ import annotations

import array
import lzma
import zlib
from collections.abc import Sequence
from typing import NamedTuple

from overnight.store.ring import layout

__all__ = [
    "Coded",
    "DamagedError",
    "code",
    "decode",
    "expand",
    "inflate",
    "lanes",
    "pack",
    "planes_of",
    "widen",
]

# Matches are rare in noise: what counts is the literal coder, with four bits of the byte before as
# its context. A dictionary of 256 KiB keeps the encoder at 3 MB.
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
SIGN = 1 << 63


class DamagedError(Exception):
    """The bytes are not what they claim to be; the message says in which way."""


class Coded(NamedTuple):
    """A column in planes. `zigzag`: some of it falls, and the sign stands in the lowest bit."""

    data: bytes
    planes: int
    zigzag: bool


def pack(data: bytes) -> tuple[int, bytes]:
    """The codec's number and the bytes to store."""
    if len(data) >= 32:
        packed = lzma.compress(data, lzma.FORMAT_RAW, filters=FILTERS)
        if len(packed) < len(data):
            return LZMA, packed
    return PLAIN, data


def expand(codec: int, stored: bytes, size: int) -> bytes:
    """What was packed, `size` bytes of it; takes no more memory than that, whatever it claims."""
    if not 0 <= size <= layout.MOST_BYTES:
        raise DamagedError(f"claims {size} bytes")
    if codec == PLAIN:
        data = stored
    elif codec == LZMA:
        unpacker = lzma.LZMADecompressor(lzma.FORMAT_RAW, filters=FILTERS)
        try:
            # One byte more than there should be, so that too much is seen.
            data = unpacker.decompress(stored, max_length=size + 1)
        except (lzma.LZMAError, EOFError) as error:
            raise DamagedError(f"cannot be unpacked: {error}") from error
    else:
        raise DamagedError(f"is packed in a way {codec} that this version does not know")
    if len(data) != size:
        raise DamagedError(f"holds {len(data)} bytes or more instead of {size}")
    return data


def inflate(stored: bytes, most: int = layout.MOST_BYTES) -> bytes:
    """Undo zlib within the limit."""
    unpacker = zlib.decompressobj()
    try:
        data = unpacker.decompress(stored, max(1, most))
    except zlib.error as error:
        raise DamagedError(f"cannot be unpacked: {error}") from error
    if not unpacker.eof:
        raise DamagedError("is cut short or larger than anything that was written")
    return data


def planes_of(data: bytes) -> bytes:
    """The eight byte planes of 64-bit numbers, lowest first."""
    return b"".join(data[plane::8] for plane in range(8))


def code(planes: Sequence[bytes]) -> Coded:
    """A column from its planes (two's complement, 1, 2 or 8 of them), as few as say it all."""
    kept = list(planes)
    if len(kept) == 8 and kept[7].count(0) < len(kept[7]):
        numbers = _join(kept)
        # A Python loop, for the few columns that fall: gauges, and iowait, which the kernel corrects.
        twisted = array.array("Q", [n << 1 if n >= 0 else ~(n << 1) for n in numbers])
        data = twisted.tobytes()
        return Coded(*_trimmed([data[plane::8] for plane in range(8)]), True)
    return Coded(*_trimmed(kept), False)


def _trimmed(planes: list[bytes]) -> tuple[bytes, int]:
    while planes and planes[-1].count(0) == len(planes[-1]):
        planes.pop()
    return b"".join(planes), len(planes)


def _join(planes: Sequence[bytes]) -> array.array[int]:
    spread = bytearray(8 * len(planes[0]))
    for number, plane in enumerate(planes):
        spread[number::8] = plane
    numbers = array.array("q")
    numbers.frombytes(bytes(spread))
    return numbers


def decode(data: bytes, planes: int, zigzag: bool, count: int) -> Sequence[int]:
    """The `count` numbers of a column; the opposite of `code`."""
    if not 0 <= planes <= 8 or len(data) != planes * count:
        raise DamagedError(f"a column has {len(data)} bytes instead of {planes} times {count}")
    if planes == 0:
        return bytes(count)
    if planes == 1 and not zigzag:
        return data
    parts = [data[plane * count : (plane + 1) * count] for plane in range(planes)]
    if not zigzag and planes <= 2:
        return widen(parts, 2)
    numbers = _join(parts)
    if zigzag:
        raw = array.array("Q")
        raw.frombytes(numbers.tobytes())
        return array.array("q", [n >> 1 if not n & 1 else ~(n >> 1) for n in raw])
    return numbers


def widen(planes: Sequence[bytes], width: int) -> array.array[int]:
    """Planes as numbers of 2 or 4 bytes that never fall below zero."""
    spread = bytearray(width * len(planes[0]))
    for number, plane in enumerate(planes):
        spread[number::width] = plane
    numbers = array.array({2: "H", 4: "I"}[width])
    numbers.frombytes(bytes(spread))
    return numbers


def lanes(coded: Coded, count: int) -> int:
    """A column of one or two planes as one large integer with 32 bits for each number."""
    if coded.zigzag or coded.planes > 2 or len(coded.data) != coded.planes * count:
        raise DamagedError("a sum over a column that was never summed")
    parts = [coded.data[plane * count : (plane + 1) * count] for plane in range(coded.planes)]
    if not parts:
        return 0
    return int.from_bytes(widen(parts, 4).tobytes(), "little")
