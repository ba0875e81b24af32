"""How old a reading may be and still show what led to an event: one and a half intervals, at least 3 s.

An older one cannot see the change, so it clears nobody: it does not count.
"""

from __future__ import annotations

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
        missing, most = (times.format_duration(each / SECOND_US) for each in (silence, limit))
        reasons.append(f"{signal} was not recorded for {missing} before the event (limit {most})")
    return "; ".join(reasons)
