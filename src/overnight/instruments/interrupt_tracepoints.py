"""Time in softirqs and interrupt handlers by perf, for hosts without bpftrace: the same readings as interrupt-time."""

from __future__ import annotations

import re
from collections.abc import Iterator

from overnight.instruments import _perf, interrupt_time
from overnight.model.instrument import Reading, ReadingKind

SOFTIRQ = re.compile(rb"vec=(\d+) \[action=(\w+)\]")
HARDIRQ = re.compile(rb"irq=(\d+)(?: name=(.*))?", re.DOTALL)


def make_reader() -> _perf.EventReader:
    began: dict[tuple[ReadingKind, int, bytes], int] = {}
    sums: dict[tuple[ReadingKind, int, bytes], list[float]] = {}
    names: dict[bytes, str] = {}

    def read_event(core: int, at: int, name: bytes, fields: bytes) -> None:
        is_soft = name.startswith(b"softirq")
        match = (SOFTIRQ if is_soft else HARDIRQ).match(fields)
        if match is None:
            return
        kind = ReadingKind.SOFTIRQ if is_soft else ReadingKind.HARDIRQ
        key = (kind, core, match[2] if is_soft else match[1])
        if name.endswith(b"_entry"):
            began[key] = at
            if not is_soft and match[2]:
                names[match[1]] = match[2].strip().decode("utf-8", "replace")
        elif (since := began.pop(key, None)) is not None:
            row = sums.setdefault(key, [0, 0.0, 0.0])
            us = max(0, at - since) / 1e3
            row[:] = row[0] + 1, row[1] + us, max(row[2], us)

    def sum_up() -> Iterator[Reading]:
        for (kind, core, vector), (count, total, highest) in sorted(sums.items()):
            subject = f"{vector.decode()} {names.get(vector, '')}".rstrip()
            values = {"count": count, "total_us": total, "max_us": highest}
            yield Reading(0, kind, core, subject=subject, values=values)
        sums.clear()

    return _perf.EventReader(read_event, sum_up)


INSTRUMENT = _perf.Instrument(
    "interrupt-tracepoints",
    "as interrupt-time, by perf: for hosts without bpftrace",
    interrupt_time.PROGRAM.tracepoints,
    make_reader,
)
