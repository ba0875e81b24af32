"""Uptime hazard: whether events come more often the longer a host has been up, and a reboot cures it."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np

from overnight.detectors import _base
from overnight.detectors import fleet as package
from overnight.detectors.fleet import hazard, permutation
from overnight.model.finding import Answer, Evidence, Need, Subject
from overnight.model.selection import Window
from overnight.model.text import fraction

if TYPE_CHECKING:
    from overnight.model.fleet import Fleet, Host

KIND = "fleet.uptime_hazard"
HOUR = 3600.0
MIN_EVENTS = 5  # fewer have no distribution
MIN_SICK = 3


@dataclasses.dataclass(frozen=True)
class Cure:
    """Reboots of hosts that had had the event, and watched time and events after them, before the onset."""

    reboots: int
    seconds: float
    events: int
    expected: float  # events at the rate beyond the onset
    p: float  # of that few events or fewer


class UptimeHazard(package.FleetDetector):
    """The rate of the event beyond each uptime against the rate before it."""

    name = "fleet.uptime"
    needs = (Need.EVENTS,)

    def ask(self, fleet: Fleet, kind: str) -> Answer:
        hosts = fleet.watched
        if not hosts:
            return self.no_data("no host was watched", Need.EVENTS)
        line = build_timeline(hosts, kind)
        count, sick = len(line.event_into), len(np.unique(line.event_host))
        days = f"{line.seconds.sum() / hazard.DAY:,.1f} watched host days"
        if count == 0:
            return self.answer((), clear=f"no {kind} in {days} of {len(hosts)} hosts")
        rise = hazard.find_rise(line, permutation.generator())
        if rise is None:
            return self.no_data(
                f"cannot conclude: in {days}, no uptime has {100 * hazard.SHARE:g} % of the time before it"
                " and beyond it"
            )
        smallest = fraction(rise.smallest)
        if count < MIN_EVENTS or sick < MIN_SICK or rise.smallest > package.ALPHA:
            return self.no_data(
                f"cannot conclude: {count} {kind} on {sick} of {len(hosts)} hosts; even if all of them came on "
                f"one side of an uptime, p could be no smaller than {smallest}; at least {MIN_EVENTS} events"
                f" on {MIN_SICK} hosts are needed"
            )
        if rise.p > package.ALPHA:
            return self.answer(
                (),
                clear=f"the rate of {kind} does not change with uptime: {count} events in {days}, p ="
                f" {fraction(rise.p)} (the smallest attainable here: {smallest})",
            )
        onset = hazard.find_onset(line, permutation.generator(), rising=rise.z > 0)
        if onset is None:
            onset = hazard.Onset(rise.edge, rise.edge, rise.edge, 1.0)
        draft = _draft(fleet, line, rise, onset, kind)
        return self.answer([draft], clear="", remark=draft.summary)


def build_timeline(hosts: tuple[Host, ...], kind: str) -> hazard.Timeline:
    """Build the watched time and the events in it; events in unwatched time are left out."""
    spells = [(number, spell) for number, host in enumerate(hosts) for spell in host.spells]
    first = np.cumsum([0, *(len(host.spells) for host in hosts)])
    placed = [
        (first[number] + at, into)
        for number, host in enumerate(hosts)
        for at, into in host.places(kind)
    ]
    return hazard.Timeline(
        np.array([number for number, _ in spells], np.int64),
        np.array([spell.uptime for _, spell in spells], np.float64),
        np.array([spell.seconds for _, spell in spells], np.float64),
        np.array([at for at, _ in placed], np.int64),
        np.array([into for _, into in placed], np.float64),
    )


def measure_cure(fleet: Fleet, kind: str, onset: float, late_rate: float) -> Cure:
    """Measure what followed the reboots of hosts that had had the event before."""
    from scipy import special

    reboots, seconds, events = 0, 0.0, 0
    for host in fleet.watched:
        placed = host.places(kind)
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


def _draft(
    fleet: Fleet, line: hazard.Timeline, rise: hazard.Rise, onset: hazard.Onset, kind: str
) -> _base.Draft:
    rising = rise.z > 0
    late_time = float(line.above(np.array([onset.uptime])).sum())
    late = int((line.event_uptime >= onset.uptime).sum())
    early, early_time = len(line.event_into) - late, float(line.seconds.sum()) - late_time
    cure = measure_cure(fleet, kind, onset.uptime, late / late_time if late_time else 0.0)
    is_cured = rising and cure.reboots > 0 and cure.p <= package.ALPHA
    start, interval = _span(onset.uptime), f"{_span(onset.low)} to {_span(onset.high)}"
    if is_cured:
        effect = f"a reboot cures it for {start} ({interval}): a state accumulates with uptime"
    elif rising:
        effect = f"it starts at {start} of uptime ({interval}): a state seems to accumulate"
    else:
        effect = f"it comes early after the boot, and less often from {start} on ({interval})"
    draft = _base.Draft(
        KIND,
        Subject(),
        Window(*fleet.window_us),
        min(0.99, 1 - rise.p),
        f"{kind} depends on uptime: {effect}; p = {fraction(rise.p)}",
        magnitude={
            "rate_ratio": onset.rate_ratio,
            "onset_hours": onset.uptime / HOUR,
            "onset_hours_low": onset.low / HOUR,
            "onset_hours_high": onset.high / HOUR,
            "p_value": rise.p,
            "reboots_after_event": cure.reboots,
            "accumulates": is_cured,
        },
    )
    draft.support(
        f"before {start} of uptime: {early} {kind} in {early_time / HOUR:,.0f} watched host "
        f"hours; beyond it: {late} in {late_time / HOUR:,.0f}, {onset.rate_ratio:.1f} times the rate",
        "events",
        look=f"overnight events --kind {kind}",
        events_before=early,
        host_hours_before=round(early_time / HOUR, 3),
        events_beyond=late,
        host_hours_beyond=round(late_time / HOUR, 3),
    )
    draft.support(
        f"with a constant hazard and the same bursts, {fraction(rise.p)} of the draws gave as "
        f"much at any edge; the smallest attainable is {fraction(rise.smallest)}",
        "events",
        p=rise.p,
        smallest_p=rise.smallest,
    )
    draft.evidence.append(_rate_evidence(line, kind, draft.window))
    own = hazard.find_rise(line, permutation.generator(), same_host=True)
    if own is not None and own.p <= package.ALPHA and (own.z > 0) == rising:
        text = (
            "it holds within single hosts, so other differences between hosts are not the reason: p = "
            f"{fraction(own.p)}"
        )
        draft.support(text, "events", p_same_host=own.p)
    else:
        text = (
            "it cannot be seen within single hosts: long uptime may be a proxy for something else that these "
            "hosts have in common" + (f" (p = {fraction(own.p)})" if own else "")
        )
        draft.oppose(text, "events", p_same_host=own.p if own else None)
    if cure.reboots and rising:
        after_reboot = Evidence(
            f"after {cure.reboots} reboots of hosts that had had it: {cure.events} events in "
            f"{cure.seconds / HOUR:,.0f} watched hours before {start} of uptime; "
            f"{cure.expected:.1f} are expected at the later rate",
            "events",
            {"reboots": cure.reboots, "events": cure.events, "expected_events": round(cure.expected, 3), "p": cure.p},
            draft.window,
        )  # fmt: skip
        draft.weigh(after_reboot, supports=is_cured)
    draft.confidence *= 0.7 if draft.against else 1.0
    return draft


def _rate_evidence(line: hazard.Timeline, kind: str, window: Window) -> Evidence:
    """Report the rates of the regression on bands."""
    rates, values = [], {}
    for band in hazard.bands(line):
        per_week = 7 * hazard.DAY / band.seconds * band.events
        high = _span(band.high) if np.isfinite(band.high) else "more"
        rates.append(
            f"{_span(band.low)} to {high}: {per_week:.2f} ({7 * hazard.DAY * band.rate_low:.2f} to "
            f"{7 * hazard.DAY * band.rate_high:.2f})"
        )
        values[f"events_per_host_week_from_{band.low / HOUR:g}h"] = round(per_week, 4)
    return Evidence(
        f"{kind} per watched host week by uptime, with 95 % intervals: " + "; ".join(rates),
        "events", values, window,
    )  # fmt: skip


def _span(seconds: float) -> str:
    """Format an uptime.

    >>> _span(7.2 * 86400), _span(5400)
    ('7.2 d', '1.5 h')
    """
    if seconds >= 2 * hazard.DAY:
        return f"{seconds / hazard.DAY:.3g} d"
    return f"{seconds / HOUR:.3g} h"


DETECTORS = (UptimeHazard(),)
