"""Checks of suspects that take time from a core: affinity, quota, interrupts, steal, frequency."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from overnight.diagnosis import measures
from overnight.model.suspect import SuspectOutcome
from overnight.model.times import SECOND_US
from overnight.queries import freshness, levels

if TYPE_CHECKING:
    from overnight.model.selection import Window
    from overnight.queries import case as cases
    from overnight.queries import signals

THROTTLED_PERCENT = 5.0  # of the quota's periods: fewer are a burst of a few milliseconds
STEAL_PERCENT, STEAL_PEAK = 5.0, 50.0  # of a core; in one second, as in the watch cpu.core_stolen
MAX_CGROUPS = 8  # those throttled most, each compared with its own baseline
BUSY_PERCENT = 80.0  # a core that is less busy has no reason to run fast
FREQUENCY_LOST = 30.0  # percent: turbo of all cores is up to a quarter below that of one
# Kernel threads of one core, such as ksoftirqd/4 or kworker/4:1.
PER_CORE = re.compile(r"\w+/(\d+)(?::.*)?")


def check_affinity(evidence: measures.Evidence) -> measures.Result:
    if not evidence.is_recorded("affinity"):
        raise evidence.missing("affinity")
    case, core = evidence.case, evidence.core
    total = len(case.cores(case.window).cores)
    allowed = dict(_read_affinity(case, case.window))
    where = ""
    if core is not None:
        where = f" on core {core}"
        seen = {key: evidence.gauge("processes", "core", case.window, key) for key in allowed}
        allowed = {key: row for key, row in allowed.items() if core in seen[key]}
    bound = [
        (row, key)
        for key, row in allowed.items()
        if row[0] < total and not _is_of_one_core(key, row[1])
    ]
    values = {"busy_processes": len(allowed), "bound_processes": len(bound), "host_cores": total}
    if not bound:
        text = f"busy processes{where} that may not run on all {total} cores: 0 of {len(allowed)}"
        return measures.Result(SuspectOutcome.CLEARED, text, values)
    (count, lowest), key = min(bound)
    pid, _, name = key.partition(" ")
    look = f"grep Cpus_allowed_list /proc/{pid}/status"
    text = f"{name} may run on {count} of {total} cores" + (
        f", core {lowest}" if count == 1 else ""
    )
    earlier = {key.partition(" ")[2]: row for key, row in _read_affinity(case, case.baseline)}
    if earlier.get(name) == (count, lowest):
        return measures.Result(
            SuspectOutcome.CLEARED, f"{text} (the same in the baseline)", values, look
        )
    was = f"baseline {earlier[name][0]}" if name in earlier else "not busy in the baseline"
    return measures.Result(
        SuspectOutcome.NOT_CLEARED, f"changed at the event: {text} ({was})", values, look
    )


def _read_affinity(case: cases.Case, window: Window) -> Iterator[tuple[str, tuple[int, int]]]:
    """Yield how many cores each busy process may run on, and the lowest of them."""
    for frame in case.ring.numbers(case.host, "affinity", window.begin_us, window.end_us):
        for key in frame.keys:
            count, lowest = (frame.series(key, name)[1][-1] for name in ("allowed", "lowest"))
            yield key, (count, lowest)


def _is_of_one_core(key: str, core: int) -> bool:
    match = PER_CORE.fullmatch(key.partition(" ")[2])
    return match is not None and int(match[1]) == core


def check_throttling(evidence: measures.Evidence) -> measures.Result:
    if not evidence.is_recorded("cpu-throttling"):
        raise evidence.missing("cpu-throttling")
    rates = evidence.case.rates("cpu-throttling", evidence.case.window, columns=("throttled",))
    if not rates.keys:
        return measures.Result(
            SuspectOutcome.CLEARED, "cgroups with a CPU quota: 0", {"cgroups": 0}
        )
    most = np.argsort(-np.nansum(rates.values["throttled"], axis=0), kind="stable")
    numbers = []
    for cgroup in (rates.keys[place] for place in most[:MAX_CGROUPS]):
        level = evidence.level("cpu-throttling", "throttled", per=("periods",), keys=(cgroup,))
        if level is not None:
            numbers.append(
                measures.Measure(
                    "throttled_percent_of_periods", level.scaled(100), THROTTLED_PERCENT,
                    f"{cgroup} throttled in ", " of its periods", " %",
                )
            )  # fmt: skip
    if not numbers:
        raise evidence.missing("cpu-throttling")
    numbers.sort(key=lambda each: (not each.level.rose(each.floor), -each.level.now))
    return measures.judge(numbers[:1], f"cgroups with a CPU quota: {len(rates.keys)}")


def check_interrupts(evidence: measures.Evidence) -> measures.Result:
    case, state = evidence.case, evidence.facts("nic-queues")
    if not state:
        raise evidence.missing("nic-queues")
    begin_us, baseline = case.window.begin_us, case.baseline
    length_us = max(1, evidence.cutoff_us - begin_us)
    moves = _read_moves(case, begin_us, evidence.cutoff_us)
    earlier = [at for at, _ in _read_moves(case, baseline.begin_us, baseline.end_us)]
    in_stretch = [sum(first <= at < first + length_us for at in earlier) for first in earlier]
    expected = len(earlier) * length_us / (baseline.end_us - baseline.begin_us)
    # A move is seen up to one interval later.
    until_us = evidence.cutoff_us + freshness.interval_us("nic-queues")

    def measure(seen: list[tuple[int, str]]) -> measures.Measure:
        level = levels.Level(len(seen), expected, max(in_stretch, default=0))
        examples = "".join(f": {text}" for _, text in seen[:1])
        tail = f" interrupts moved to other cores{examples}"
        name = "interrupt_moves_before_the_event"
        return measures.Measure(name, level, measures.ONE, tail=tail, digits=0)

    units = evidence.facts("units")
    is_active = units.get("irqbalance.service", {}).get("active") == "active"
    result = measures.judge(
        [measure(moves)],
        f"{len(state)} interrupts on {len({fact.get('cores') for fact in state.values()})} cores",
        f"irqbalance is {'' if is_active else 'not '}running" if units else "",
    )
    if result.outcome is SuspectOutcome.CLEARED:
        measures.require_order([measure(_read_moves(case, begin_us, until_us))])
    return result


def _read_moves(case: cases.Case, begin_us: int, end_us: int) -> list[tuple[int, str]]:
    """Return when an interrupt got other cores, and which."""
    moves = []
    for change in case.ring.facts(case.host, "nic-queues", begin_us, end_us).changes:
        if change.before and change.after:
            old, new = change.before.get("cores"), change.after.get("cores")
            if old != new:
                moves.append((change.time_us, f"{change.key} from {old} to {new}"))
    return moves


def check_steal(evidence: measures.Evidence) -> measures.Result:
    case, core = evidence.case, evidence.core
    cores = case.cores(case.window)
    if core is None and cores.values["steal"].size:
        core = cores.cores[int(np.nan_to_num(cores.values["steal"]).mean(axis=0).argmax())]
    now, before = _read_steal(cores, core), _read_steal(case.cores(case.baseline), core)
    if now is None:
        raise evidence.missing("cpu")
    worst = before.highest(1) if before else None
    mean, peak = levels.compare(now, before), levels.Level(now.highest(1), worst, worst)
    return measures.judge(
        [
            measures.Measure(
                "steal_percent_of_core_time", mean, STEAL_PERCENT, tail=f" of core {core}", unit=" %"
            ),
            measures.Measure(
                "steal_percent_of_worst_second", peak, STEAL_PEAK, tail=" in its worst second", unit=" %"
            ),
        ]
    )  # fmt: skip


def _read_steal(cores: signals.Cores, core: int | None) -> levels.Series | None:
    if core not in cores.cores or not len(cores.end_us):
        return None
    seconds = (cores.end_us - cores.begin_us) / SECOND_US
    percent = np.nan_to_num(cores.values["steal"][:, cores.cores.index(core)])
    return levels.Series(percent * seconds, seconds)


def check_frequency(evidence: measures.Evidence) -> measures.Result:
    case = evidence.case
    cores = case.cores(case.window)
    core = evidence.core if evidence.core is not None else next(iter(cores.cores), 0)
    key = str(core)
    numbers: list[measures.Measure] = []
    throttles = evidence.rise(
        "frequency", "throttles", "package_throttles", "power_limits", keys=(key,)
    )
    counted = evidence.gauge("frequency", "throttles", case.window, key)
    if throttles and max(counted, default=-1) >= 0:  # -1: the host does not count them
        tail = f" throttlings of core {core} by heat or power"
        numbers.append(
            measures.Measure(
                "throttle_events_of_core", throttles, measures.ONE, tail=tail, digits=0
            )
        )
    now = evidence.readings("frequency", "mhz", case.window, key)
    earlier = max(evidence.gauge("frequency", "mhz", case.baseline, key), default=-1)
    busy = [mhz for at_us, mhz in now if _is_busy(cores, core, at_us)]
    mhz = max(busy or [mhz for _, mhz in now], default=-1)
    if mhz > 0 and earlier > 0:
        # An idle core runs as slowly as it likes.
        level = levels.Level(max(0.0, 100 * (1 - mhz / earlier)) if busy else 0.0, 0.0, 0.0)
        shown = f"{mhz / 1000:.1f} GHz at most", f"{earlier / 1000:.1f} GHz"
        name = "frequency_lost_percent_of_baseline"
        numbers.append(measures.Measure(name, level, FREQUENCY_LOST, shown=shown))
    if not numbers:
        raise evidence.missing("frequency")
    return measures.judge(numbers)


def _is_busy(cores: signals.Cores, core: int, at_us: int) -> bool:
    """Return whether a core was busy in the second of a reading."""
    if core not in cores.cores:
        return False
    inside = (cores.begin_us < at_us) & (at_us <= cores.end_us)
    return bool((cores.values["busy"][inside, cores.cores.index(core)] >= BUSY_PERCENT).any())
