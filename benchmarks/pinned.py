"""False alarms about pinned cores on a day of ordinary work on 96 cores, and faults found in the same day.

Recorded mixes of work (`support.mixes`) are cut into blocks of a minute and put together at random: all cores of a
block stay together, because jobs move from core to core, and enough blocks beside each other make 96 cores.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Iterator
from typing import TYPE_CHECKING

from benchmarks import Result
from benchmarks.support import mixes
from overnight.agent import event_tracker
from overnight.agent.watches import cores
from overnight.model import clock
from overnight.model.severity import Severity

if TYPE_CHECKING:
    from overnight.model.event import Event

__all__ = ["measure"]

CORES, DAY, BLOCK = 96, 86_400, 60
SECOND_NS = 1_000_000_000
# A fault of six seconds in the kernel, once in ten minutes, on a core that the work goes on to use as well.
FAULT_SECONDS, FAULT_EVERY = 6, 600


@dataclasses.dataclass(frozen=True)
class Day:
    """What the watch reported in a day, each event as it was when it ended."""

    events: tuple[Event, ...]
    faults: int
    found: int

    def alarms(self, kind: str = "cpu.core_pinned") -> int:
        return sum(e.kind == kind and Severity.of(e.severity).rank > 0 for e in self.events)

    def infos(self) -> int:
        return sum(Severity.of(e.severity).rank == 0 for e in self.events)


def seconds_of(rows: mixes.Rows, chance: random.Random) -> Iterator[list[tuple[float, float]]]:
    """Yield the shares of 96 cores for a day."""
    beside = -(-CORES // len(rows[0]))
    for _ in range(0, DAY, BLOCK):
        begins = [chance.randrange(len(rows) - BLOCK) for _ in range(beside)]
        for second in range(BLOCK):
            yield [pair for begin in begins for pair in rows[begin + second]][:CORES]


def replay(rows: mixes.Rows, *, seed: int, faults: bool) -> Day:
    chance = random.Random(seed)
    watch, ticks = cores.CorePinned(), [[0] * 10 for _ in range(CORES)]
    began = clock.Clock(0, 0)
    tracker = event_tracker.EventTracker("host", "boot", began)
    events: dict[str, Event] = {}
    planned: dict[int, int] = {}
    for second, shares in enumerate(seconds_of(rows, chance)):
        if faults and second % FAULT_EVERY == FAULT_EVERY // 2:
            planned[second] = core = chance.randrange(CORES)
        begin = second - second % FAULT_EVERY + FAULT_EVERY // 2
        core = planned.get(begin, -1) if 0 <= second - begin < FAULT_SECONDS else -1
        if core >= 0:
            # The scheduler gives each of two programs half of the core if both want it.
            user = min(shares[core][0], 0.5)
            shares[core] = (user, 1 - user)
        for row, (user, kernel) in zip(ticks, shares, strict=True):
            row[0] += round(100 * user)
            row[2] += round(100 * kernel)
            row[3] += max(0, 100 - round(100 * user) - round(100 * kernel))
        now = clock.Clock(second * SECOND_NS, second * SECOND_NS)
        read = {str(number): tuple(row) for number, row in enumerate(ticks)}
        sightings = watch.check("cpu", now, read)
        for event in (*tracker.track(sightings, now, "watch"), *tracker.expire(now)):
            events[event.id] = event
    found = sum(
        any(
            e.core == core and abs(e.time_us / 1e6 - begin) <= 3 and Severity.of(e.severity).rank
            for e in events.values()
        )
        for begin, core in planned.items()
    )
    return Day(tuple(events.values()), len(planned), found)


def measure() -> list[Result]:
    recorded = mixes.read()
    days = {mix: replay(rows, seed=0, faults=False) for mix, rows in recorded.items()}
    results = [
        Result(f"{mix}: false alarms a day, 96 cores", day.alarms(), "", "1", day.alarms() <= 1)
        for mix, day in days.items()
    ]
    for mix, rows in recorded.items():
        day = replay(rows, seed=1, faults=True)
        results.append(
            Result(f"{mix}: faults of 6 s in the kernel found", 100 * day.found / day.faults, "%")
        )
        results.append(Result(f"{mix}: events worth knowing a day", days[mix].infos(), ""))
    return results
