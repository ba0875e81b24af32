"""Run-queue latency by perf, for hosts without bpftrace: the same readings as runqueue-latency."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator

from overnight.instruments import _perf, runqueue_latency
from overnight.model.instrument import Reading, ReadingKind

WAKEUP = re.compile(rb"comm=.* pid=(\d+) prio=", re.DOTALL)
SWITCH = re.compile(
    rb"prev_comm=.* prev_pid=(\d+) prev_prio=-?\d+ prev_state=(\S+) ==> next_comm=(.*) next_pid=(\d+) next_prio=",
    re.DOTALL,
)
MAX_LONG = 100  # tasks a second
MAX_WAITING = 100_000


def make_reader() -> _perf.EventReader:
    runnable: dict[bytes, int] = {}
    waits: dict[int, list[float]] = defaultdict(list)
    long: list[Reading] = []

    def read_event(core: int, at: int, name: bytes, fields: bytes) -> None:
        if name != b"sched_switch":
            if (woken := WAKEUP.match(fields)) and len(runnable) < MAX_WAITING:
                runnable[woken[1]] = at
            return
        switch = SWITCH.match(fields)
        if switch is None:
            return
        before, state, comm, after = switch.groups()
        if before != b"0" and state.startswith(b"R"):  # R+: preempted
            runnable[before] = at
        since = runnable.pop(after, None)
        if since is None or after == b"0":
            return
        us = max(0, at - since) / 1e3
        waits[core].append(us)
        if us >= runqueue_latency.LONG_US and len(long) < MAX_LONG:
            who = comm.decode("utf-8", "replace")
            long.append(Reading(0, ReadingKind.RUN_QUEUE, core, int(after), who, values={"max_us": us}))  # fmt: skip

    def sum_up() -> Iterator[Reading]:
        for core, times in sorted(waits.items()):
            times.sort()
            p50, p99 = (
                times[min(len(times) - 1, int(share * len(times)))] for share in (0.5, 0.99)
            )
            values = {"count": len(times), "p50_us": p50, "p99_us": p99, "max_us": times[-1]}
            yield Reading(0, ReadingKind.RUN_QUEUE, core, values=values)
        yield from long
        waits.clear()
        long.clear()

    return _perf.EventReader(read_event, sum_up)


INSTRUMENT = _perf.Instrument(
    "scheduler-tracepoints",
    "as runqueue-latency, by perf: for hosts without bpftrace",
    runqueue_latency.PROGRAM.tracepoints,
    make_reader,
)
