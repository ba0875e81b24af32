"""False alarms of `cpu.core_pinned`: real mixes of work, resampled in blocks to a day of 96 cores.

benchmarks/data/mixes.csv.gz has some minutes of 16 cores (`benchmarks.support.mixes`). A block is a random stretch of all
16 cores of one mix, so that cores that were busy together stay so; six of them side by side are a host of 96 cores. The
watch of the recorder then sees the host second by second. Nothing in the mixes is a fault: every alarm is false.
"""

from __future__ import annotations

import collections
import csv
import gzip
import itertools
import pathlib
import random
from collections.abc import Iterator, Sequence

from benchmarks import Result
from overnight.agent.watches import cores as watch
from overnight.model import clock
from overnight.model.severity import Severity

__all__ = ["measure"]

DATA = pathlib.Path(__file__).parent / "data/mixes.csv.gz"
SIDE_BY_SIDE = 6  # blocks of 16 cores: a host of 96
DAY = 86_400
SECOND_NS = 1_000_000_000
SECONDS = 4 * 3600  # of each mix alone; the day has all of them
BLOCK_SECONDS = (10, 40)
Second = list[list[int]]  # by core: ticks of each mode
Mix = list[Second]


def read_mixes(path: pathlib.Path = DATA) -> dict[str, Mix]:
    mixes: dict[str, dict[int, dict[int, list[int]]]] = {}
    with gzip.open(path, "rt") as file:
        for row in csv.reader(file):
            if row[0] != "mix":
                mix = mixes.setdefault(row[0], collections.defaultdict(dict))
                mix[int(row[1])][int(row[2])] = list(map(int, row[3:11]))
    return {
        name: [[row for _, row in sorted(second.items())] for _, second in sorted(mix.items())]
        for name, mix in mixes.items()
    }


def resample(mix: Mix, chance: random.Random) -> Iterator[Second]:
    """Yield seconds of a mix without end: random stretches, one after the other."""
    while True:
        length = min(chance.randint(*BLOCK_SECONDS), len(mix))
        start = chance.randrange(len(mix) - length + 1)
        yield from mix[start : start + length]


def count_events(host: Sequence[Iterator[Second]], seconds: int) -> collections.Counter[Severity]:
    """Return the `cpu.core_pinned` of a host by severity; one that becomes an alarm counts as an alarm only.

    `host` has a source of seconds for each of its blocks.
    """
    pinned = watch.CorePinned()
    rows: dict[str, tuple[int, ...]] = {}
    worst: dict[tuple[str, int], Severity] = {}
    for second in range(seconds):
        rows = dict(rows)
        for core, ticks in enumerate(itertools.chain.from_iterable(map(next, host))):
            before = rows.get(str(core), (0,) * 8)
            rows[str(core)] = tuple(map(int.__add__, before, ticks))
        now = clock.Clock(second * SECOND_NS, second * SECOND_NS)
        for sighting in pinned.check("cpu", now, rows):
            event = sighting.key, sighting.begin.monotonic_ns
            if sighting.kind == "cpu.core_pinned" and worst.get(event) is not Severity.WARNING:
                harmless = sighting.severity is Severity.INFO
                worst[event] = Severity.INFO if harmless else Severity.WARNING
    return collections.Counter(worst.values())


def run_mix(mix: Mix, seed: int, seconds: int = SECONDS) -> collections.Counter[Severity]:
    """Run one mix on all blocks of the host at once."""
    return count_events([resample(mix, random.Random(f"{seed} {n}")) for n in range(SIDE_BY_SIDE)], seconds)  # fmt: skip


def run_day(mixes: dict[str, Mix], seed: int) -> collections.Counter[Severity]:
    """Run a day: on each block of cores some mix for an hour, then another one."""
    chance = random.Random(seed)

    def work(number: int) -> Iterator[Second]:
        while True:
            name = chance.choice([*mixes])
            source = resample(mixes[name], random.Random(f"{seed} {number} {name}"))
            for _ in range(3600):
                yield next(source)

    return count_events([work(n) for n in range(SIDE_BY_SIDE)], DAY)


def measure() -> list[Result]:
    mixes = read_mixes()
    hours = SECONDS // 3600
    runs = [
        (f"{name} on 96 cores", f"in {hours} h", run_mix(mix, 1)) for name, mix in mixes.items()
    ]
    work = {name: mix for name, mix in mixes.items() if not name.startswith("stress")}
    runs.append(("all in turn, an hour each, without stress-ng", "a day", run_day(work, 1)))
    runs.append(("all in turn, an hour each", "a day", run_day(mixes, 1)))
    results = []
    for what, unit, counts in runs:
        alarms = counts[Severity.WARNING]
        results.append(Result(f"false alarms: {what}", alarms, unit, goal="<= 1", met=alarms <= 1))
        results.append(Result("  reported as info", counts[Severity.INFO], unit))
    return results
