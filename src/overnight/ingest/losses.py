"""When samples were lost: the kernel's LOST records, each with the time span it may cover.

The kernel writes a LOST record when its ring has room again: the loss is between the core's previous sample
and the record itself.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from overnight.model.times import SECOND_NS
from overnight.sources.perf import decode, perfdata
from overnight.store import capture

START = re.compile(re.escape(struct.pack("<IH", decode.LOST, 0)))
BODY = struct.Struct("<HQQ")
LATEST_NS = 2**62  # the year 2116
ORDER = (decode.TID, decode.TIME, decode.ID, decode.STREAM_ID, decode.CPU, decode.IDENTIFIER)


def find_losses(
    file: perfdata.PerfData,
    lost: int,
    time: npt.NDArray[np.int64],
    cpu: npt.NDArray[np.int32],
    shift: int,
) -> tuple[capture.Loss, ...]:
    """Find the losses of a file by second, in ns since the epoch like `time`; () where unknown.

    Searches for the records instead of walking a million of them. If bytes inside a stack look like one,
    the sum differs from `lost`, and the result is ().
    """
    if not lost:
        return ()
    records = [(at + shift, core, count) for at, core, count in _records(file)]
    in_time = all(0 <= at < LATEST_NS for at, *_ in records)
    if not in_time or sum(count for *_, count in records) != lost:
        return ()
    cores = {core for _, core, _ in records}
    by_core = {core: time[cpu == core] if core >= 0 else time[:1] for core in cores}
    by_second: dict[int, capture.Loss] = {}
    for at, core, count in records:
        own = by_core[core]
        before = int(np.searchsorted(own, at))
        since = int(own[before - 1]) if before else min([at, *time[:1].tolist()])
        known = by_second.get(at // SECOND_NS, capture.Loss(since, at + 1, 0))
        by_second[at // SECOND_NS] = capture.Loss(
            min(known.begin, since), max(known.end, at + 1), known.count + count
        )
    return tuple(loss for _, loss in sorted(by_second.items()))


def _records(file: perfdata.PerfData) -> Iterator[tuple[int, int, int]]:
    """Yield time on the samples' clock, core (-1: unknown), samples lost."""
    event = next((sampled for sampled in file.events if not sampled.dummy), file.events[0])
    if not event.sample_id_all or not event.sample_type & decode.TIME:
        return
    tail = [field for field in ORDER if event.sample_type & field]
    ids = {number for sampled in file.events for number in sampled.ids}
    for match in START.finditer(file.stream):
        at = match.start()
        if at % 8 or at + 24 + 8 * len(tail) > len(file.stream):
            continue
        size, number, count = BODY.unpack_from(file.stream, at + 6)
        if size != 24 + 8 * len(tail) or (ids and number not in ids):
            continue
        (time,) = struct.unpack_from("<Q", file.stream, at + 24 + 8 * tail.index(decode.TIME))
        core = -1
        if decode.CPU in tail:
            (core,) = struct.unpack_from("<i", file.stream, at + 24 + 8 * tail.index(decode.CPU))
        yield time, core, count
