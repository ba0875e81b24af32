"""`overnight compare`: whether a rate of events changed, between two times or between two groups of hosts."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from overnight import errors
from overnight.app import added_events, questions, rate_answers, windows
from overnight.model import decoding, times
from overnight.model.fleet import Host, Spell
from overnight.model.selection import Window
from overnight.model.severity import Severity
from overnight.model.text import plural, rounded
from overnight.queries import rates
from overnight.store import added_events as stored_events

if TYPE_CHECKING:
    from overnight.model.fleet import Fleet

MAX_NAMED = 5
EVERYTHING = Window(0, 1 << 62)
# Which of --at, --before, --after, --group and --against may be given together.
FORMS = ((1, 0, 0, 0, 0), (0, 1, 1, 0, 0), (0, 0, 0, 1, 0), (0, 0, 0, 1, 1))
BURSTS = 1.5  # a dispersion to report
UNEQUAL = 1.2  # by which the ratio of single hosts and that of all differ


@dataclasses.dataclass(frozen=True)
class Request:
    """Two times (`at`, or `before` and `after`) or two groups of hosts; times as users write them."""

    kinds: tuple[str, ...] = ()  # none: every kind that is at least a warning
    at: str = ""
    before: str = ""  # an instant, or BEGIN..END
    after: str = ""
    group: str = ""  # LABEL=VALUE
    against: str = ""  # none: all other values
    begin: str = ""
    end: str = ""
    hosts: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()  # of the events to count
    per: str = ""  # a kind of event that counts as exposure, instead of host-hours


@dataclasses.dataclass(frozen=True)
class Side:
    """A window, or a value that a label has in it, and what counts of each host."""

    name: str
    window: Window
    label: tuple[str, str] | None = None
    is_other: bool = False  # any other value of the label
    hosts: tuple[Host, ...] = ()
    exposures: tuple[float, ...] = ()  # host-hours, or events of the kind `per`, of each

    @property
    def exposed(self) -> int:
        """The number of hosts with exposure."""
        return sum(exposure > 0 for exposure in self.exposures)

    def accepts(self, labels: Mapping[str, object]) -> bool:
        if self.label is None:
            return True
        name, wanted = self.label
        return name in labels and (str(labels[name]) == wanted) != self.is_other

    def count(self, hosts: tuple[Host, ...], accepted: Mapping[str, str], per: str) -> Side:
        """Return the side with the time and events of hosts that count: events have the labels `accepted`."""
        counted = []
        for host in hosts:
            own = {**host.labels, "host": host.name}
            spells = host.spells if self.accepts(own) else ()
            if per:  # recorded or not
                spells = (Spell(self.window.begin_us, self.window.end_us, 0.0),)
            # What an operator gave are labels of an event; fields of other events are measurements.
            events = tuple(
                event
                for event in host.events
                if self.accepts(
                    {**own, **event.fields} if event.source == stored_events.SOURCE else own
                )
                and all(str(event.fields.get(name)) == value for name, value in accepted.items())
            )
            counted.append(dataclasses.replace(host, spells=spells, events=events).cut(self.window))
        exposures = (len(host.of_kind(per)) if per else host.seconds / 3600 for host in counted)
        return dataclasses.replace(self, hosts=tuple(counted), exposures=tuple(exposures))


@dataclasses.dataclass(frozen=True)
class Row:
    """One kind of event on both sides."""

    kind: str
    compared: rates.Comparison
    answer: str
    outside: int  # events in time that was not recorded: not counted

    def as_json(self) -> dict[str, object]:
        head = {"kind": self.kind, "outcome": self.compared.outcome, "answer": self.answer}
        return {**head, **dataclasses.asdict(self.compared), "outside": self.outside}


@dataclasses.dataclass(frozen=True)
class SideSummary:
    """A side without its hosts: the sum of their exposures, and how many of them have some."""

    name: str
    window: Window
    exposure: float
    hosts: int


@dataclasses.dataclass(frozen=True)
class Result:
    before: SideSummary
    after: SideSummary
    wording: rate_answers.Wording
    rows: tuple[Row, ...]
    notes: tuple[str, ...]

    def as_json(self) -> dict[str, Any]:
        return {
            "schema": QUESTION.schema,
            "before": self.before.name,
            "after": self.after.name,
            "exposure": self.wording.per or "host-hours",
            "rows": [row.as_json() for row in self.rows],
            "notes": list(self.notes),
            "sides": [dataclasses.asdict(side) for side in (self.before, self.after)],
            "wording": dataclasses.asdict(self.wording),
        }


def _from_json(document: dict[str, Any]) -> Result:
    before, after = document["sides"]
    return decoding.decode(Result, {**document, "before": before, "after": after})


def compare(fleet: Fleet, request: Request) -> Result:
    """Compare the rates of events; raise CannotError where a side has no exposure."""
    hosts = questions.choose_hosts(fleet, request.hosts)
    accepted = dict(map(added_events.parse_label, request.labels))
    now = times.now_us()
    sides = _parse_sides(request, questions.extent(hosts) or Window(now, now + 1))
    before, after = (side.count(hosts, accepted, request.per) for side in sides)
    for side in (after, before):
        if not side.exposed:
            raise _no_exposure(side, request.per, hosts)
    kinds = request.kinds or _find_kinds(before, after, request.per)
    wording = rate_answers.Wording(
        request.per,
        (before.name, after.name) if request.group else None,
        rates.ALPHA / max(1, len(kinds)),
    )
    rows = [_compare_kind(kind, before, after, wording) for kind in kinds]
    unsure = (rates.Outcome.CANNOT_TELL, rates.Outcome.NO_EVENTS)
    rows.sort(key=lambda row: (row.compared.outcome in unsure, row.kind))
    unknown = _find_unknown(request.kinds, hosts)
    notes = (*fleet.problems, *unknown, *_find_notes(rows, before, after, wording))
    first, second = (
        SideSummary(s.name, s.window, sum(s.exposures), s.exposed) for s in (before, after)
    )
    return Result(first, second, wording, tuple(rows), notes)


def _parse_sides(request: Request, recorded: Window) -> tuple[Side, Side]:
    """Return the side to compare with, and the side in question."""
    given = (request.at, request.before, request.after, request.group, request.against)
    if tuple(map(bool, given)) not in FORMS:
        raise errors.UsageError(
            "give --at, or --before and --after, or --group, with or without --against",
            why="each of the three names the two sides to compare",
            todo="overnight compare --at '2026-11-15 14:00'",
        )
    window = windows.resolve_window(recorded, request.begin, request.end)
    if request.group:
        return _parse_groups(request, window)
    sides = []
    for name, text in (("before", request.before), ("after", request.after)):
        begin, dots, end = (text or request.at).partition("..")
        if not dots:  # all time until an instant, or since
            begin, end = ("", begin) if name == "before" else (begin, "")
        sides.append(Side(name, windows.parse_window(begin, end, EVERYTHING, recorded)))
    before, after = sides
    if before.window.end_us > after.window.begin_us:
        raise errors.UsageError(
            "--after begins before --before ends",
            why="events between the two would count on both sides",
            todo="choose windows that do not overlap",
        )
    return _clip(before, window, recorded), _clip(after, window, recorded)


def _clip(side: Side, window: Window, recorded: Window) -> Side:
    begin = max(side.window.begin_us, window.begin_us, recorded.begin_us)
    end = min(side.window.end_us, window.end_us, recorded.end_us)
    if begin >= end:
        covered = map(times.format_instant, (recorded.begin_us, recorded.end_us))
        raise errors.CannotError(
            f"nothing was recorded {side.name} the fix",
            why=f"the recording covers {' to '.join(covered)}",
            todo="choose times within the recording",
        )
    return Side(" to ".join(map(times.format_instant, (begin, end))), Window(begin, end))


def _parse_groups(request: Request, window: Window) -> tuple[Side, Side]:
    label = added_events.parse_label(request.group)
    group = Side(request.group, window, label)
    if not request.against:
        return Side(f"other values of {label[0]}", window, label, is_other=True), group
    against = added_events.parse_label(request.against)
    if against[0] != label[0] or against == label:
        raise errors.UsageError(
            f"cannot compare {request.group} with {request.against}",
            why="with two values of one label, no host is in both groups",
            todo=f"give another value of the same label: --against {label[0]}=VALUE",
        )
    return Side(request.against, window, against), group


def _no_exposure(side: Side, per: str, hosts: tuple[Host, ...]) -> errors.CannotError:
    why = "no host was recorded in that time, so its host-hours are not known"
    todo = "choose a recorded time, or count per event: --per job.started"
    if per:
        why = f"it has no event {per}"
        todo = f"add them: `overnight event add --kind {per} --severity info --file FILE`"
    elif side.label and not any(side.accepts({**host.labels, "host": host.name}) for host in hosts):
        name = side.label[0]
        values = sorted({host.labels[name] for host in hosts if name in host.labels})
        known = ", ".join(values[:MAX_NAMED]) + " …" * (len(values) > MAX_NAMED) or "none"
        why = f"no host has that label; values of {name}: {known}"
        todo = f"label hosts: `overnight event add --kind host.labels --host NAME --label {name}=VALUE`; to compare labels of events: --per KIND"
    return errors.CannotError(f"nothing to compare for {side.name}", why=why, todo=todo)


def _find_kinds(before: Side, after: Side, per: str) -> tuple[str, ...]:
    """Return the kinds that are at least a warning."""
    events = (event for side in (before, after) for host in side.hosts for event in host.events)
    return tuple(sorted({e.kind for e in events if Severity.of(e.severity).rank} - {per}))


def _compare_kind(kind: str, before: Side, after: Side, wording: rate_answers.Wording) -> Row:
    spans = [[host.spans(kind) for host in side.hosts] for side in (before, after)]
    counts = [[sum(len(events) for _, events in host) for host in side] for side in spans]
    events, exposures = np.array(counts).T, np.array((before.exposures, after.exposures)).T
    seen = sum(len(host.of_kind(kind)) for side in (before, after) for host in side.hosts)
    compared = rates.compare(
        events.sum(axis=0) if wording.per else events,
        exposures.sum(axis=0) if wording.per else exposures,
        dispersion=rates.measure_dispersion([[*itertools.chain(*side)] for side in spans]),
        alpha=wording.alpha,
    )
    if wording.groups and not wording.per and events.any():
        compared = dataclasses.replace(compared, p_hosts=_test_hosts(events, exposures))
    outside = seen - int(events.sum())
    return Row(kind, compared, wording.explain(compared, after.exposed), outside)


def _test_hosts(events: rates.Floats, hours: rates.Floats) -> float:
    """Return p with hosts assigned to the groups at random, as `overnight diagnose` tests cohorts."""
    from overnight.detectors.fleet import permutation, skew

    watched = hours.sum(axis=1) > 0
    groups = skew.Groups(((("group", "0"),), (("group", "1"),)), hours[watched] > 0)
    counts, seconds = (rows[watched].sum(axis=1).astype(float) for rows in (events, hours))
    return min(c.p for c in skew.compare(counts, seconds, groups, permutation.generator()))


def _find_unknown(kinds: tuple[str, ...], hosts: tuple[Host, ...]) -> Iterator[str]:
    stored_kinds = sorted({event.kind for host in hosts for event in host.events})
    for kind in kinds:
        if not any(host.of_kind(kind) for host in hosts):
            known = ", ".join(stored_kinds[:MAX_NAMED]) + " …" * (len(stored_kinds) > MAX_NAMED)
            yield f"these hosts have never had an event {kind}; they had {known or 'none of any kind'}"


def _find_notes(
    rows: list[Row], before: Side, after: Side, wording: rate_answers.Wording
) -> Iterator[str]:
    if len(rows) > 1:
        yield f"{len(rows)} kinds are compared; all intervals together hold with 95 %"
    for row in rows:
        compared = row.compared
        if row.outside:
            yield f"not counted: {plural(row.outside, 'event')} {row.kind} in time that was not recorded"
        if compared.dispersion > BURSTS:
            yield f"{row.kind} comes in bursts: {compared.dispersion:.1f} events count as one"
        if compared.ratio and compared.after.rate:
            of_all = compared.after.rate / compared.before.rate
            if not 1 / UNEQUAL < compared.ratio / of_all < UNEQUAL:
                yield f"{row.kind}: the ratio compares each host with itself; of all hosts together it is {rounded(of_all)}"
    if wording.groups or wording.per:
        return
    for one, other, where in ((before, after, "before"), (after, before, "after")):
        triples = zip(one.hosts, one.exposures, other.exposures, strict=True)
        only = [host.name for host, here, there in triples if here and not there]
        if only:
            yield f"recorded only {where}: {', '.join(only[:MAX_NAMED])}{' …' * (len(only) > MAX_NAMED)}"


QUESTION = questions.Question("compare", Request, lambda _: questions.Wanted(), compare, _from_json)
