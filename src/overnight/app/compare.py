"""`overnight compare`: whether a rate of events changed, between two times or between two groups of hosts."""

from __future__ import annotations

import dataclasses
import functools
import pathlib
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from overnight import errors
from overnight.app import added_events, windows
from overnight.app import events as stored
from overnight.model import times
from overnight.model.selection import Window
from overnight.model.severity import Severity
from overnight.model.text import plural
from overnight.queries import fleet as fleets
from overnight.queries import rates

if TYPE_CHECKING:
    from overnight.model.event import Event

HOUR_US = times.HOUR_US
DAY_H, MANY = 24.0, 1000.0  # rates are shown per host-day, or per 1,000 events of the other kind
MAX_NAMED = 5
EVERYTHING = Window(0, 1 << 62)
Outcome = rates.Outcome


@dataclasses.dataclass(frozen=True)
class Request:
    """Two times (`at`, or `before` and `after`) or two groups of hosts; times as users write them."""

    home: pathlib.Path
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
    """A window, and the value that a label has on this side."""

    name: str
    window: Window
    label: tuple[str, str] | None = None
    is_other: bool = False  # any other value of the label

    def accepts(self, host: fleets.Host, event: Event | None = None) -> bool:
        """Whether a host is on this side, or an event, whose own label comes first."""
        if self.label is None:
            return True
        name, wanted = self.label
        labels = {**host.labels, "host": host.name, **(event.fields if event else {})}
        return name in labels and (str(labels[name]) == wanted) != self.is_other


@dataclasses.dataclass(frozen=True)
class Row:
    """One kind of event on both sides."""

    kind: str
    compared: rates.Comparison
    per: str
    hosts: int  # on the second side
    is_groups: bool
    outside: int  # events in time that was not recorded: not counted
    p_hosts: float | None  # of groups: p with the host as the unit

    @property
    def is_chance(self) -> bool:
        """Whether groups differ no more than hosts do: events on one host are one piece of evidence."""
        return self.p_hosts is not None and self.p_hosts > rates.ALPHA

    @property
    def outcome(self) -> Outcome:
        found = self.compared.outcome
        is_change = found in (Outcome.FELL, Outcome.ROSE)
        return Outcome.CANNOT_TELL if is_change and self.is_chance else found

    @property
    def scale(self) -> float:
        return MANY if self.per else DAY_H

    @property
    def interval(self) -> str:
        high = self.compared.high
        return f"{number(self.compared.low)} to {'∞' if high is None else number(high)}"

    @property
    def answer(self) -> str:
        """The result in one sentence."""
        compared, unit = self.compared, f"per 1,000 {self.per}" if self.per else "a host-day"
        before, after = (
            number(side.rate * self.scale) for side in (compared.before, compared.after)
        )
        ratio = f"95 % interval of the ratio {self.interval}"
        shown = f"from {before} to {after} {unit}; {ratio}"
        is_than = f"{after} against {before} {unit}; {ratio}"
        match self.outcome:
            case Outcome.FELL if not self.is_groups:
                return f"the rate fell {shown}: the fix worked"
            case Outcome.ROSE if not self.is_groups:
                return f"the rate rose {shown}: it got worse"
            case Outcome.FELL | Outcome.ROSE as found:
                return f"the rate is {'lower' if found is Outcome.FELL else 'higher'}: {is_than}"
            case Outcome.UNCHANGED:
                return f"no effect: the rate neither halved nor doubled, {is_than}"
            case Outcome.NO_EVENTS:
                most = number(compared.after.high * self.scale)
                return f"no event on either side; the rate is at most {most} {unit}"
        if compared.outcome is not Outcome.CANNOT_TELL:
            return f"cannot tell: {is_than}, but hosts of one group differ as much (p = {self.p_hosts:.2g})"
        if self.is_groups:
            return f"cannot tell: {is_than}"
        if compared.wait is None:
            return f"cannot tell: {is_than}; there was no event to compare with"
        more = f"for {compared.wait:,.0f} more {self.per}"
        if not self.per:
            long = times.format_duration(compared.wait * 3600 / max(1, self.hosts))
            more = (
                f"{compared.wait:,.0f} more host-hours ({long} with {plural(self.hosts, 'host')})"
            )
        return f"cannot tell yet: {is_than}; wait {more} without an event to be 95 % sure that the rate halved"

    def as_json(self) -> dict[str, object]:
        compared = dataclasses.asdict(self.compared)
        for side in ("before", "after"):
            compared[side]["rate"] = getattr(self.compared, side).rate
        for bound in ("low", "high"):
            compared[f"ratio_{bound}"] = compared.pop(bound)
        own = {"outside": self.outside, "p_hosts": self.p_hosts}
        return {
            "kind": self.kind,
            "outcome": self.outcome,
            "answer": self.answer,
            **compared,
            **own,
        }


@dataclasses.dataclass(frozen=True)
class Result:
    before: Side
    after: Side
    per: str  # "" for host-hours
    rows: tuple[Row, ...]
    notes: tuple[str, ...]

    def as_json(self) -> dict[str, object]:
        return {
            "schema": "overnight.compare/1",
            "before": self.before.name,
            "after": self.after.name,
            "exposure": self.per or "host-hours",
            "rows": [row.as_json() for row in self.rows],
            "notes": list(self.notes),
        }


def compare(request: Request) -> Result:
    """Compare the rates of events; raise CannotError where a side has no exposure."""
    chosen = stored.resolve_hosts(request.home, request.hosts)
    fleet = fleets.read_fleet(request.home)
    hosts = tuple(host for host in fleet.hosts if host.name in chosen)
    recorded = _extent(hosts)
    sides = _parse_sides(request, recorded)
    labels = dict(map(added_events.parse_label, request.labels))
    before, after = (_Count(side, hosts, labels, request.per, recorded) for side in sides)
    for count in (before, after):
        if not count.exposure:
            raise _no_exposure(count)
    kinds = request.kinds or tuple(sorted(before.find_kinds() | after.find_kinds()))
    rows = sorted(
        (_compare_kind(kind, before, after, rates.ALPHA / len(kinds)) for kind in kinds),
        key=lambda row: (row.outcome in (Outcome.CANNOT_TELL, Outcome.NO_EVENTS), row.kind),
    )
    notes = (*fleet.problems, *_find_notes(rows, before, after))
    return Result(*sides, request.per, tuple(rows), notes)


def _extent(hosts: tuple[fleets.Host, ...]) -> Window:
    """Return the time from the first reading or event to the last."""
    stamps = [event.time_us for host in hosts for event in host.events]
    stamps += [
        at for host in hosts for spell in host.spells for at in (spell.begin_us, spell.end_us)
    ]
    now = time.time_ns() // 1000
    return Window(min(stamps, default=now), max(stamps, default=now) + 1)


def _parse_sides(request: Request, recorded: Window) -> tuple[Side, Side]:
    """Return the side to compare with, and the side in question."""
    forms = (bool(request.at), bool(request.before and request.after), bool(request.group))
    if sum(forms) != 1 or bool(request.before) != bool(request.after):
        raise errors.UsageError(
            "give --at, or --before and --after, or --group",
            why="each names the two sides to compare",
            todo="overnight compare --at '2026-11-15 14:00'",
        )
    if request.group:
        window = windows.parse_window(request.begin, request.end, EVERYTHING, recorded)
        label = added_events.parse_label(request.group)
        other = Side(f"other {label[0]}", window, label, is_other=True)
        if request.against:
            against = added_events.parse_label(request.against)
            if against[0] != label[0] or against == label:
                raise errors.UsageError(
                    f"cannot compare {request.group} with {request.against}",
                    why="with two values of one label, no host is in both groups",
                    todo=f"give another value of the same label: --against {label[0]}=VALUE",
                )
            other = Side(request.against, window, against)
        return other, Side(request.group, window, label)
    sides = []
    for text, is_end in (
        (request.before or request.at, True),
        (request.after or request.at, False),
    ):
        begin, dots, end = text.partition("..")
        if not dots:  # all time until an instant, or since
            begin, end = ("", text) if is_end else (text, "")
        window = windows.parse_window(begin, end, EVERYTHING, recorded)
        shown = max(window.begin_us, recorded.begin_us), min(window.end_us, recorded.end_us)
        sides.append(Side(" to ".join(map(times.format_instant, shown)), window))
    before, after = sides
    if before.window.end_us > after.window.begin_us:
        raise errors.UsageError(
            "--after begins before --before ends",
            why="events between the two would count on both sides",
            todo="choose windows that do not overlap",
        )
    return before, after


@dataclasses.dataclass(frozen=True)
class _Count:
    """The hosts, exposure and events of one side."""

    side: Side
    hosts: tuple[fleets.Host, ...]
    labels: dict[str, str]
    per: str
    recorded: Window

    @functools.cached_property
    def spans(self) -> tuple[tuple[tuple[int, int], ...], ...]:
        """The time of each host that counts: recorded or, if it is not the exposure, all of it."""
        window = self.side.window
        of_hosts = []
        for host in self.hosts:
            spans = [
                (spell.begin_us, spell.end_us) for spell in host.spells if self.side.accepts(host)
            ]
            spans = [(self.recorded.begin_us, self.recorded.end_us)] if self.per else spans
            cut = ((max(window.begin_us, begin), min(window.end_us, end)) for begin, end in spans)
            of_hosts.append(tuple((begin, end) for begin, end in cut if begin < end))
        return tuple(of_hosts)

    @functools.cached_property
    def hours(self) -> list[float]:
        """Of each host."""
        return [sum(end - begin for begin, end in spans) / HOUR_US for spans in self.spans]

    @property
    def exposure(self) -> float:
        return float(sum(map(len, self.events(self.per)))) if self.per else sum(self.hours)

    def events(self, kind: str) -> list[list[Event]]:
        """Return the events of each host."""
        window = self.side.window
        return [
            [
                event
                for event in host.of_kind(kind)
                if window.begin_us <= event.time_us < window.end_us
                and self.side.accepts(host, event)
                and all(event.fields.get(name) == value for name, value in self.labels.items())
            ]
            for host in self.hosts
        ]

    def find_kinds(self) -> set[str]:
        kinds = {e.kind for h in self.hosts for e in h.events if Severity.of(e.severity).rank}
        return {kind for kind in kinds - {self.per} if any(self.events(kind))}

    def place(self, kind: str) -> tuple[list[list[rates.Span]], int]:
        """Return the spans of each host with the events in them, and the number of events outside."""
        of_hosts, outside = [], 0
        for host, spans, events in zip(self.hosts, self.spans, self.events(kind), strict=True):
            inside: dict[tuple[int, int], list[float]] = {span: [] for span in spans}
            for event in events:
                at = event.time_us
                if not spans or not (self.per or host.place(event)):
                    outside += 1
                    continue
                # An event may be reported just after the last reading.
                nearest = min(spans, key=lambda span: max(span[0] - at, at - span[1], 0))
                inside[nearest].append(min(max(at, nearest[0]), nearest[1] - 1) / 1e6)
            of_hosts.append([rates.Span(b / 1e6, e / 1e6, tuple(at)) for (b, e), at in inside.items()])  # fmt: skip
        return of_hosts, outside


def _no_exposure(count: _Count) -> errors.CannotError:
    side, per = count.side, count.per
    why = "no host was recorded in that time, so that its host-hours are not known"
    todo = "choose a recorded time, or count per event: --per job.started"
    if per:
        why, todo = (
            f"it has no event {per}",
            f"add them: overnight event add --kind {per} --severity info",
        )
    elif side.label and not any(map(side.accepts, count.hosts)):
        name = side.label[0]
        values = sorted({host.labels[name] for host in count.hosts if name in host.labels})
        why = f"no host here has that label; values of {name}: {', '.join(values[:MAX_NAMED]) or 'none'}"
        todo = "label hosts: overnight event add --kind host.labels; a label of events alone needs --per KIND"
    return errors.CannotError(f"nothing to compare for {side.name}", why=why, todo=todo)


def _compare_kind(kind: str, before: _Count, after: _Count, alpha: float) -> Row:
    spans, outside = zip(*(count.place(kind) for count in (before, after)), strict=True)
    of_hosts = [[sum(len(span.events) for span in host) for host in side] for side in spans]
    flat = [[span for host in side for span in host] for side in spans]
    compared = rates.compare(
        (sum(of_hosts[0]), before.exposure),
        (sum(of_hosts[1]), after.exposure),
        dispersion=rates.measure_dispersion(flat),
        alpha=alpha,
    )
    is_groups = before.side.label is not None
    is_tested = is_groups and not before.per and compared.outcome is not Outcome.NO_EVENTS
    p_hosts = _test_hosts(of_hosts, before, after) if is_tested else None
    hosts = sum(hours > 0 for hours in after.hours)
    return Row(kind, compared, before.per, hosts, is_groups, sum(outside), p_hosts)


def _test_hosts(events: list[list[int]], before: _Count, after: _Count) -> float:
    """Return p with hosts assigned to the groups at random, as `overnight diagnose` tests cohorts."""
    import numpy as np

    from overnight.detectors.fleet import permutation, skew

    hours = np.array([before.hours, after.hours]).T
    watched = hours.sum(axis=1) > 0
    names = (((before.side.name, ""),), ((after.side.name, ""),))
    groups = skew.Groups(names, hours[watched] > 0)
    counts = np.array(events, float).sum(axis=0)[watched]
    cohorts = skew.compare(counts, hours[watched].sum(axis=1), groups, permutation.generator())
    return min(cohort.p for cohort in cohorts)


def _find_notes(rows: list[Row], before: _Count, after: _Count) -> Iterator[str]:
    if len(rows) > 1:
        yield f"{len(rows)} kinds are compared; all intervals together hold with 95 %"
    for row in rows:
        if row.outside:
            yield f"not counted: {plural(row.outside, 'event')} {row.kind} in time that was not recorded"
        if row.compared.dispersion > 1.5:
            yield f"{row.kind} comes in bursts: {row.compared.dispersion:.1f} events count as one"
    for one, other, where in ((before, after, "before"), (after, before, "after")):
        triples = zip(one.hosts, one.hours, other.hours, strict=True)
        only = [host.name for host, here, there in triples if here and not there]
        if only and not one.side.label and not one.per:
            yield f"recorded only {where}: {', '.join(only[:MAX_NAMED])}{' …' * (len(only) > MAX_NAMED)}"


def number(value: float) -> str:
    """Format a rate or a ratio.

    >>> number(3.14159), number(0.0312), number(1234.5), number(0)
    ('3.1', '0.031', '1,234', '0')
    """
    return f"{value:,.0f}" if value >= 100 else f"{value:.2g}"
