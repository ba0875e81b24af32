"""Who filled the saturated core in exactly those seconds, and the queue that it starved.

Who has more of the core than in the baseline, by as much as it is more; who has less had to wait. With
samples: process, unit, hottest function and the way down to it. Without: the process that the flight
recorder saw there last, which knows no function and may have moved meanwhile.
"""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING

import numpy as np

from overnight.detectors import _core_shares as shares
from overnight.detectors import _event_location as place
from overnight.detectors import _saturation as saturation
from overnight.detectors import _starved_queues as starvation
from overnight.detectors import core_saturation
from overnight.model import times
from overnight.model.finding import Answer, Evidence, Finding, Status, Subject, finding_id
from overnight.model.selection import Selection, Window

if TYPE_CHECKING:
    from collections.abc import Sequence

    from overnight.queries import case as cases
    from overnight.queries import consumers, flame

__all__ = ["DETECTORS", "KIND", "Culprit"]

KIND = "cpu.culprit"
MOST_CORES = 3
# Without a baseline: whoever has less of the core did not keep it from others; two may share it.
LEAST_SHARE = 0.25
# How sure it is of one that had as much of the core before, when nobody else has more than before.
NOT_MORE = 0.4
# Below this many samples a share is a guess: 20 give +-20 points.
FEW_SAMPLES = 20
# The way down a flame graph is one way while a child has most of its parent.
MAIN_WAY = 0.5
LONGEST_PATH = 24


class Culprit:
    """Joins the saturated core, the samples of its seconds, and the queues it serves."""

    name = "culprit"
    needs = ("cpu", "profiles", "processes", "nic-queues", "tx-timeouts", "ethtool", "softnet")

    def look(self, case: cases.Case) -> Answer:
        """For each saturated core, the event's first."""
        told, near = saturation.near_event(case)
        if told is None:
            return Answer(
                self.name,
                Status.NO_DATA,
                why="which core was at its limit is not known: neither the signal cpu nor samples were recorded",
            )
        where = place.event_place(case)
        known, before = saturation.baseline_stretches(case)
        chosen, _ = core_saturation.select(near, where.core, known, before, case.window.seconds)
        if not chosen:
            return Answer(self.name, Status.CLEAR, why="no core was at its limit")
        findings: list[Finding] = []
        notes: list[str] = []
        for stretch in chosen[:MOST_CORES]:
            found, why = _culprits(case, stretch, where)
            findings += found
            if why:
                notes.append(why)
            findings += starvation.starved(case, stretch, where)
        if findings:
            return Answer(self.name, Status.FOUND, tuple(findings), "; ".join(notes))
        missing = not case.has_profile(case.window) and not _has_processes(case, case.window)
        return Answer(
            self.name,
            Status.NO_DATA if missing else Status.CLEAR,
            why="; ".join(notes),
        )


def _culprits(
    case: cases.Case, stretch: saturation.Stretch, where: place.Place
) -> tuple[list[Finding], str]:
    if case.has_profile(stretch.window):
        chosen = Selection(cores=(stretch.core,))
        ran, idle = case.ran((stretch.window,), chosen)
        total = sum(one.samples + one.softirq for one in ran) + idle
        if total >= FEW_SAMPLES:
            return _from_samples(case, stretch, where, ran, total)
    return _from_processes(case, stretch, where)


def _from_samples(
    case: cases.Case,
    stretch: saturation.Stretch,
    where: place.Place,
    ran: tuple[consumers.Ran, ...],
    total: int,
) -> tuple[list[Finding], str]:
    before = shares.before_by_samples(case, stretch.core)
    capacity, _ = case.capacity(stretch.window, Selection(cores=(stretch.core,)))
    standing = shares.rising(before, ran, capacity)
    large = [one for one in ran if one.samples / total >= LEAST_SHARE]
    soft = sum(one.softirq for one in ran)
    if before is None or not standing:
        made = [_sampled(case, stretch, where, one, total) for one in large]
    else:
        both = [(one, standing[one.unit, one.process]) for one in ran]
        rose = sorted((pair for pair in both if pair[1].rose), key=lambda pair: -pair[1].added)
        waiting = [_waits(case, one.process, told, "profiles") for one, told in both if told.fell]
        # Soft interrupts that came on top filled it; then who did not change did not.
        stormed = soft / capacity - before.soft_share >= shares.LEAST_ADDED
        steady = [pair for pair in both if pair[0] in large and not pair[1].fell and not stormed]
        made = [
            _sampled(case, stretch, where, one, total, told, before.busy, waiting)
            for one, told in rose or steady
        ]
        if not made and waiting:
            return [], (
                f"nobody on core {stretch.core} has more of it than before, soft interrupts"
                f" {100 * soft / total:.0f} % of its samples; {waiting[0].text}"
            )
    if made:
        return made, ""
    most = f"{ran[0].process} with {100 * ran[0].samples / total:.0f} %" if ran else "nobody"
    return [], (
        f"no process had {100 * LEAST_SHARE:.0f} % of the {total} samples of core {stretch.core}, or more of it"
        f" than before: the most had {most}, soft interrupts {100 * soft / total:.0f} %"
    )


def _waits(case: cases.Case, process: str, told: shares.Share, source: str) -> Evidence:
    return Evidence(
        f"{process} had to wait: it has {told.as_text(case.usual)}",
        source,
        {**told.as_values()},
        case.baseline,
    )


def _against_before(
    case: cases.Case, process: str, told: shares.Share | None, source: str
) -> tuple[list[Evidence], list[Evidence]]:
    """What the baseline says for it, and against it."""
    if told is None:
        return [], []
    said = Evidence(
        f"{process} has {told.as_text(case.usual)}", source, {**told.as_values()}, case.baseline
    )
    return ([said], []) if told.rose else ([], [said])


def _sampled(
    case: cases.Case,
    stretch: saturation.Stretch,
    where: place.Place,
    one: consumers.Ran,
    total: int,
    told: shares.Share | None = None,
    busy_before: float = 0.0,
    waiting: Sequence[Evidence] = (),
) -> Finding:
    window = stretch.window
    tree_of = case.flame(
        window,
        Selection(cores=(stretch.core,), process=f"^{re.escape(one.process)}$"),
    )
    path = main_way(tree_of)
    function = max(one.functions.items(), key=lambda pair: (pair[1], pair[0]))[0]
    share = one.samples / total
    coverage = tree_of.coverage
    per_second = coverage.capacity / coverage.recorded_seconds if coverage.recorded_seconds else 0.0
    burnt = one.samples / coverage.capacity if coverage.capacity else share
    seen = total / coverage.capacity if coverage.capacity else 1.0
    subject = Subject(
        host=case.host, core=stretch.core, process=one.process, unit=one.unit, function=function
    )
    # Of what the core had left before, how much this one took.
    part = share if told is None else min(1.0, told.added / max(1.0 - busy_before, 0.01))
    confidence = min(0.95, 0.55 + 0.45 * part) * min(1.0, 0.5 + 0.5 * seen)
    said, against = _against_before(case, one.process, told, "profiles")
    if against:
        confidence = NOT_MORE * min(1.0, 0.5 + 0.5 * seen)
    if one.softirq > one.samples:
        confidence *= 0.5
        against.append(
            Evidence(
                "soft interrupts on top of this process took more samples than its own work",
                "profiles",
                {"softirq_samples": one.softirq, "own_samples": one.samples},
                window,
            )
        )
    if where.core >= 0 and where.core != stretch.core:
        confidence *= 0.6
        against.append(_elsewhere(where, stretch))
    look = _spell(case, window, stretch.core, one.process)
    kernel_share = one.kernel / one.samples
    evidence = (
        Evidence(
            f"{one.process}{_of(one.unit)} has {one.samples} of the {total} samples of core {stretch.core} in those"
            f" {stretch.seconds:.0f} s ({100 * share:.0f} %), {100 * kernel_share:.0f} % of them in the kernel;"
            f" {coverage.lost} samples were lost",
            "profiles",
            {
                "samples": one.samples,
                "samples_of_core": total,
                "share_of_core_samples": round(share, 4),
                "kernel_share_of_its_samples": round(kernel_share, 4),
                "lost_samples": coverage.lost,
                "samples_expected_of_core": round(per_second * coverage.recorded_seconds),
            },
            window,
            f"overnight top processes {look}",
        ),
        Evidence(
            "the main way down: " + " > ".join(path),
            "profiles",
            {
                "path": ";".join(path),
                "function": function,
                "function_share_of_its_samples": round(one.functions[function] / one.samples, 4),
            },
            window,
            f"overnight flame {look}",
        ),
        *said,
        *waiting,
    )
    return Finding(
        id=finding_id("culprit", KIND, subject, stretch.begin_us),
        detector="culprit",
        kind=KIND,
        subject=subject,
        window=window,
        confidence=confidence,
        summary=(
            f"{one.process}{_of(one.unit)} had {100 * share:.0f} % of core {stretch.core}'s samples in those"
            f" {stretch.seconds:.0f} s, most of them in {function}"
        ),
        evidence=evidence,
        magnitude={
            "cores_burnt": round(burnt, 4),
            **shares.magnitude(told),
            "share_of_core_samples": round(share, 4),
            "samples": float(one.samples),
            "kernel_share": round(kernel_share, 4),
        },
        against=tuple(against),
    )


def main_way(shown: flame.FlameTree) -> list[str]:
    """From the process down, while one child has most of its parent's samples."""
    path: list[str] = []
    at, whole = -1, int(shown.whole[shown.parent < 0].sum())
    while len(path) < LONGEST_PATH:
        below = np.flatnonzero(shown.parent == at)
        if not len(below):
            break
        widest = int(below[np.argmax(shown.whole[below])])
        if shown.whole[widest] < MAIN_WAY * whole:
            break
        path.append(shown.names[shown.frame[widest]])
        at, whole = widest, int(shown.whole[widest])
    return path


def _from_processes(
    case: cases.Case, stretch: saturation.Stretch, where: place.Place
) -> tuple[list[Finding], str]:
    used, _ = shares.seen_on(case, stretch.core, stretch.window)
    if not used:
        return [], (
            f"who ran on core {stretch.core} was not recorded: no samples, and no process was seen there"
        )
    told = shares.by_ticks(case, stretch.core, used, stretch.seconds)
    rose = [key for key in used if key in told and told[key].rose]
    rose.sort(key=lambda key: -told[key].added)
    large = [
        key
        for key, both in used.items()
        if sum(both) / shares.TICKS / stretch.seconds >= LEAST_SHARE
    ]
    steady = [key for key in large if key not in told or not told[key].fell]
    waiting = [
        _waits(case, shares.name_of(key), one, "processes") for key, one in told.items() if one.fell
    ]
    made = [
        _ticked(case, stretch, where, key, used[key], told.get(key), waiting)
        for key in rose or steady
    ]
    if made:
        return (
            made,
            f"no samples of core {stretch.core} in these seconds: the process signal answered",
        )
    why = f"no process that was seen on core {stretch.core} used a quarter of it, or more of it than before"
    return [], "; ".join([why, *(one.text for one in waiting[:1])])


def _ticked(
    case: cases.Case,
    stretch: saturation.Stretch,
    where: place.Place,
    key: str,
    used: tuple[float, float],
    told: shares.Share | None,
    waiting: Sequence[Evidence],
) -> Finding:
    user, system = used
    burnt = (user + system) / shares.TICKS / stretch.seconds
    process = shares.name_of(key)
    subject = Subject(host=case.host, core=stretch.core, process=process)
    said, risen = _against_before(case, process, told, "processes")
    against = [
        Evidence(
            "no samples of these seconds: the function and the unit are not known, and the process may have"
            " used other cores as well",
            "processes",
        ),
        *risen,
    ]
    confidence = 0.5 * min(1.0, burnt) * (NOT_MORE if risen else 1.0)
    if where.core >= 0 and where.core != stretch.core:
        confidence *= 0.6
        against.append(_elsewhere(where, stretch))
    return Finding(
        id=finding_id("culprit", KIND, subject, stretch.begin_us),
        detector="culprit",
        kind=KIND,
        subject=subject,
        window=stretch.window,
        confidence=confidence,
        summary=(
            f"{process} was last seen on core {stretch.core} and used {burnt:.2f} cores in those"
            f" {stretch.seconds:.0f} s; there are no samples of it"
        ),
        evidence=(
            Evidence(
                f"process {key} ran on core {stretch.core} at the looks of these seconds and used"
                f" {user + system:.0f} ticks, {system:.0f} of them in the kernel",
                "processes",
                {"user_ticks": round(user), "kernel_ticks": round(system)},
                stretch.window,
            ),
            *said,
            *waiting,
        ),
        magnitude={
            "cores_burnt": round(burnt, 4),
            **shares.magnitude(told),
            "kernel_share": round(system / max(1.0, user + system), 4),
            "samples": 0.0,
        },
        against=tuple(against),
    )


def _has_processes(case: cases.Case, window: Window) -> bool:
    return "processes" in case.ring.signals(case.host, window.begin_us, window.end_us)


def _elsewhere(where: place.Place, stretch: saturation.Stretch) -> Evidence:
    return Evidence(
        f"the event is of core {where.core}, this is core {stretch.core}",
        where.how or "events",
        {"event_core": where.core},
    )


def _of(unit: str) -> str:
    return f" of {unit}" if unit else ""


def _spell(case: cases.Case, window: Window, core: int, process: str) -> str:
    begin, end = (times.format_instant(us) for us in (window.begin_us, window.end_us))
    host, exactly = shlex.quote(case.host), shlex.quote(f"^{re.escape(process)}$")
    return f"-b {begin} -e {end} --host {host} --core {core} --process {exactly}"


DETECTORS = (Culprit(),)
