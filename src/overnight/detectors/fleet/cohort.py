"""Cohort skew: whether hosts of one zone, image, kernel, instance type or driver fail more often, or are spared."""

from __future__ import annotations

import dataclasses
import shlex
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from overnight.detectors import _base
from overnight.detectors import fleet as package
from overnight.detectors.fleet import permutation, skew
from overnight.model.finding import Answer, Evidence, Need, Subject
from overnight.model.selection import Window
from overnight.model.text import fraction, plural, rounded

if TYPE_CHECKING:
    from overnight.model.fleet import Fleet, Host

Booleans = permutation.Booleans
Floats = permutation.Floats
Integers = permutation.Integers

KIND = "fleet.cohort_skew"
HOUR = 3600
MIN_SICK = 3  # two hosts that have something in common are a coincidence
TINY = 20  # hosts; up to here exact tests of the plain table are shown, which a reader can recount


class P(NamedTuple):
    """A p-value with the smallest value attainable on this fleet."""

    value: float
    smallest: float

    @property
    def is_significant(self) -> bool:
        return self.value <= package.ALPHA

    @property
    def is_attainable(self) -> bool:
        return self.smallest <= package.ALPHA


@dataclasses.dataclass(frozen=True)
class Explained:
    """A cohort that stands out, and its p within the values of each other label."""

    cohort: skew.Cohort
    group: int
    within: dict[str, P]
    together: P  # within all the other labels at once
    shadow_of: str = ""  # the label that explains it away
    undecided: tuple[str, ...] = ()  # labels whose effect this fleet cannot separate from it

    @property
    def name(self) -> str:
        return _name(self.cohort)


class CohortSkew(package.FleetDetector):
    """Each label's cohorts against the other hosts."""

    name = "fleet.cohort"
    needs = (Need.EVENTS, Need.HOST)
    max_findings = 5

    def ask(self, fleet: Fleet, kind: str) -> Answer:
        return self.study(fleet, kind)[0]

    def study(self, fleet: Fleet, kind: str) -> tuple[Answer, tuple[skew.Cohort, ...]]:
        """Return the answer, and every cohort that was compared, the most striking first."""
        hosts = [host for host in fleet.watched if host.labels]
        if len(hosts) < 2 * skew.MIN_HOSTS:
            why = (
                f"no cohorts to compare: {plural(len(hosts), 'watched host')} with labels, at least "
                f"{2 * skew.MIN_HOSTS} are needed"
            )
            return self.no_data(why, Need.HOST), ()
        events = np.array([len(host.places(kind)) for host in hosts], float)
        seconds = np.array([host.seconds for host in hosts])
        labels = _labels(hosts)
        groups = skew.form_groups(labels)
        sick = int((events > 0).sum())
        if not groups.names:
            why = "no cohorts to compare: all hosts have the same labels, or unique ones"
            return self.no_data(why), ()
        if sick == 0:
            clear = f"no {kind} on {len(hosts)} hosts in the watched time"
            return self.answer((), clear=clear), ()
        cohorts = skew.compare(events, seconds, groups, permutation.generator())
        best = min(cohorts, key=lambda cohort: cohort.smallest_adjusted)
        if sick < MIN_SICK or best.smallest_adjusted > package.ALPHA:
            no_data = self.no_data(
                f"cannot conclude: {sick} of {len(hosts)} hosts had {kind}; even if all of them shared a "
                f"label, p could be no smaller than {fraction(best.smallest)}, or "
                f"{fraction(best.smallest_adjusted)} with {len(cohorts)} cohorts compared"
                + (f"; fewer than {MIN_SICK} hosts prove nothing" if sick < MIN_SICK else "")
                + _count_missing(len(hosts), sick, cohorts)
            )
            return no_data, cohorts
        significant = [cohort for cohort in cohorts if cohort.p <= package.ALPHA]
        if not significant:
            best = cohorts[0]
            clear = (
                f"no label stands out on {len(hosts)} hosts, {sick} of them with {kind}; the best of "
                f"{len(cohorts)} cohorts has p = {fraction(best.p)} (the smallest attainable is "
                f"{fraction(best.smallest)}): {_name(best)}"
            )
            return self.answer((), clear=clear), cohorts
        significant = separate(events, seconds, groups, significant, permutation.generator())
        explained = explain(events, seconds, labels, groups, significant, permutation.generator())
        # Uptime has a detector of its own.
        shown = [
            entry
            for entry in explained
            if not entry.shadow_of and {label for label, _ in entry.cohort.names} != {skew.UPTIME}
        ]
        window = Window(*fleet.window_us)
        drafts = [_draft(entry, explained, events, kind, window, groups) for entry in shown]
        clear = f"{explained[0].name} stands out, but uptime explains it: see fleet.uptime"
        return self.answer(drafts, clear=clear, remark=drafts[0].summary if drafts else ""), cohorts


def _count_missing(hosts: int, sick: int, cohorts: tuple[skew.Cohort, ...]) -> str:
    """Say how many more hosts with an event could show a label; as if each cohort were a test of its own."""
    for needed in range(max(sick + 1, MIN_SICK), hosts):
        least = min(permutation.smallest_p(hosts, cohort.hosts, needed) for cohort in cohorts)
        if least * len(cohorts) <= package.ALPHA:
            return f"; at least {plural(needed - sick, 'more host')} with an event are needed"
    return "; more hosts are needed"


def separate(
    events: Floats,
    seconds: Floats,
    groups: skew.Groups,
    significant: list[skew.Cohort],
    chance: np.random.Generator,
) -> list[skew.Cohort]:
    """Leave out cohorts that stand out only beside a stronger one of their label: the zones that were not spared."""
    find, kept = groups.names.index, list[skew.Cohort]()
    for cohort in significant:
        labels = groups.labels(find(cohort.names))
        alike = [n for n in range(len(groups.names)) if labels & groups.labels(n)]
        stronger = [n for n in (find(each.names) for each in kept) if n in alike]
        rest = ~groups.member[:, stronger].any(axis=1)
        # Again with all cohorts of the label: one of several equal zones is the sickest by chance.
        names = tuple(groups.names[n] for n in alike)
        among = skew.Groups(names, groups.member[rest][:, alike])
        tested = skew.compare(events[rest], seconds[rest], among, chance) if stronger else [cohort]
        found = {(each.names, each.spared) for each in tested if each.p <= package.ALPHA}
        if (cohort.names, cohort.spared) in found:
            kept.append(cohort)
    return kept


def explain(
    events: Floats,
    seconds: Floats,
    labels: dict[str, list[str]],
    groups: skew.Groups,
    significant: list[skew.Cohort],
    chance: np.random.Generator,
) -> tuple[Explained, ...]:
    """Test each cohort that stands out again within the values of every other label; see docs/fleet.md."""
    chosen = [groups.names.index(cohort.names) for cohort in significant]
    withins: list[dict[str, P]] = [{} for _ in significant]
    for label, values in labels.items():
        # Cohorts share the draws of a label: with dozens of labels, drawing for each pair would take minutes.
        rows = [n for n, group in enumerate(chosen) if label not in groups.labels(group)]
        member = groups.member[:, [chosen[n] for n in rows]]
        spared = [significant[n].spared for n in rows]
        tested = _test(events, seconds, member, skew.codes(values), chance, spared)
        for row, p in zip(rows, tested, strict=True):
            withins[row][label] = p
    entries: list[Explained] = []
    for cohort, group, within in zip(significant, chosen, withins, strict=True):
        together = P(cohort.p, cohort.smallest)
        if within:
            strata = skew.codes(*(labels[label] for label in within))
            member = groups.member[:, [group]]
            (together,) = _test(events, seconds, member, strata, chance, [cohort.spared])
        entries.append(Explained(cohort, group, within, together))
    return tuple(_judge(entry, entries, groups) for entry in entries)


def _test(
    events: Floats,
    seconds: Floats,
    member: Booleans,
    strata: Integers,
    chance: np.random.Generator,
    spared: list[bool],
) -> list[P]:
    """Return the p of each cohort within strata, in its own direction; 1 where it could not be significant."""
    smallest = [
        skew.smallest_stratified(events, column, strata, spared=side)
        for column, side in zip(member.T, spared, strict=True)
    ]
    able = [n for n, least in enumerate(smallest) if least <= package.ALPHA]
    values = np.ones(len(smallest))
    if able:
        sides = [spared[n] for n in able]
        values[able] = skew.within(events, seconds, member[:, able], strata, chance, spared=sides)
    return [P(float(value), least) for value, least in zip(values, smallest, strict=True)]


def _judge(entry: Explained, entries: list[Explained], groups: skew.Groups) -> Explained:
    """Fill in whose shadow it is, and from which labels it cannot be separated."""
    own_labels = groups.labels(entry.group)
    shadow_of, undecided = "", []
    for label, p in entry.within.items():
        if p.is_significant:
            continue
        # A label without a cohort that stands out explains nothing: small strata hide much.
        rivals = [other for other in entries if label in groups.labels(other.group)]
        if not rivals:
            continue
        stays = any(
            other.within[name].is_significant
            for other in rivals
            for name in own_labels
            if name in other.within
        )
        if stays and p.is_attainable:
            shadow_of = shadow_of or label
        else:
            undecided.append(label)
    return dataclasses.replace(entry, shadow_of=shadow_of, undecided=tuple(undecided))


def _labels(hosts: list[Host]) -> dict[str, list[str]]:
    """Return each label's value on every host, with the band of its uptime as one more label."""
    names = sorted({name for host in hosts for name in host.labels})
    labels = {name: [host.labels.get(name, "") for host in hosts] for name in names}
    labels[skew.UPTIME] = [
        skew.uptime_band(
            sum((spell.uptime + spell.seconds / 2) * spell.seconds for spell in host.spells)
            / host.seconds
        )
        for host in hosts
    ]
    return labels


def _draft(
    entry: Explained,
    explained: tuple[Explained, ...],
    events: Floats,
    kind: str,
    window: Window,
    groups: skew.Groups,
) -> _base.Draft:
    cohort, name = entry.cohort, entry.name
    sick, count = int((events > 0).sum()), len(events)
    on_others = f"{sick - cohort.sick} of {count - cohort.hosts}"
    undecided = ", ".join(entry.undecided)
    draft = _base.Draft(
        KIND,
        Subject(cohort=name),
        window,
        min(0.99, 1 - cohort.p) * (0.5 if undecided else 1.0),
        f"{kind} {'spares' if cohort.spared else 'follows'} {name}: {rounded(cohort.rate_ratio)} times the rate of the other hosts "
        f"({cohort.sick} of {cohort.hosts} hosts against {on_others}), p = "
        f"{fraction(cohort.p)}"
        + (f"; cannot be distinguished from {undecided}" if undecided else ""),
        magnitude={
            "rate_ratio": cohort.rate_ratio,
            "p_value": cohort.p,
            "smallest_p": cohort.smallest,
            "hosts": cohort.hosts,
            "hosts_with_event": cohort.sick,
        },
    )
    draft.support(
        f"{name}: {cohort.events:g} {kind} in {cohort.seconds / HOUR:,.0f} watched host hours, on "
        f"{cohort.sick} of {cohort.hosts} hosts; {cohort.expected:.1f} are expected at the rate of all "
        f"hosts. The others: {events.sum() - cohort.events:g}, on {on_others} hosts",
        "events",
        look=f"overnight events --kind {kind}",
        events=cohort.events,
        expected_events=round(cohort.expected, 3),
        watched_host_hours=round(cohort.seconds / HOUR, 3),
        hosts_with_event=cohort.sick,
        hosts=cohort.hosts,
    )
    tables = _exact_tests(cohort, sick, count)
    exact = "".join(f"; {test} of the plain table: p = {fraction(p)}" for test, p in tables.items())
    draft.support(
        f"with hosts assigned to cohorts at random, {fraction(cohort.p)} of the draws were as striking in any "
        f"cohort, in either direction; the smallest attainable is {fraction(cohort.smallest)}{exact}",
        "events",
        p=cohort.p,
        smallest_p=cohort.smallest,
        p_fisher=tables.get("fisher"),
        p_boschloo=tables.get("boschloo"),
    )
    if cohort.spared:
        label, value = cohort.names[0]
        command = f"overnight drift --kind {kind} --against {shlex.quote(f'{label}={value}')}"
        draft.support(
            f"to compare sick hosts with the spared ones: `{command}`", "host", look=command
        )
    _add_strata(draft, entry, explained, groups)
    for label in entry.undecided:
        p = entry.within[label]
        text = f"{name} and {label} go together: within its values p = {fraction(p.value)}"
        if not p.is_attainable:
            text = (
                f"{name} cannot be distinguished from {label}: within its values p could be no smaller than "
                f"{fraction(p.smallest)}"
            )
        draft.oppose(text, "host", p=p.value, smallest_p=p.smallest)
    return draft


def _add_strata(
    draft: _base.Draft, entry: Explained, explained: tuple[Explained, ...], groups: skew.Groups
) -> None:
    """Add its p within other labels, and the cohorts that it explains away."""
    stays = {label: p.value for label, p in entry.within.items() if p.is_significant}
    if stays:
        labels = ", ".join(f"{label} (p = {fraction(p)})" for label, p in stays.items())
        text = f"it stays when only hosts with the same value of one other label are compared: within {labels}"
        values = {f"p_within_{label}": p for label, p in stays.items()}
        draft.evidence.append(Evidence(text, "host", values, draft.window))
    p, smallest = entry.together
    result = f"p = {fraction(p)}"
    if not entry.together.is_attainable:
        result = f"too few hosts to conclude, p could be no smaller than {fraction(smallest)}"
    text = (
        f"within all other labels at once ({', '.join(entry.within) or 'there are none'}): {result}"
    )
    draft.support(text, "host", p=p, smallest_p=smallest)
    shadows = [other.name for other in explained if other.shadow_of in groups.labels(entry.group)]
    if shadows:
        draft.support(
            f"it explains away {', '.join(shadows)}: among hosts with the same value of it, no effect of"
            " those is left",
            "host",
        )


def _exact_tests(cohort: skew.Cohort, sick: int, count: int) -> dict[str, float]:
    """Return exact tests of hosts with and without an event, where the fleet is small enough to recount."""
    if count > TINY:
        return {}
    from scipy import stats

    table = [
        [cohort.sick, cohort.hosts - cohort.sick],
        [sick - cohort.sick, count - cohort.hosts - sick + cohort.sick],
    ]
    side = "less" if cohort.spared else "greater"
    return {
        "fisher": float(stats.fisher_exact(table, alternative=side).pvalue),
        "boschloo": float(stats.boschloo_exact(table, alternative=side).pvalue),
    }


def _name(cohort: skew.Cohort) -> str:
    return " = ".join(f"{label} {value}" for label, value in cohort.names)


DETECTORS = (CohortSkew(),)
