"""The records of an open block. Few imports: the uplink of an agent follows them in 20 MB."""

from __future__ import annotations

import array
import struct
from collections.abc import Sequence

# Checksum of the rest, length of what follows the kind, kind.
RECORD = struct.Struct("<IIB")
# Table, wall and monotonic clock in µs, planes, whether the body is packed.
READING = struct.Struct("<HqqBB")
HEAD, ROWS, DELTAS, FACTS = range(4)


def join_planes(planes: Sequence[bytes], kind: str = "q") -> array.array[int]:
    """Return the numbers, of an `array` type of 2, 4 or 8 bytes, whose low bytes are the first plane."""
    numbers = array.array(kind)
    spread = bytearray(numbers.itemsize * len(planes[0]))
    for number, plane in enumerate(planes):
        spread[number :: numbers.itemsize] = plane
    numbers.frombytes(bytes(spread))
    return numbers
