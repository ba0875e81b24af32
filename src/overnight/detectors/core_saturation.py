"""Cores at their limit around the event while the mean over all cores shows a host at rest."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from overnight.detectors import _event_location as place
from overnight.detectors import _saturation as saturation
from overnight.model import times
from overnight.model.finding import Answer, Evidence, Finding, Status, Subject, finding_id

if TYPE_CHECKING:
    from overnight.model.selection import Window
    from overnight.queries import case as cases

__all__ = ["DETECTORS", "KIND", "CoreSaturation", "select"]

KIND = "cpu.core_saturated"
MOST_FINDINGS = 8
# How many stretches as long as this one the baseline lets expect in the hot stretch: above, it is what
# this host always does. For the event's own core it is said, and the finding stands, less sure.
ORDINARY = 0.2
# Without a baseline nobody knows what is ordinary.
NO_BASELINE = 0.7
# From here on the whole host was full, and that one core stands out less.
ALL_FULL, ALL_FULL_FACTOR = 85.0, 0.8
# A core that was full before had no room; what is added to it is compared with this much.
LEAST_ROOM = 0.1


class CoreSaturation:
    """Seconds by core, not means."""

    name = "core-saturation"
    needs = ("cpu",)

    def look(self, case: cases.Case) -> Answer:
        """Stretches of at least two seconds that began before the event."""
        told, near = saturation.near_event(case)
        if told is None:
            return Answer(
                self.name,
                Status.NO_DATA,
                why="neither the seconds of the cores (signal cpu) nor samples were recorded around the event",
            )
        where = place.event_place(case)
        known, before = saturation.baseline_stretches(case)
        chosen, ordinary = select(near, where.core, known, before, case.window.seconds)
        if not chosen:
            return Answer(
                self.name,
                Status.CLEAR,
                why=_why_clear(told, ordinary, len(near), case.usual),
            )
        made = tuple(
            _finding(case, told, stretch, where, known, before)
            for stretch in chosen[:MOST_FINDINGS]
        )
        left = len(chosen) - len(made)
        return Answer(
            self.name,
            Status.FOUND,
            made,
            f"{left} more cores were at their limit" if left else "",
        )


def select(
    near: list[saturation.Stretch],
    event_core: int,
    known_seconds: float,
    before: list[saturation.Stretch],
    window_seconds: float,
) -> tuple[list[saturation.Stretch], int]:
    """The first stretch of each core, the event's core first, then the longest; and how many are ordinary."""
    first: dict[int, saturation.Stretch] = {}
    for one in near:
        first.setdefault(one.core, one)
    chosen, ordinary = [], 0
    for one in first.values():
        if (
            one.core != event_core
            and _expected(one, known_seconds, before, window_seconds) >= ORDINARY
        ):
            ordinary += 1
        else:
            chosen.append(one)
    return sorted(
        chosen, key=lambda one: (one.core != event_core, -one.seconds, one.core)
    ), ordinary


def _expected(
    stretch: saturation.Stretch,
    known_seconds: float,
    before: list[saturation.Stretch],
    window_seconds: float,
    *,
    same_core: bool = False,
) -> float:
    """Stretches as long as this one that the baseline lets expect in the hot stretch."""
    if known_seconds <= 0:
        return 0.0
    # As many cores busy for as long as here, or for longer: a second less is as long, for looks are seconds.
    alike = [
        one
        for one in before
        if one.seconds >= stretch.seconds - 1 and (not same_core or one.core == stretch.core)
    ]
    return len(alike) * window_seconds / known_seconds


def _why_clear(told: saturation.Series, ordinary: int, near: int, usual: str) -> str:
    mean = f"the mean over {len(told.cores)} cores was {told.mean_percent:.0f} %"
    if ordinary:
        return (
            f"{ordinary} cores were at their limit, as often and as long as in the {usual}; {mean}"
        )
    if told.mean_percent >= saturation.OTHERS and not near:
        return f"the whole host was busy: {mean}, so no core stood out"
    return (
        f"no core was at its limit for {saturation.SECONDS:.0f} s while the others had room; {mean}"
    )


def _finding(
    case: cases.Case,
    told: saturation.Series,
    stretch: saturation.Stretch,
    where: place.Place,
    known: float,
    before: list[saturation.Stretch],
) -> Finding:
    subject = Subject(host=case.host, core=stretch.core)
    same = where.core == stretch.core
    expected = _expected(stretch, known, before, case.window.seconds, same_core=same)
    confidence = 0.95 if same else 0.8 if where.core < 0 else 0.5
    if told.source != "cpu":
        confidence *= 0.8
    if not known:
        confidence *= NO_BASELINE
    against = []
    if expected >= ORDINARY:
        confidence *= 0.5
        against.append(
            Evidence(
                f"the baseline lets expect {expected:.1f} stretches as long on this core in such a window",
                told.source,
                {"expected_in_window": round(expected, 2), "baseline_seconds": round(known)},
                case.baseline,
            )
        )
    if stretch.others_percent >= saturation.OTHERS:
        confidence *= ALL_FULL_FACTOR if stretch.others_percent >= ALL_FULL else 1.0
        against.append(
            Evidence(
                f"the other cores were busy, too: {stretch.others_percent:.0f} %",
                told.source,
                {"others_percent_of_their_time": round(stretch.others_percent, 1)},
                stretch.window,
            )
        )
    begin, end = times.format_instant(stretch.begin_us), times.format_instant(stretch.end_us)
    relation = (
        "it is the core of the event"
        if same
        else "the event's core is not known"
        if where.core < 0
        else f"the event's core is {where.core}, another one"
    )
    usual = saturation.usual_percent(case, stretch.core)
    was = f"; in the {case.usual} it was {usual:.0f} % busy" if usual is not None else ""
    lead = (case.event.time_us - stretch.begin_us) / 1e6
    evidence = (
        Evidence(
            f"core {stretch.core} was {stretch.busy_percent:.0f} % busy, {stretch.kernel_percent:.0f} % of its"
            f" time in the kernel, from {begin} to {end}; the other cores averaged {stretch.others_percent:.0f} %"
            f"{was}",
            told.source,
            {
                "busy_percent_of_core_time": round(stretch.busy_percent, 1),
                "kernel_percent_of_core_time": round(stretch.kernel_percent, 1),
                "softirq_percent_of_core_time": round(stretch.softirq_percent, 1),
                "others_percent_of_their_time": round(stretch.others_percent, 1),
                **({"usual_percent_of_core_time": round(usual, 1)} if usual is not None else {}),
            },
            stretch.window,
            _look(case, stretch.window),
        ),
        Evidence(
            f"the mean over all {len(told.cores)} cores said {stretch.mean_percent:.0f} % in those seconds and"
            f" {told.mean_percent:.0f} % over the whole window"
            + (": an average hides it" if stretch.others_percent < saturation.OTHERS else ""),
            told.source,
            {
                "mean_percent_of_all_cores": round(stretch.mean_percent, 1),
                "window_mean_percent_of_all_cores": round(told.mean_percent, 1),
                "cores": len(told.cores),
            },
            case.window,
        ),
        Evidence(
            f"it began {lead:.1f} s before the event; {relation}",
            where.how or "events",
            {"seconds_before_event": round(lead, 1), "event_core": where.core},
        ),
    )
    return Finding(
        id=finding_id("core-saturation", KIND, subject, stretch.begin_us),
        detector="core-saturation",
        kind=KIND,
        subject=subject,
        window=stretch.window,
        confidence=confidence,
        summary=(
            f"core {stretch.core} was {stretch.busy_percent:.0f} % busy for {stretch.seconds:.0f} s"
            f" ({stretch.kernel_percent:.0f} % in the kernel) while the mean over all cores was"
            f" {stretch.mean_percent:.0f} %"
        ),
        evidence=evidence,
        magnitude={
            "seconds": round(stretch.seconds, 3),
            "busy_percent": round(stretch.busy_percent, 2),
            "kernel_percent": round(stretch.kernel_percent, 2),
            "others_percent": round(stretch.others_percent, 2),
            "cores_burnt": round(stretch.busy_percent / 100, 3),
            **_added(stretch.busy_percent, usual),
        },
        against=tuple(against),
    )


def _added(busy_percent: float, usual: float | None) -> dict[str, float]:
    """What the core had left before, and no more: that is what somebody had to take to fill it."""
    if usual is None:
        return {}
    added = max(LEAST_ROOM, (busy_percent - usual) / 100)
    return {"cores_before": round(usual / 100, 3), "cores_added": round(added, 3)}


def _look(case: cases.Case, window: Window) -> str:
    begin, end = (times.format_instant(us) for us in (window.begin_us, window.end_us))
    return f"overnight heatmap -b {begin} -e {end} --host {shlex.quote(case.host)}"


DETECTORS = (CoreSaturation(),)
