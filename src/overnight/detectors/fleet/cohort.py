"""Cohort skew: whether hosts of one zone, image, kernel, instance type or driver fail more often."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np

from overnight.detectors import fleet as package
from overnight.detectors.fleet import permutation, skew
from overnight.model.finding import Answer, Evidence, Finding, Need, Status, Subject, finding_id
from overnight.model.selection import Window

if TYPE_CHECKING:
    from overnight.queries import fleet as fleets

__all__ = ["DETECTOR", "KIND", "Explained", "explain", "look"]

DETECTOR = "fleet.cohort"
KIND = "fleet.cohort_skew"
HOUR = 3600
LEAST_SICK = 3  # two hosts that have something in common are a coincidence
TINY = 20  # hosts; up to here tests of the plain table are shown, exact where a reader can recount them
MOST_FINDINGS = 5


@dataclasses.dataclass(frozen=True)
class Explained:
    """A cohort that stands out, and what is left of it within the values of each other label.

    `within` has, for each label, its p there and the smallest p attainable there.
    """

    cohort: skew.Cohort
    group: int
    within: dict[str, tuple[float, float]]
    shadow_of: str = ""  # the label that explains it away
    undecided: tuple[str, ...] = ()  # labels from which it cannot be told apart on this fleet
    together: tuple[float, float] = (1.0, 1.0)  # within all the other labels at once


def look(fleet: fleets.Fleet, kind: str) -> Answer:
    """Answer for one kind of event."""
    hosts = [host for host in fleet.watched if host.labels]
    if len(hosts) < 2 * skew.LEAST_HOSTS:
        return _answer(
            Status.NO_DATA,
            f"{len(hosts)} watched hosts with labels: there are no cohorts to compare",
            Need.HOST,
        )
    events = np.array(
        [sum(host.place(one) is not None for one in host.of_kind(kind)) for host in hosts], float
    )
    seconds = np.array([host.seconds for host in hosts])
    labels = _labels(hosts)
    groups = skew.form_groups(labels)
    sick = int((events > 0).sum())
    if not groups.names:
        return _answer(Status.NO_DATA, "every host has the same labels, or one of its own")
    if sick == 0:
        return _answer(
            Status.CLEAR, f"no {kind} on {len(hosts)} hosts in the time that was watched"
        )
    cohorts = skew.compare(events, seconds, groups, permutation.generator())
    best = min(cohorts, key=lambda one: one.smallest_adjusted)
    if sick < LEAST_SICK or best.smallest_adjusted > package.ALPHA:
        return _answer(
            Status.NO_DATA,
            f"cannot conclude: {sick} of {len(hosts)} hosts had {kind}; even if all of them shared a "
            f"label, p could be no smaller than {permutation.fraction(best.smallest)}, and "
            f"{permutation.fraction(best.smallest_adjusted)} with {len(cohorts)} cohorts looked at"
            + (f"; fewer than {LEAST_SICK} hosts prove nothing" if sick < LEAST_SICK else ""),
        )
    standing = [one for one in cohorts if one.p <= package.ALPHA]
    if not standing:
        best = cohorts[0]
        return _answer(
            Status.CLEAR,
            f"no label stands out on {len(hosts)} hosts, {sick} of them with {kind}: the most "
            f"striking, {_name(best)}, has p = {permutation.fraction(best.p)} among {len(cohorts)} "
            f"cohorts (the smallest attainable here: {permutation.fraction(best.smallest)})",
        )
    explained = explain(events, seconds, labels, groups, standing, permutation.generator())
    begin_us, end_us = fleet.window_us
    window = Window(begin_us, end_us)
    shown = [
        one for one in explained if not one.shadow_of and _labels_of(one) != {skew.UPTIME}
    ]  # uptime has a detector of its own
    if not shown:
        leading = explained[0]
        return _answer(
            Status.CLEAR,
            f"{_name(leading.cohort)} stands out, and it is the time since the boot that does it: "
            "see fleet.uptime",
        )
    found = tuple(
        _finding(one, explained, events, kind, window, groups) for one in shown[:MOST_FINDINGS]
    )
    return Answer(DETECTOR, Status.FOUND, found, found[0].summary)


def explain(
    events: permutation.Floats,
    seconds: permutation.Floats,
    labels: dict[str, list[str]],
    groups: skew.Groups,
    standing: list[skew.Cohort],
    chance: np.random.Generator,
) -> tuple[Explained, ...]:
    """Ask each cohort that stands out again within the values of every other label.

    One is another's shadow when it is gone within the values of that label, although it could have
    shown there, while the other stands within its. Where neither can be seen without the other, that
    is said.
    """
    numbers = {names: g for g, names in enumerate(groups.names)}
    asked: list[Explained] = []
    for cohort in standing:
        g = numbers[cohort.names]
        member = groups.member[:, g]
        others = [label for label in labels if label not in groups.labels(g)]
        within = {
            label: _ask(events, seconds, member, skew.codes(labels[label]), chance)
            for label in others
        }
        together = (
            _ask(events, seconds, member, skew.codes(*(labels[one] for one in others)), chance)
            if others
            else (cohort.p, cohort.smallest)
        )
        asked.append(Explained(cohort, g, within, together=together))
    return tuple(_judge(one, asked, groups) for one in asked)


def _ask(
    events: permutation.Floats,
    seconds: permutation.Floats,
    member: permutation.Booleans,
    strata: permutation.Integers,
    chance: np.random.Generator,
) -> tuple[float, float]:
    smallest = skew.smallest_stratified(events, member, strata)
    if smallest > package.ALPHA:
        return 1.0, smallest
    return skew.within(events, seconds, member, strata, chance), smallest


def _judge(one: Explained, asked: list[Explained], groups: skew.Groups) -> Explained:
    """Whose shadow it is, and from which labels it cannot be told apart."""
    mine = groups.labels(one.group)
    shadow_of, undecided = "", []
    for label, (p, smallest) in one.within.items():
        if p <= package.ALPHA:
            continue
        # A label none of whose cohorts stands out explains nothing: fewer hosts a stratum hide much.
        rivals = [other for other in asked if label in groups.labels(other.group)]
        if not rivals:
            continue
        stands = any(
            min((other.within[name][0] for name in mine if name in other.within), default=1.0)
            <= package.ALPHA
            for other in rivals
        )
        if stands and smallest <= package.ALPHA:
            shadow_of = shadow_of or label
        else:
            undecided.append(label)
    return dataclasses.replace(one, shadow_of=shadow_of, undecided=tuple(undecided))


def _labels(hosts: list[fleets.Host]) -> dict[str, list[str]]:
    """Each label's value on every host, the band of its uptime among them."""
    names = sorted({name for host in hosts for name in host.labels})
    found = {name: [host.labels.get(name, "") for host in hosts] for name in names}
    found[skew.UPTIME] = [
        skew.uptime_band(
            sum((spell.uptime + spell.seconds / 2) * spell.seconds for spell in host.spells)
            / host.seconds
        )
        for host in hosts
    ]
    return found


def _finding(
    one: Explained,
    explained: tuple[Explained, ...],
    events: permutation.Floats,
    kind: str,
    window: Window,
    groups: skew.Groups,
) -> Finding:
    cohort = one.cohort
    name = _name(cohort)
    sick, count = int((events > 0).sum()), len(events)
    subject = Subject(cohort=name)
    tables = _tables(cohort, sick, count)
    evidence = [
        Evidence(
            f"{name}: {cohort.events:g} {kind} in {cohort.seconds / HOUR:,.0f} watched host hours, on "
            f"{cohort.sick} of {cohort.hosts} hosts; the others: {events.sum() - cohort.events:g}, on "
            f"{sick - cohort.sick} of {count - cohort.hosts} hosts. At the rate of all hosts it would "
            f"have had {cohort.expected:.1f}",
            "events",
            {
                "events": cohort.events,
                "expected_events": round(cohort.expected, 3),
                "watched_host_hours": round(cohort.seconds / HOUR, 3),
                "hosts_with_event": cohort.sick,
                "hosts": cohort.hosts,
            },
            window,
            f"overnight events --kind {kind}",
        ),
        Evidence(
            f"hosts dealt to cohorts at random gave as much in {permutation.fraction(cohort.p)} of the "
            f"deals, all cohorts counted; the smallest attainable is "
            f"{permutation.fraction(cohort.smallest)}"
            + "".join(f"; {test} of the plain table: p = {permutation.fraction(p)}" for test, p in tables.items()),
            "events",
            {"p": cohort.p, "smallest_p": cohort.smallest, **{f"p_{test}": p for test, p in tables.items()}},
            window,
        ),
        *_strata_evidence(one, explained, groups, window),
    ]  # fmt: skip
    against = tuple(
        Evidence(
            f"{name} cannot be told apart from {label}: within its values p could be no smaller than "
            f"{permutation.fraction(one.within[label][1])}"
            if one.within[label][1] > package.ALPHA
            else f"{name} and {label} go together: within its values p = {permutation.fraction(one.within[label][0])}",
            "host",
            {"p": one.within[label][0], "smallest_p": one.within[label][1]},
            window,
        )
        for label in one.undecided
    )
    summary = (
        f"{kind} follows {name}: {cohort.rate_ratio:.1f} times the rate of the other hosts "
        f"({cohort.sick} of {cohort.hosts} hosts against {sick - cohort.sick} of "
        f"{count - cohort.hosts}), p = {permutation.fraction(cohort.p)}"
        + (f"; not to be told apart from {', '.join(one.undecided)}" if one.undecided else "")
    )
    return Finding(
        finding_id(DETECTOR, KIND, subject, window.begin_us),
        DETECTOR,
        KIND,
        subject,
        window,
        min(0.99, 1 - cohort.p) * (0.5 if one.undecided else 1.0),
        summary,
        tuple(evidence),
        {
            "rate_ratio": round(cohort.rate_ratio, 3),
            "p_value": cohort.p,
            "smallest_p": cohort.smallest,
            "hosts": float(cohort.hosts),
            "hosts_with_event": float(cohort.sick),
        },
        against,
    )


def _strata_evidence(
    one: Explained,
    explained: tuple[Explained, ...],
    groups: skew.Groups,
    window: Window,
) -> list[Evidence]:
    """What is left of it within other labels, and whom it explains away."""
    found = []
    stays = [label for label, (p, _) in one.within.items() if p <= package.ALPHA]
    if stays:
        said = ", ".join(
            f"{name} (p = {permutation.fraction(one.within[name][0])})" for name in stays
        )
        found.append(
            Evidence(
                f"it stays when only hosts alike in one other label are compared: within {said}",
                "host", {f"p_within_{name}": one.within[name][0] for name in stays}, window,
            )
        )  # fmt: skip
    p, smallest = one.together
    said = (
        f"p = {permutation.fraction(p)}"
        if smallest <= package.ALPHA
        else f"too few such hosts to say: p could be no smaller than {permutation.fraction(smallest)}"
    )
    found.append(
        Evidence(
            f"among hosts alike in all other labels at once ({', '.join(one.within) or 'there are none'}): {said}",
            "host",
            {"p": p, "smallest_p": smallest},
            window,
        )
    )
    shadows = [
        _name(other.cohort) for other in explained if other.shadow_of in groups.labels(one.group)
    ]
    if shadows:
        found.append(
            Evidence(
                f"it explains away {', '.join(shadows)}: among hosts alike in it, nothing of that is left",
                "host",
                {},
                window,
            )
        )
    return found


def _tables(cohort: skew.Cohort, sick: int, count: int) -> dict[str, float]:
    """Exact tests of hosts with and without an event, where the fleet is small enough to recount."""
    if count > TINY:
        return {}
    from scipy import stats

    table = [
        [cohort.sick, cohort.hosts - cohort.sick],
        [sick - cohort.sick, count - cohort.hosts - sick + cohort.sick],
    ]
    return {
        "fisher": float(stats.fisher_exact(table, alternative="greater").pvalue),
        "boschloo": float(stats.boschloo_exact(table, alternative="greater").pvalue),
    }


def _labels_of(one: Explained) -> set[str]:
    return {label for label, _ in one.cohort.names}


def _name(cohort: skew.Cohort) -> str:
    return " = ".join(f"{label} {value}" for label, value in cohort.names)


def _answer(status: Status, why: str, *missing: Need) -> Answer:
    return Answer(DETECTOR, status, why=why, missing=missing)
