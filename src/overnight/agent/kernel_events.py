"""Lines of the kernel log become sightings: hundreds of lines about one incident are one of them.

Pure: records and the clock are told, sightings are answered. Memory and work are bounded whatever is
written into the log:

- A line that holds no rule's words is never parsed (`wanted`, for `KernelLog.read`).
- Rules that cannot be critical may use so many lines a second, each and together; what is more is
  counted by rule, and nothing else is done with it. A rule that can be critical is always looked at, so
  that no flood hides a reset.
- The first line of an incident is told at once; its further lines are counted and told once a second.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from overnight.agent import watches
from overnight.sources.kernelrules import matcher

if TYPE_CHECKING:
    from overnight.model import clock
    from overnight.model.event import Value
    from overnight.sources import kernelrules, kmsg

__all__ = ["Caps", "Counts", "KernelWatch"]

TELL_NS = 1_000_000_000
MAX_OPEN = 256
MAX_FIELDS = 32
MAX_KEY = 128
MAX_TEXT = 400
MAX_QUEUES = 32
MAX_CORES = 1 << 16
SEVERITIES = ("info", "warning", "critical")
# What a process wrote is an event of its own: it must not be taken for the kernel's word.
BY_PROCESS = " (written by a process)"
REHEARSED = re.compile(r"\[overnight rehearsal ([\w-]{1,64})\]")  # a victim on purpose says so


@dataclasses.dataclass(frozen=True)
class Caps:
    """Lines a second that are matched, of rules that cannot be critical."""

    a_rule: int = 50
    together: int = 500


@dataclasses.dataclass
class Counts:
    """What became of the lines of one rule."""

    matched: int = 0  # lines, folded ones included
    folded: int = 0  # of these, lines of an incident that was known already
    capped: int = 0  # lines with its words that were only counted


@dataclasses.dataclass
class _Incident:
    """Lines of one kind about one thing."""

    rule: kernelrules.Rule  # the one that saw it first, or saw it get worse
    text: str
    begin: clock.Clock
    severity: str
    last_ns: int
    told_ns: int = 0
    untold: int = 0
    sure: bool = False
    urgent: bool = True  # new, or worse than it was told


@dataclasses.dataclass
class _Shared:
    """Fields of all kinds of one family about one thing, with the rule that said each.

    The line that says that a device was reset names no queue; the line before it does.
    """

    values: dict[str, Value] = dataclasses.field(default_factory=dict)
    said_by: dict[str, str] = dataclasses.field(default_factory=dict)

    def add(self, rule: str, fields: Mapping[str, Value]) -> None:
        """What another rule said stays; a rule may correct itself, but the first queue is kept.

        And with it what was said of it: the core and the wait of another queue are not its own.
        """
        first, other = self.values.get("queue"), fields.get("queue")
        if first is not None and other is not None and other != first:
            self._add_queue(first, other)
            return
        for name, value in fields.items():
            said_by = self.said_by.setdefault(name, rule)
            known = self.values.get(name)
            if (known is None or said_by == rule) and (
                name in self.values or len(self.values) < MAX_FIELDS
            ):
                self.values[name] = value

    def _add_queue(self, first: Value, other: Value) -> None:
        queues = str(self.values.get("queues", first)).split(",")
        if str(other) not in queues and len(queues) < MAX_QUEUES:
            self.values["queues"] = ",".join([*queues, str(other)])


class KernelWatch:
    """The rules at work on one host's kernel log; the source of its events is `kernel-log`."""

    name = "kernel-log"

    def __init__(
        self,
        rules: Iterable[kernelrules.Rule],
        caps: Caps | None = None,
        fold_seconds: float = 10.0,
    ) -> None:
        self._matcher = matcher.Matcher(rules)
        self._caps = caps or Caps()
        self._fold_seconds = fold_seconds
        self._fold_ns = round(fold_seconds * 1e9)
        self._open: dict[tuple[str, str], _Incident] = {}
        self._shared: dict[tuple[str, str], _Shared] = {}
        self._second = -1
        self._used: dict[str, int] = {}
        self._used_together = 0
        self.counts: dict[str, Counts] = {rule.name: Counts() for rule in self._matcher.rules}
        self.overflowed = 0  # lines of new incidents while too many were open

    @property
    def wanted(self) -> Callable[[bytes], object]:
        """Which records are worth parsing."""
        return self._matcher.wanted

    def look(self, records: Iterable[kmsg.Record], now: clock.Clock) -> list[watches.Sighting]:
        """Take in what was read, perhaps nothing; and say what is new or has grown.

        Call it at least once a second, also without records: what was folded is told then.
        """
        self._forget(now)
        for record in records:
            for match in self._matches(record, now):
                self._fold(record, match, now)
        # Told after all of them were read: the first sighting has the fields of the lines after it.
        return [
            self._tell(key, incident, now)
            for key, incident in self._open.items()
            if incident.urgent
            or (incident.untold and now.monotonic_ns - incident.told_ns >= TELL_NS)
        ]

    def finish(self, now: clock.Clock) -> list[watches.Sighting]:
        """The recording ends: what was folded and not told yet."""
        return [self._tell(key, one, now) for key, one in self._open.items() if one.untold]

    def _forget(self, now: clock.Clock) -> None:
        """What had no line for a while is over; a line that comes later is a new incident."""
        over = [
            key
            for key, one in self._open.items()
            if not one.untold and now.monotonic_ns - one.last_ns > self._fold_ns
        ]
        for key in over:
            del self._open[key]
        if over:
            alive = {(one.rule.family, key) for (_, key), one in self._open.items()}
            self._shared = {key: shared for key, shared in self._shared.items() if key in alive}

    def _matches(self, record: kmsg.Record, now: clock.Clock) -> Iterable[matcher.Match]:
        second = now.monotonic_ns // 1_000_000_000
        if second != self._second:
            self._second = second
            self._used.clear()
            self._used_together = 0
        kinds: set[str] = set()
        for rule in self._matcher.candidates(record.text):
            if rule.kind in kinds:
                continue
            if not rule.can_be_critical:
                used = self._used.get(rule.name, 0)
                if used >= self._caps.a_rule or self._used_together >= self._caps.together:
                    self.counts[rule.name].capped += 1
                    continue
                self._used[rule.name] = used + 1
                self._used_together += 1
            match = matcher.try_rule(rule, record.text, record.device)
            if match is not None:
                kinds.add(rule.kind)
                yield match

    def _fold(self, record: kmsg.Record, match: matcher.Match, now: clock.Clock) -> None:
        rule, counts = match.rule, self.counts[match.rule.name]
        counts.matched += 1
        key = match.key[:MAX_KEY] + (BY_PROCESS if record.from_user else "")
        incident = self._open.get((rule.kind, key))
        if incident is None:
            if len(self._open) >= MAX_OPEN:
                self.overflowed += 1
                return
            incident = _Incident(
                rule, record.text[:MAX_TEXT], record.instant, match.severity, now.monotonic_ns
            )
            self._open[rule.kind, key] = incident
        else:
            counts.folded += 1
            if SEVERITIES.index(match.severity) > SEVERITIES.index(incident.severity):
                incident.rule, incident.text = rule, record.text[:MAX_TEXT]
                incident.severity, incident.urgent = match.severity, True
        incident.last_ns = now.monotonic_ns
        incident.untold += 1
        incident.sure = incident.sure or rule.confidence == "sure"
        self._shared.setdefault((rule.family, key), _Shared()).add(rule.name, match.fields)
        if record.from_user:
            values = self._shared[rule.family, key].values
            values["written_by_process"] = True
            if (rehearsed := REHEARSED.search(record.text)) is not None:
                values["rehearsal"] = rehearsed[1]

    def _tell(
        self, key: tuple[str, str], incident: _Incident, now: clock.Clock
    ) -> watches.Sighting:
        count, incident.untold = incident.untold, 0
        incident.told_ns, incident.urgent = now.monotonic_ns, False
        shared = self._shared.get((incident.rule.family, key[1]))
        fields: dict[str, Value] = dict(shared.values) if shared else {}
        fields["rule"] = incident.rule.name
        if not incident.sure:
            fields["confidence"] = "likely"
        core = fields.get("cpu", -1)
        return watches.Sighting(
            kind=key[0],
            key=key[1],
            begin=incident.begin,
            text=incident.text,
            severity=incident.severity,
            core=core if isinstance(core, int) and 0 <= core < MAX_CORES else -1,
            unit=str(fields.get("unit", "")),
            process=str(fields.get("comm", "")),
            count=count,
            fold_seconds=self._fold_seconds,
            fields=fields,
        )
