from __future__ import annotations

import struct

import pytest

from overnight.sources import clocksync


def timex(offset: int, status: int) -> bytes:
    return struct.pack("@Illlli", 0, offset, 12, 400, 30, status) + bytes(100)


@pytest.mark.parametrize(
    ("offset", "status", "row"),
    [
        (0, 0x40, (1, 0x40, 0, 400, 30)),
        (-1500, 0x01, (0, 0x01, -1500, 400, 30)),
        (-1_500_999, 0x2001, (0, 0x2001, -1500, 400, 30)),
        (1_500_999, 0x2041, (1, 0x2041, 1500, 400, 30)),
    ],
    ids=["nobody keeps it", "microseconds", "nanoseconds", "nanoseconds and lost"],
)
def test_states(offset: int, status: int, row: tuple[int, ...]) -> None:
    assert clocksync.parse_clocksync(timex(offset, status)) == row
