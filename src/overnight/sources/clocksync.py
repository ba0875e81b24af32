"""Whether the host's clock is synchronized, from the adjtimex system call with nothing to set.

The kernel's `struct timex` begins as follows; errors are in microseconds, and so is the offset unless
STA_NANO is set in the status::

    unsigned modes; long offset; long freq; long maxerror; long esterror; int status; ...

The clock is the kernel's own, whatever the root.
"""

from __future__ import annotations

import os
import pathlib
import struct

from overnight import sources

STA_UNSYNC = 0x0040
STA_NANO = 0x2000
_SIZE = 256  # the struct has 208 bytes on 64 bits, 128 on 32
_HEAD = struct.Struct("@Illlli")


def parse_clocksync(timex: bytes) -> tuple[int, ...]:
    """Return 1 if the clock is unsynchronized, the status bits, offset, maximum and estimated error in us.

    >>> parse_clocksync(_HEAD.pack(0, -1500, 0, 16_000_000, 16_000_000, STA_UNSYNC))
    (1, 64, -1500, 16000000, 16000000)
    """
    _, offset, _, largest, estimated, status = _HEAD.unpack_from(timex)
    if status & STA_NANO:
        offset = int(offset / 1000)  # rounds towards zero for both signs
    return int(bool(status & STA_UNSYNC)), status, offset, largest, estimated


def open_clocksync(_root: pathlib.Path = sources.ROOT) -> sources.Reader:
    """Open a reader of the kernel's clock; it changes nothing and needs no permission."""
    import ctypes

    adjtimex = ctypes.CDLL(None, use_errno=True).adjtimex
    buffer = ctypes.create_string_buffer(_SIZE)

    def read() -> dict[str, tuple[int, ...]]:
        ctypes.memset(buffer, 0, _SIZE)  # modes = 0: read only
        if adjtimex(buffer) < 0:
            number = ctypes.get_errno()
            raise sources.NoDataError(f"adjtimex: {os.strerror(number)}")
        return {"": parse_clocksync(buffer.raw)}

    return read


COLUMNS = ("unsynced", "status", "offset", "max_error", "estimated_error")
SIGNALS = (sources.Signal("clock", 10.0, "", COLUMNS, open_clocksync),)
