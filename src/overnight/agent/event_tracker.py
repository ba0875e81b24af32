"""Fold sightings into events: a sighting close to the one before extends its event.

Pure and bounded. An event is emitted when it is first seen, when it gets worse and when it has ended; in
between at most every few seconds, so that a flood of sightings is not a flood of records.
"""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from overnight.model.event import Event, Value, event_id
from overnight.model.severity import Severity
from overnight.model.times import SECOND_NS

if TYPE_CHECKING:
    from overnight.agent import watches
    from overnight.model import clock

EMIT_AGAIN_NS = 5 * SECOND_NS
MAX_OPEN = 1000
MAX_FIELDS = 40
MAX_TEXT = 400
MAX_QUEUES = 32
MAX_NEW_A_MINUTE = 30  # events of one kind; more are dropped, and reported


@dataclasses.dataclass
class OpenEvent:
    """An event that may still go on."""

    event: Event
    last_ns: int  # of its last evidence
    seen_ns: int  # when that was read; later where the evidence has its own time stamps
    emitted_ns: int
    fold_ns: int
    changed: bool = False

    def includes(self, sighting: watches.Sighting, now: clock.Clock) -> bool:
        """Whether the sighting continues this event."""
        if sighting.last is None:
            return now.monotonic_ns - self.last_ns <= self.fold_ns
        # Both ways: after a starved minute an old line may be read behind a newer counter.
        return (
            sighting.begin.monotonic_ns - self.last_ns <= self.fold_ns
            and self.event.monotonic_ns - sighting.last.monotonic_ns <= self.fold_ns
        )


class EventTracker:
    """The events of one host's recording; `began` is the clock at its start, for the skew."""

    def __init__(self, host: str, boot: str, began: clock.Clock) -> None:
        self._host = host
        self._boot = boot
        self._began = began
        self._open: dict[tuple[str, str], OpenEvent] = {}
        self._recent: dict[str, collections.deque[int]] = {}
        self.counts: collections.Counter[tuple[str, str]] = collections.Counter()
        self.dropped: collections.Counter[str] = collections.Counter()  # sightings, by kind

    @property
    def open(self) -> tuple[Event, ...]:
        """Events that may still go on."""
        return tuple(opened.event for opened in self._open.values())

    @property
    def changed(self) -> list[Event]:
        """Events of which the last change was not emitted."""
        return [opened.event for opened in self._open.values() if opened.changed]

    def track(
        self, sightings: Iterable[watches.Sighting], now: clock.Clock, source: str | None = None
    ) -> list[Event]:
        """Fold in the sightings of one watch, or of the kernel log (None); return the events to emit."""
        events = []
        for sighting in sightings:
            key = (sighting.kind, sighting.key)
            opened = self._open.get(key)
            if opened is not None and opened.includes(sighting, now):
                if self._extend(opened, sighting, now):
                    events.append(opened.event)
                continue
            if opened is not None:
                events += self._end(key)
            rule = str(sighting.fields.get("rule", "kernel-log"))
            event = self._begin(sighting, now, rule if source is None else source)
            if event is not None:
                events.append(event)
        return events

    def expire(self, now: clock.Clock) -> list[Event]:
        """Close events that were not seen for a while; return those not emitted in their final form."""
        ended = [
            key
            for key, opened in self._open.items()
            if now.monotonic_ns - opened.seen_ns > opened.fold_ns
        ]
        return [event for key in ended for event in self._end(key)]

    def close(self) -> list[Event]:
        """Close all events at the end of the recording."""
        return [event for key in list(self._open) for event in self._end(key)]

    def _begin(self, sighting: watches.Sighting, now: clock.Clock, source: str) -> Event | None:
        recent = self._recent.setdefault(sighting.kind, collections.deque(maxlen=MAX_NEW_A_MINUTE))
        # Of the event, not of now: a recorder that was away reads what happened meanwhile at once.
        begun_ns = sighting.begin.monotonic_ns
        flood = len(recent) == MAX_NEW_A_MINUTE and recent[0] > begun_ns - 60 * SECOND_NS
        if flood or len(self._open) >= MAX_OPEN:
            self.dropped[sighting.kind] += 1
            return None
        recent.append(begun_ns)
        begin, last = sighting.begin, sighting.last or now
        event = Event(
            time_us=begin.wall_ns // 1000,
            kind=sighting.kind,
            text=sighting.text[:MAX_TEXT],
            host=self._host,
            core=sighting.core,
            severity=sighting.severity,
            id=event_id(self._host, self._boot, sighting.kind, sighting.key, begin.monotonic_ns),
            boot=self._boot,
            monotonic_ns=begin.monotonic_ns,
            skew_us=(now.offset_ns - self._began.offset_ns) // 1000,
            until_us=last.wall_ns // 1000,
            count=sighting.count,
            unit=sighting.unit,
            process=sighting.process,
            source=source,
            fields=dict(list(sighting.fields.items())[:MAX_FIELDS]),
        )
        self._open[sighting.kind, sighting.key] = OpenEvent(
            event,
            last_ns=last.monotonic_ns,
            seen_ns=now.monotonic_ns,
            emitted_ns=now.monotonic_ns,
            fold_ns=round(sighting.fold_seconds * SECOND_NS),
        )
        self.counts[event.kind, event.severity] += 1
        return event

    def _extend(self, opened: OpenEvent, sighting: watches.Sighting, now: clock.Clock) -> bool:
        """Fold one more sighting in; return whether to emit the event now."""
        before, last = opened.event, sighting.last or now
        severity = Severity.of(sighting.severity)
        worse = severity.rank > Severity.of(before.severity).rank
        # The same stretch, now longer: its newest text is the most accurate.
        same_stretch = sighting.begin.monotonic_ns == before.monotonic_ns
        new_text = worse or (same_stretch and severity == before.severity)
        learned = (before.core < 0 <= sighting.core) or (sighting.unit and not before.unit)
        opened.event = dataclasses.replace(
            before,
            until_us=max(last.wall_ns // 1000, before.until_us if sighting.last else 0),
            count=before.count + sighting.count,
            severity=severity if worse else before.severity,
            text=sighting.text[:MAX_TEXT] if new_text else before.text,
            core=sighting.core if before.core < 0 else before.core,
            unit=before.unit or sighting.unit,
            process=before.process or sighting.process,
            fields=_merge_fields(before.fields, sighting.fields),
        )
        if worse:
            self.counts[before.kind, severity] += 1
        opened.last_ns = max(opened.last_ns, last.monotonic_ns)
        opened.seen_ns = now.monotonic_ns
        emit = bool(worse or learned or now.monotonic_ns - opened.emitted_ns >= EMIT_AGAIN_NS)
        if emit:
            opened.emitted_ns = now.monotonic_ns
        opened.changed = not emit
        return emit

    def _end(self, key: tuple[str, str]) -> list[Event]:
        opened = self._open.pop(key)
        return [opened.event] if opened.changed else []


def _merge_fields(known: Mapping[str, Value], new: Mapping[str, Value]) -> dict[str, Value]:
    """Return the newest fields. An event keeps its first queue; of another queue only the number is added."""
    fields = dict(known)
    own, other = known.get("queue"), new.get("queue")
    if own is not None and other is not None and other != own:
        both = ",".join(str(each.get("queues", each["queue"])) for each in (known, new))
        new = {"queues": ",".join(list(dict.fromkeys(both.split(",")))[:MAX_QUEUES])}
    for name, value in new.items():
        if name in fields or len(fields) < MAX_FIELDS:
            fields[name] = value
    return fields
