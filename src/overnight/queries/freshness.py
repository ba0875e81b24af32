"""How old a reading may be and still show what led to an event: one and a half intervals, at least 3 s.

An older one cannot see the change, so it clears nobody: it does not count. Nor do the times of readings between which
the wall clock was set.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from typing import TYPE_CHECKING

from overnight import sources
from overnight.model import times
from overnight.model.event import LINES_LOST
from overnight.model.finding import Need
from overnight.model.selection import Window
from overnight.model.times import SECOND_US

if TYPE_CHECKING:
    from overnight.queries import case as cases

INTERVALS, LEAST_S = 1.5, 3.0
# Declared by no source: the recorder's own CPU time; the kernel log and the stacks come all the time.
OTHERS = {Need.RECORDER: 5.0, Need.EVENTS: 1.0, Need.PROFILES: 1.0}
KERNEL_LOG = "kernel-log"  # among the recorder's problems
# What starves a core for the five seconds of a watchdog is over when the event is reported.
NEAR_US = 10 * SECOND_US
STEP_US = SECOND_US  # of the wall clock; smaller ones move no reading by more than it may be old


@dataclasses.dataclass(frozen=True)
class Tick:
    """Two consecutive readings by the wall clock, and how far that moved against the monotonic clock between them."""

    before_us: int
    after_us: int
    moved_us: int

    def touches(self, window: Window) -> bool:
        """Return whether a part of a window may lie between them: a clock that was set back repeats some time."""
        first, last = sorted((self.before_us, self.after_us))
        return first < window.end_us and last > window.begin_us


def read_clock(case: cases.Case) -> tuple[Tick, ...]:
    """Read both clocks from the begin of the baseline to the end of the incident window."""
    # Any signal would do; these have one row.
    for signal, column in (("vmstat", "oom_kill"), ("load", "load1")):
        span = case.baseline.begin_us, case.window.end_us
        boots: dict[str, dict[int, int]] = {}  # the wall clock by the monotonic one
        for frame in case.ring.numbers(case.host, signal, *span, None, (column,)):
            boots.setdefault(frame.boot, {}).update(
                zip(frame.monotonic_ns, frame.wall_us, strict=True)
            )
        ticks = tuple(
            Tick(a_us, b_us, abs(b_us - a_us - (b_ns - a_ns) // 1000))
            for boot in boots.values()
            for (a_ns, a_us), (b_ns, b_us) in itertools.pairwise(sorted(boot.items()))
        )
        if ticks:
            return ticks
    return ()


@functools.cache
def _declared() -> dict[str, sources.Signal | sources.FactSignal]:
    return {signal.name: signal for signal in sources.discover(sources, "SIGNALS")}


def interval_us(signal: str) -> int:
    """Return the time between two readings, as declared."""
    every = OTHERS[Need(signal)] if signal in OTHERS else _declared()[signal].every
    return round(every * SECOND_US)


def max_age_us(signal: str) -> int:
    """Return the oldest age that a reading of a signal may have at an event."""
    return round(max(LEAST_S * SECOND_US, INTERVALS * interval_us(signal)))


def silence_us(case: cases.Case, signal: str) -> int:
    """Return the longest time without a reading in the seconds before the event, as far as it looks back.

    Of facts only changes are stored, and of the kernel log events: there the recorder's other readings count. Of stacks
    it is how much of the ten seconds before the event was not sampled. A recording may have begun in those seconds.
    """
    event_us = case.event.time_us
    near_us = event_us - NEAR_US
    if signal == Need.PROFILES:
        _, sampled_s = case.capacity(Window(near_us, event_us))
        return NEAR_US - round(sampled_s * SECOND_US)
    begin_us = near_us - max_age_us(signal)
    polled = case.ring.times(case.host, begin_us, event_us + 1, signal if _is_number(signal) else None)  # fmt: skip
    silent = (b - a for a, b in itertools.pairwise((near_us, *polled, event_us)))
    return max(silent) if polled else event_us - begin_us


def _is_number(signal: str) -> bool:
    return isinstance(_declared().get(signal), sources.Signal) or signal == Need.RECORDER


def explain_doubt(case: cases.Case, *signals: str) -> str:
    """Return why nothing that the signals did not see can be ruled out at the event; "" if it can."""
    near = Window(case.event.time_us - NEAR_US, case.event.time_us + 1)
    moved_us = max(
        (tick.moved_us for tick in case.once(read_clock) if tick.touches(near)), default=0
    )
    if moved_us >= STEP_US:
        moved = times.format_duration(moved_us / SECOND_US)
        return f"the wall clock was set by {moved} around the event, so it is not known which readings are from before it"
    return explain_silence(case, *signals)


def explain_silence(case: cases.Case, *signals: str) -> str:
    """Return why none of the signals shows what led to the event; "" if one does."""
    reasons = []
    for signal in signals:
        if signal == Need.EVENTS and case.imported is not None:
            return ""  # which needs a log that reaches beyond the event
        name = KERNEL_LOG if signal == Need.EVENTS else signal
        if not _is_number(signal) and name in case.problems:
            reasons.append(f"{name}: {case.problems[name].get('problem')}")
            continue
        lost = case.events(case.window, LINES_LOST) if signal == Need.EVENTS else ()
        if lost:
            reasons.append(f"{KERNEL_LOG}: {lost[0].text}")
            continue
        silence, limit = silence_us(case, signal), max_age_us(signal)
        if silence <= limit:
            return ""
        missing, most = (
            times.format_duration(each / SECOND_US, exact=True) for each in (silence, limit)
        )
        reasons.append(f"{signal} was not recorded for {missing} before the event (limit {most})")
    return "; ".join(reasons)
