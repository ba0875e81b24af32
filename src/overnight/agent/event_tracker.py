"""Sightings become events: what is seen again is the same event, which lasts, not a new one.

Pure and bounded. An event is told when it is first seen, when it grows worse, and when it has ended;
between these it is told again at most every few seconds, so that a flood of sightings is no flood of
records.
"""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from overnight.model.event import Event, Value, event_id

if TYPE_CHECKING:
    from overnight.agent import watches
    from overnight.model import clock

__all__ = ["EventTracker", "OpenEvent"]

SEVERITIES = ("info", "warning", "critical")
TELL_AGAIN_NS = 5_000_000_000
MAX_OPEN = 1000
MAX_FIELDS = 40
MAX_TEXT = 400
MAX_QUEUES = 32
# So many new events of one kind a minute are told one by one; more are only counted.
MAX_NEW_A_MINUTE = 30


@dataclasses.dataclass
class OpenEvent:
    """An event that may still go on."""

    event: Event
    last: clock.Clock
    told_ns: int
    fold_ns: int
    changed: bool = False


class EventTracker:
    """The events of one host's recording; `began` is the clock at its start, for the skew."""

    def __init__(self, host: str, boot: str, began: clock.Clock) -> None:
        self._host = host
        self._boot = boot
        self._began = began
        self._open: dict[tuple[str, str], OpenEvent] = {}
        self._recent: dict[str, collections.deque[int]] = {}
        self.capped: dict[str, int] = {}
        self.counts: dict[tuple[str, str], int] = {}

    @property
    def open(self) -> tuple[Event, ...]:
        """Events that may still go on."""
        return tuple(one.event for one in self._open.values())

    def see(
        self, sightings: Iterable[watches.Sighting], now: clock.Clock, source: str
    ) -> list[Event]:
        """Take in what one watch saw; the events to tell of, new ones and ones that grew."""
        told = []
        for sighting in sightings:
            key = (sighting.kind, sighting.key)
            opened = self._open.get(key)
            if opened is not None and now.monotonic_ns - opened.last.monotonic_ns <= opened.fold_ns:
                if self._extend(opened, sighting, now):
                    told.append(opened.event)
                continue
            if opened is not None:
                told += self._end(key)
            made = self._begin(sighting, now, source)
            if made is not None:
                told.append(made)
        return told

    def expire(self, now: clock.Clock) -> list[Event]:
        """Close what was not seen for a while; the events whose last word is now known."""
        ended = [
            key
            for key, one in self._open.items()
            if now.monotonic_ns - one.last.monotonic_ns > one.fold_ns
        ]
        return [final for key in ended for final in self._end(key)]

    def close(self) -> list[Event]:
        """The recording ends: the last word on everything."""
        return [final for key in list(self._open) for final in self._end(key)]

    def _begin(self, sighting: watches.Sighting, now: clock.Clock, source: str) -> Event | None:
        begin = sighting.begin
        recent = self._recent.setdefault(sighting.kind, collections.deque(maxlen=MAX_NEW_A_MINUTE))
        if (
            len(recent) == MAX_NEW_A_MINUTE and now.monotonic_ns - recent[0] < 60_000_000_000
        ) or len(self._open) >= MAX_OPEN:
            self.capped[sighting.kind] = self.capped.get(sighting.kind, 0) + 1
            return None
        recent.append(now.monotonic_ns)
        made = Event(
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
            until_us=now.wall_ns // 1000,
            count=sighting.count,
            unit=sighting.unit,
            process=sighting.process,
            source=source,
            fields=dict(list(sighting.fields.items())[:MAX_FIELDS]),
        )
        key = (sighting.kind, sighting.key)
        fold_ns = round(sighting.fold_seconds * 1e9)
        self._open[key] = OpenEvent(made, now, now.monotonic_ns, fold_ns)
        counted = (made.kind, made.severity)
        self.counts[counted] = self.counts.get(counted, 0) + 1
        return made

    def _extend(self, opened: OpenEvent, seen: watches.Sighting, now: clock.Clock) -> bool:
        """Fold one more sighting in; whether that is worth telling now."""
        before = opened.event
        worse = SEVERITIES.index(seen.severity) > SEVERITIES.index(before.severity)
        fields = _merged(before.fields, seen.fields)
        # The same stretch told again, now longer: its newest words are the truest.
        same = seen.begin.monotonic_ns == before.monotonic_ns
        retold = worse or (same and seen.severity == before.severity)
        learned = (before.core < 0 <= seen.core) or (seen.unit and not before.unit)
        opened.event = dataclasses.replace(
            before,
            until_us=now.wall_ns // 1000,
            count=before.count + seen.count,
            severity=seen.severity if worse else before.severity,
            text=seen.text[:MAX_TEXT] if retold else before.text,
            core=seen.core if before.core < 0 else before.core,
            unit=before.unit or seen.unit,
            process=before.process or seen.process,
            fields=fields,
        )
        if worse:
            counted = (before.kind, seen.severity)
            self.counts[counted] = self.counts.get(counted, 0) + 1
        opened.last = now
        if worse or learned or now.monotonic_ns - opened.told_ns >= TELL_AGAIN_NS:
            opened.told_ns = now.monotonic_ns
            opened.changed = False
            return True
        opened.changed = True
        return False

    def _end(self, key: tuple[str, str]) -> list[Event]:
        opened = self._open.pop(key)
        return [opened.event] if opened.changed else []


def _merged(known: Mapping[str, Value], seen: Mapping[str, Value]) -> dict[str, Value]:
    """The newest fields; but an event is of its first queue, and what is said of another is not its own."""
    fields = dict(known)
    own, other = known.get("queue"), seen.get("queue")
    if own is not None and other is not None and other != own:
        both = ",".join(str(said.get("queues", said["queue"])) for said in (known, seen))
        seen = {"queues": ",".join(list(dict.fromkeys(both.split(",")))[:MAX_QUEUES])}
    for name, value in seen.items():
        if name in fields or len(fields) < MAX_FIELDS:
            fields[name] = value
    return fields
