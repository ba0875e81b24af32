"""Stream tracepoints with `perf record | perf script`, and sum them up here, second by second.

Sample of the text (perf 6.1)::

    [000] 24156.810998279:     sched:sched_wakeup: comm=migration/0 pid=18 prio=0 target_cpu=000
    [001] 24160.976040245:      irq:softirq_exit: vec=7 [action=SCHED]

It costs more than a bpftrace program, which sums up in the kernel, but only needs perf.
"""

from __future__ import annotations

import dataclasses
import pathlib
import re
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from overnight import instruments

if TYPE_CHECKING:
    from overnight.model.instrument import Reading

SECOND_NS = 1_000_000_000
LINE = re.compile(rb"\s*\[(\d+)\]\s+(\d+)\.(\d{9}):\s+\w+:(\w+): (.*)", re.DOTALL)
LOST = re.compile(rb"PERF_RECORD_LOST(?:_SAMPLES)? lost (\d+)|LOST (\d+) events")
# Lines of several cores arrive out of order; a second is over when a line of the one after it is this late.
LATE_NS = SECOND_NS // 2


class EventReader:
    """Calls `event` with core, nanoseconds, name and fields of each line, and `sums` after each second."""

    def __init__(
        self, event: Callable[[int, int, bytes, bytes], None], sums: Callable[[], Iterable[Reading]]
    ) -> None:
        self.lost = 0
        self._event, self._sums = event, sums
        self._end_ns = 0

    def feed(self, line: bytes) -> Iterator[tuple[int, Reading]]:
        match = LINE.match(line)
        if match is None:
            if lost := LOST.search(line):
                self.lost += int(lost[1] or lost[2])
            return
        at = int(match[2]) * SECOND_NS + int(match[3])
        if at >= self._end_ns + LATE_NS:
            if self._end_ns:
                for reading in self._sums():
                    yield self._end_ns, reading
            self._end_ns = (at // SECOND_NS + 1) * SECOND_NS
        self._event(int(match[1]), at, match[4], match[5])


@dataclasses.dataclass
class Instrument(instruments.Instrument):
    name: str
    about: str
    tracepoints: instruments.Tracepoints
    make_reader: Callable[[], EventReader]
    tool: str = "perf"

    def prepare(self, target: str, root: pathlib.Path = instruments.ROOT) -> instruments.Pipeline:  # noqa: ARG002 - it takes no target
        perf = instruments.find_tool("perf")
        instruments.need_tracepoints(self.tracepoints, root)
        # Times by a clock that other processes have, too; perf writes when half of a core's megabyte is used.
        record = f"record -q -a -k mono -m 1M -o - -e {','.join(self.tracepoints)}"
        script = "script -i - --ns -F cpu,time,event,trace --show-lost-events"
        commands = ((perf, *record.split()), (perf, *script.split()))
        return instruments.Pipeline(commands, self.make_reader())
