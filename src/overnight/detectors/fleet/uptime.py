"""Uptime hazard: whether it comes more often the longer a host has been up, and a reboot cures it."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np

from overnight.detectors import fleet as package
from overnight.detectors.fleet import hazard, permutation
from overnight.model.finding import Answer, Evidence, Finding, Need, Status, Subject, finding_id
from overnight.model.selection import Window

if TYPE_CHECKING:
    from overnight.queries import fleet as fleets

__all__ = ["DETECTOR", "KIND", "Cure", "cures", "look", "timeline"]

DETECTOR = "fleet.uptime"
KIND = "fleet.uptime_hazard"
HOUR = 3600.0
LEAST_EVENTS = 5  # fewer have no distribution to speak of
LEAST_SICK = 3


@dataclasses.dataclass(frozen=True)
class Cure:
    """What followed reboots of hosts that had had the event: watched time before the onset, and events.

    `expected` is how many there would have been at the rate beyond the onset; `p` of so few or fewer.
    """

    reboots: int
    seconds: float
    events: int
    expected: float
    p: float


def look(fleet: fleets.Fleet, kind: str) -> Answer:
    """Answer for one kind of event."""
    hosts = fleet.watched
    if not hosts:
        return _answer(Status.NO_DATA, "no host was watched for any time", Need.EVENTS)
    line = timeline(hosts, kind)
    count, sick = len(line.event_into), len(np.unique(line.event_host))
    days = line.seconds.sum() / hazard.DAY
    if count == 0:
        return _answer(
            Status.CLEAR,
            f"no {kind} in {days:,.1f} watched host days of {len(hosts)} hosts",
        )
    rise = hazard.find_rise(line, permutation.generator())
    if rise is None:
        return _answer(
            Status.NO_DATA,
            f"cannot conclude: in {days:,.1f} watched host days no uptime has enough time before and "
            f"beyond it ({100 * hazard.SHARE:g} % each)",
        )
    if count < LEAST_EVENTS or sick < LEAST_SICK or rise.smallest > package.ALPHA:
        return _answer(
            Status.NO_DATA,
            f"cannot conclude: {count} {kind} on {sick} of {len(hosts)} hosts; had all of them come "
            f"at one side of an uptime, p could be no smaller than {permutation.fraction(rise.smallest)}; "
            f"{LEAST_EVENTS} events on {LEAST_SICK} hosts are the least",
        )
    if rise.p > package.ALPHA:
        return _answer(
            Status.CLEAR,
            f"the rate of {kind} does not change with uptime: {count} events in {days:,.1f} watched "
            f"host days, p = {permutation.fraction(rise.p)} (the smallest attainable here: "
            f"{permutation.fraction(rise.smallest)})",
        )
    onset = hazard.find_onset(line, permutation.generator(), rising=rise.z > 0)
    if onset is None:
        onset = hazard.Onset(rise.edge, rise.edge, rise.edge, 1.0)
    begin_us, end_us = fleet.window_us
    found = _finding(fleet, line, rise, onset, kind, Window(begin_us, end_us))
    return Answer(DETECTOR, Status.FOUND, (found,), found.summary)


def timeline(hosts: tuple[fleets.Host, ...], kind: str) -> hazard.Timeline:
    """Watched time and the events in it; what happened while nobody watched is left out."""
    owner: list[int] = []
    spells: list[int] = []
    uptime: list[float] = []
    seconds: list[float] = []
    into: list[float] = []
    for number, host in enumerate(hosts):
        base = len(owner)
        owner += [number] * len(host.spells)
        uptime += [spell.uptime for spell in host.spells]
        seconds += [spell.seconds for spell in host.spells]
        for one in host.of_kind(kind):
            if place := host.place(one):
                spells.append(base + place[0])
                into.append(place[1])
    return hazard.Timeline(
        np.array(owner, np.int64),
        np.array(uptime, np.float64),
        np.array(seconds, np.float64),
        np.array(spells, np.int64),
        np.array(into, np.float64),
    )


def cures(fleet: fleets.Fleet, kind: str, onset: float, late_rate: float) -> Cure:
    """What followed the reboots of hosts that had had the event before."""
    from scipy import special

    reboots, seconds, events = 0, 0.0, 0
    for host in fleet.watched:
        placed = [place for one in host.of_kind(kind) if (place := host.place(one))]
        first = min((number for number, _ in placed), default=len(host.spells))
        seen: set[str] = set()
        for number, spell in enumerate(host.spells):
            if number > first and spell.boot != host.spells[first].boot:
                seen.add(spell.boot)
                seconds += max(0.0, min(spell.seconds, onset - spell.uptime))
                events += sum(at == number and spell.uptime + into < onset for at, into in placed)
        reboots += len(seen)
    expected = late_rate * seconds
    p = float(special.pdtr(events, expected)) if seconds else 1.0
    return Cure(reboots, seconds, events, expected, p)


def _finding(
    fleet: fleets.Fleet,
    line: hazard.Timeline,
    rise: hazard.Rise,
    onset: hazard.Onset,
    kind: str,
    window: Window,
) -> Finding:
    rising = rise.z > 0
    at = np.array([onset.uptime])
    late_time = float(line.above(at).sum())
    late = int((line.event_uptime >= onset.uptime).sum())
    early, early_time = len(line.event_into) - late, float(line.seconds.sum()) - late_time
    own = hazard.find_rise(line, permutation.generator(), same_host=True)
    cure = cures(fleet, kind, onset.uptime, late / late_time if late_time else 0.0)
    cured = rising and cure.reboots > 0 and cure.p <= package.ALPHA
    from_to = f"{_span(onset.low)} to {_span(onset.high)}"
    evidence = [
        Evidence(
            f"before {_span(onset.uptime)} of uptime {early} {kind} in {early_time / HOUR:,.0f} watched "
            f"host hours, beyond it {late} in {late_time / HOUR:,.0f}: {onset.rate_ratio:.1f} times the rate",
            "events",
            {
                "events_before": early,
                "host_hours_before": round(early_time / HOUR, 3),
                "events_beyond": late,
                "host_hours_beyond": round(late_time / HOUR, 3),
            },
            window,
            f"overnight events --kind {kind}",
        ),
        Evidence(
            f"a constant hazard with bursts as they were gave as much in {permutation.fraction(rise.p)} of the "
            f"draws, every edge counted; the smallest attainable is {permutation.fraction(rise.smallest)}",
            "events",
            {"p": rise.p, "smallest_p": rise.smallest},
            window,
        ),
        _rates(line, kind, window),
    ]  # fmt: skip
    against = []
    if own is not None and own.p <= package.ALPHA and (own.z > 0) == rising:
        evidence.append(
            Evidence(
                f"it holds on each host by itself, so other differences between hosts are not the reason: "
                f"p = {permutation.fraction(own.p)}",
                "events", {"p_same_host": own.p}, window,
            )
        )  # fmt: skip
    else:
        against.append(
            Evidence(
                "on each host by itself it cannot be seen: long uptime may stand for something else that "
                "these hosts have in common"
                + (f" (p = {permutation.fraction(own.p)})" if own else ""),
                "events", {"p_same_host": own.p} if own else {}, window,
            )
        )  # fmt: skip
    if cure.reboots and rising:
        said = (
            f"after {cure.reboots} reboots of hosts that had had it: {cure.events} events in "
            f"{cure.seconds / HOUR:,.0f} watched hours before {_span(onset.uptime)}, where the later rate "
            f"gives {cure.expected:.1f}"
        )
        one = Evidence(
            said,
            "events",
            {"reboots": cure.reboots, "events": cure.events, "expected_events": round(cure.expected, 3), "p": cure.p},
            window,
        )  # fmt: skip
        (evidence if cured else against).append(one)
    if cured:
        what = f"a reboot cures it for {_span(onset.uptime)} ({from_to}): a state accumulates with uptime"
    elif rising:
        what = f"it sets in at {_span(onset.uptime)} of uptime ({from_to}): a state seems to accumulate"
    else:
        what = f"it comes early after the boot, and less from {_span(onset.uptime)} on ({from_to})"
    subject = Subject()
    return Finding(
        finding_id(DETECTOR, KIND, subject, window.begin_us),
        DETECTOR,
        KIND,
        subject,
        window,
        min(0.99, 1 - rise.p) * (1.0 if not against else 0.7),
        f"{kind} depends on uptime: {what}; p = {permutation.fraction(rise.p)}",
        tuple(evidence),
        {
            "rate_ratio": round(onset.rate_ratio, 3),
            "onset_hours": round(onset.uptime / HOUR, 3),
            "onset_hours_low": round(onset.low / HOUR, 3),
            "onset_hours_high": round(onset.high / HOUR, 3),
            "p_value": rise.p,
            "reboots_after_event": float(cure.reboots),
            "accumulates": float(cured),
        },
        tuple(against),
    )


def _rates(line: hazard.Timeline, kind: str, window: Window) -> Evidence:
    """The fit of the regression on bands, in words."""
    said, values = [], {}
    for band in hazard.bands(line):
        per_week = 7 * hazard.DAY / band.seconds * band.events
        high = _span(band.high) if np.isfinite(band.high) else "more"
        said.append(
            f"{_span(band.low)} to {high}: {per_week:.2f} ({7 * hazard.DAY * band.rate_low:.2f} to "
            f"{7 * hazard.DAY * band.rate_high:.2f})"
        )
        values[f"events_per_host_week_from_{band.low / HOUR:g}h"] = round(per_week, 4)
    return Evidence(
        f"{kind} by watched host week and uptime, with 95 % intervals: " + "; ".join(said),
        "events", values, window,
    )  # fmt: skip


def _span(seconds: float) -> str:
    """Uptime in words.

    >>> _span(7.2 * 86400), _span(5400)
    ('7.2 d', '1.5 h')
    """
    if seconds >= 2 * hazard.DAY:
        return f"{seconds / hazard.DAY:.3g} d"
    return f"{seconds / HOUR:.3g} h"


def _answer(status: Status, why: str, *missing: Need) -> Answer:
    return Answer(DETECTOR, status, why=why, missing=missing)
