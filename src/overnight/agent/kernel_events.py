"""Turn lines of the kernel log into sightings; hundreds of lines about one incident become one.

Pure: records and the clock go in, sightings come out. Lines are folded by their own time, not by the
time they are read: a recorder that was starved, or that starts with the history, still sees two resets
30 s apart as two. Memory and work are bounded whatever is written into the log:

- A line that contains no rule's words is never parsed (`wanted`, for `KernelLog.read`).
- Rules that cannot be critical share a budget of lines a second; lines beyond it are only counted by
  rule. A rule that can be critical is always tried, so that no flood hides a reset.
- The first line of an incident is reported at once; further lines are counted and reported once a second.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from overnight.agent import watches
from overnight.model.severity import Severity
from overnight.model.times import SECOND_NS, SECOND_US
from overnight.sources.kernelrules import matcher

if TYPE_CHECKING:
    from overnight.model import clock
    from overnight.model.event import Value
    from overnight.sources import kernelrules, kmsg

FOLD_SECONDS = 10.0
FOLD_NS = round(FOLD_SECONDS * SECOND_NS)
MAX_OPEN = 256
MAX_FIELDS = 32
MAX_KEY = 128
MAX_TEXT = 400
MAX_QUEUES = 32
MAX_CORES = 1 << 16
# Lines a second that are matched for rules that cannot be critical: for one, and for all together.
MAX_A_RULE, MAX_TOGETHER = 50, 500
WAIT = re.compile(r"(?:^|_)since_\w+_[mu]s$|^stuck_ms$|napi_scheduled$")
# A line that a process wrote is an event of its own: it must not pass for the kernel's word.
BY_PROCESS = " (written by a process)"
REHEARSAL = re.compile(r"\[overnight rehearsal ([\w-]{1,64})\]")  # a rehearsal marks its own lines


@dataclasses.dataclass
class Counts:
    """Lines of one rule by what was done with them."""

    matched: int = 0
    capped: int = 0  # lines only counted: over the cap, or new while too many incidents are open


@dataclasses.dataclass
class _Shared:
    """Fields of all kinds of one family about one thing, with the rule that set each.

    The line that reports a device reset names no queue; the line before it does.
    """

    last_ns: int
    values: dict[str, Value] = dataclasses.field(default_factory=dict)
    set_by: dict[str, str] = dataclasses.field(default_factory=dict)

    def add(self, rule: str, fields: Mapping[str, Value]) -> Mapping[str, Value]:
        """Add what one line says, and return it. A rule may correct itself but no other rule; the first queue stays.

        With the first queue stay its fields: the core and the wait of another queue are not its own.
        """
        first, other = self.values.get("queue"), fields.get("queue")
        if first is not None and other is not None and other != first:
            queues = str(self.values.get("queues", first)).split(",")
            if str(other) not in queues and len(queues) < MAX_QUEUES:
                self.values["queues"] = ",".join([*queues, str(other)])
            return {}
        for name, value in fields.items():
            set_by = self.set_by.setdefault(name, rule)
            known = self.values.get(name)
            room = name in self.values or len(self.values) < MAX_FIELDS
            if (known is None or set_by == rule) and room:
                self.values[name] = value
        return fields


@dataclasses.dataclass
class _Incident:
    """Lines of one kind about one thing, none further from the next than the fold time."""

    rule: kernelrules.Rule  # that saw it first, or saw it get worse
    text: str
    severity: Severity
    shared: _Shared
    begin: clock.Clock  # of the first line
    last: clock.Clock  # of the last line
    read_ns: int = 0  # when the last line was read
    reported_ns: int = 0
    unreported: int = 0
    sure: bool = False
    urgent: bool = True  # new, or worse than last reported
    # A driver repeats its line each second, with a longer wait; the wait until the first line belongs to the event.
    waits: dict[str, Value] = dataclasses.field(default_factory=dict)
    family_waits: dict[str, Value] = dataclasses.field(default_factory=dict)  # if it has none


class KernelWatch:
    """Apply the rules to one host's kernel log."""

    def __init__(self, rules: Iterable[kernelrules.Rule]) -> None:
        self._matcher = matcher.Matcher(rules)
        self.wanted = self._matcher.wanted  # whether a raw record is worth parsing
        self._open: dict[tuple[str, str], _Incident] = {}
        self._shared: dict[tuple[str, str], _Shared] = {}
        self._second = -1
        self._used: dict[str, int] = {}
        self._used_together = 0
        self.counts: dict[str, Counts] = {rule.name: Counts() for rule in self._matcher.rules}

    def check(self, records: Iterable[kmsg.Record], now: clock.Clock) -> list[watches.Sighting]:
        """Fold new records in; return incidents that are new, worse, or have unreported lines.

        Call it at least once a second, also without records.
        """
        self._forget(now)
        ended = [
            sighting
            for record in records
            for match in self._matches(record)
            for sighting in self._fold(record, match, now)
        ]
        # Only after all were read: the first sighting then has the fields of the lines behind it.
        return ended + [
            self._report(key, incident, now)
            for key, incident in self._open.items()
            if incident.urgent
            or (incident.unreported and now.monotonic_ns - incident.reported_ns >= SECOND_NS)
        ]

    def finish(self, now: clock.Clock) -> list[watches.Sighting]:
        """Return what was folded and not reported yet, at the end of a recording."""
        return [
            self._report(key, incident, now)
            for key, incident in self._open.items()
            if incident.unreported
        ]

    def _forget(self, now: clock.Clock) -> None:
        """Drop incidents without a line for a while. By read time: older lines may still be unread."""
        over = [
            key
            for key, incident in self._open.items()
            if not incident.unreported and now.monotonic_ns - incident.read_ns > FOLD_NS
        ]
        for key in over:
            del self._open[key]
        if over:
            used = {id(incident.shared) for incident in self._open.values()}
            self._shared = {
                key: shared for key, shared in self._shared.items() if id(shared) in used
            }

    def _matches(self, record: kmsg.Record) -> Iterable[matcher.Match]:
        # Of the line, not of now: a recorder that was away reads many seconds at once.
        second = record.monotonic_us // SECOND_US
        if second > self._second:
            self._second = second
            self._used.clear()
            self._used_together = 0
        kinds: set[str] = set()
        for rule in self._matcher.candidates(record.text):
            if rule.kind in kinds:
                continue
            if not rule.can_be_critical:
                used = self._used.get(rule.name, 0)
                if used >= MAX_A_RULE or self._used_together >= MAX_TOGETHER:
                    self.counts[rule.name].capped += 1
                    continue
                self._used[rule.name] = used + 1
                self._used_together += 1
            match = matcher.try_rule(rule, record.text, record.device)
            if match is not None:
                kinds.add(rule.kind)
                yield match

    def _fold(
        self, record: kmsg.Record, match: matcher.Match, now: clock.Clock
    ) -> watches.Sightings:
        """Add a line to its incident, or begin one; yield the incident that it ends."""
        rule, counts = match.rule, self.counts[match.rule.name]
        counts.matched += 1
        key = match.key[:MAX_KEY] + (BY_PROCESS if record.from_user else "")
        when, severity = record.instant, Severity.of(match.severity)
        incident = self._open.get((rule.kind, key))
        if incident is not None and when.monotonic_ns - incident.last.monotonic_ns > FOLD_NS:
            if incident.unreported:
                yield self._report((rule.kind, key), incident, now)
            del self._open[rule.kind, key]
            incident = None
        if incident is None and len(self._open) >= MAX_OPEN:
            counts.capped += 1
            return
        shared = self._share(rule.family, key, when)
        if incident is None:
            incident = _Incident(rule, record.text[:MAX_TEXT], severity, shared, when, when)
            self._open[rule.kind, key] = incident
        elif severity.rank > incident.severity.rank:
            if incident.severity is Severity.INFO:
                incident.unreported = 0  # it only announced this line
            incident.rule, incident.text = rule, record.text[:MAX_TEXT]
            incident.severity, incident.shared, incident.urgent = severity, shared, True
        incident.last, incident.read_ns = when, now.monotonic_ns
        incident.unreported += 1
        incident.sure = incident.sure or rule.confidence == "sure"
        _keep_first(incident.waits, shared.add(rule.name, match.fields))
        _keep_first(incident.family_waits, shared.values)
        if record.from_user:
            shared.values["written_by_process"] = True
            if (rehearsal := REHEARSAL.search(record.text)) is not None:
                shared.values["rehearsal"] = rehearsal[1]

    def _share(self, family: str, key: str, when: clock.Clock) -> _Shared:
        """Return the fields of a family about one thing; new ones after a quiet time."""
        shared = self._shared.get((family, key))
        if shared is None or when.monotonic_ns - shared.last_ns > FOLD_NS:
            shared = self._shared[family, key] = _Shared(when.monotonic_ns)
        shared.last_ns = when.monotonic_ns
        return shared

    def _report(
        self, key: tuple[str, str], incident: _Incident, now: clock.Clock
    ) -> watches.Sighting:
        count, incident.unreported = incident.unreported, 0
        incident.reported_ns, incident.urgent = now.monotonic_ns, False
        fields: dict[str, Value] = {
            **incident.shared.values,
            **incident.family_waits,
            **incident.waits,
        }
        fields["rule"] = incident.rule.name
        if not incident.sure:
            fields["confidence"] = "likely"
        core = fields.get("cpu", -1)
        return watches.Sighting(
            kind=key[0],
            key=key[1],
            begin=incident.begin,
            last=incident.last,
            text=incident.text,
            severity=incident.severity,
            core=core if isinstance(core, int) and 0 <= core < MAX_CORES else -1,
            unit=str(fields.get("unit", "")),
            process=str(fields.get("comm", "")),
            count=count,
            fold_seconds=FOLD_SECONDS,
            fields=fields,
        )


def _keep_first(waits: dict[str, Value], fields: Mapping[str, Value]) -> None:
    for name, value in fields.items():
        if WAIT.search(name):
            waits.setdefault(name, value)
