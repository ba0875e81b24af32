"""The record stream of a perf.data file, decoded in pure Python: what `_perfdata.c` does in C.

Both give the same answer on the same bytes (tests/unit/sources/perf/test_records.py), hostile
bytes included: every length is checked against the record, every record against the stream.
"""

from __future__ import annotations

import struct
import sys
from array import array
from typing import TypeAlias

__all__ = ["Decoded", "decode_records"]

Decoded: TypeAlias = tuple[bytes, bytes, bytes, bytes, bytes, list[tuple[int, bytes]], int]

COMM, LOST, SAMPLE, LOST_SAMPLES = 3, 2, 9, 13
RECORD = struct.Struct("<IHH")
U64 = struct.Struct("<Q")
I32_PAIR = struct.Struct("<ii")

# Fields of a sample that stand before the last one we read, in the order the kernel writes them
# (include/uapi/linux/perf_event.h, PERF_RECORD_SAMPLE); each is eight bytes.
IDENTIFIER, IP, TID, TIME, ADDR, ID, STREAM_ID, CPU = (
    1 << 16, 1, 1 << 1, 1 << 2, 1 << 3, 1 << 6, 1 << 9, 1 << 7,
)  # fmt: skip
ORDER = (IDENTIFIER, IP, TID, TIME, ADDR, ID, STREAM_ID, CPU)


def _positions(sample_type: int) -> tuple[int, int, int, int]:
    """Offsets of tid, time and cpu in a sample record (-1: absent), and the bytes they need."""
    offset, found = RECORD.size, {}
    for field in ORDER:
        if sample_type & field:
            found[field] = offset
            offset += 8
    return found.get(TID, -1), found.get(TIME, -1), found.get(CPU, -1), offset


def decode_records(stream: memoryview, sample_type: int) -> Decoded:
    """Columns time, cpu, pid, tid, mode; the (tid, name) pairs in file order; samples lost.

    A record that the end of the stream cuts off is left out: a killed recorder leaves one.
    Raises ValueError(problem, offset) where the bytes contradict themselves.
    """
    tid_at, time_at, cpu_at, need = _positions(sample_type)
    times, cpus, pids, tids, modes = array("Q"), array("I"), array("i"), array("i"), bytearray()
    names: list[tuple[int, bytes]] = []
    lost = 0
    offset, end = 0, len(stream)
    while offset + RECORD.size <= end:
        kind, misc, size = RECORD.unpack_from(stream, offset)
        if size < RECORD.size:
            raise ValueError(f"a record of {size} bytes", offset)
        if offset + size > end:
            break
        if kind == SAMPLE:
            if size < need:
                raise ValueError(f"a sample of {size} bytes that needs {need}", offset)
            pid, tid = I32_PAIR.unpack_from(stream, offset + tid_at) if tid_at > 0 else (-1, -1)
            times.append(U64.unpack_from(stream, offset + time_at)[0] if time_at > 0 else 0)
            cpu = U64.unpack_from(stream, offset + cpu_at)[0] if cpu_at > 0 else 0
            cpus.append(cpu & 0xFFFFFFFF)
            pids.append(pid)
            tids.append(tid)
            modes.append(misc & 7)
        elif kind == COMM and size >= 16:
            tid = I32_PAIR.unpack_from(stream, offset + 8)[1]
            name = bytes(stream[offset + 16 : offset + size]).partition(b"\0")[0]
            names.append((tid, name))
        elif kind == LOST and size >= 24:
            lost += U64.unpack_from(stream, offset + 16)[0]
        elif kind == LOST_SAMPLES and size >= 16:
            lost += U64.unpack_from(stream, offset + 8)[0]
        offset += size
    if sys.byteorder == "big":  # the columns are little-endian wherever they are decoded
        for column in (times, cpus, pids, tids):
            column.byteswap()
    return (
        times.tobytes(),
        cpus.tobytes(),
        pids.tobytes(),
        tids.tobytes(),
        bytes(modes),
        names,
        lost & 0xFFFFFFFFFFFFFFFF,
    )
