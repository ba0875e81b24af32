"""The kernel log as sightings, for the recorder loop."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import pathlib
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from overnight import errors, sources
from overnight.agent import kernel_events, watches
from overnight.model import files
from overnight.model.event import LINES_LOST
from overnight.model.severity import Severity
from overnight.sources import kmsg
from overnight.store.ring import reader

if TYPE_CHECKING:
    from overnight.model import clock
    from overnight.model.event import Event, Value
    from overnight.sources import kernelrules

# Per read: a flood must not keep the loop from its second.
MAX_LINES = 4000


class Position:
    """The last line that a recorder has read, and the events that it may not have stored; for one boot.

    Written before these events are stored. What a killed recorder has read is then in the events; the next one
    stores them, and reads the lines behind. It is not synced: after a power cut another boot has begun.
    """

    def __init__(self, path: pathlib.Path, boot: str) -> None:
        self._path, self._boot = path, boot
        self.sequence: int | None = None
        self.ahead_us = 0
        self.events: tuple[Event, ...] = ()
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            stored = json.loads(path.read_bytes())
            if stored["boot"] == boot:
                self.events = tuple(filter(None, map(reader.parse_event, stored["events"])))
                self.ahead_us, self.sequence = int(stored["ahead_us"]), int(stored["sequence"])

    def write(self, sequence: int, ahead_us: int, events: Iterable[Event]) -> None:
        self.sequence, self.ahead_us = sequence, ahead_us
        stored = {"boot": self._boot, "sequence": sequence, "ahead_us": ahead_us}
        text = json.dumps(stored | {"events": [event.as_json() for event in events]})
        with contextlib.suppress(OSError):  # on a full disk the lines are read again
            fresh = self._path.with_suffix(".new")
            files.write(fresh, text)
            fresh.replace(self._path)


@dataclasses.dataclass
class _Lost:
    """Lines that were overwritten unread, as far as they are one event."""

    begin: clock.Clock
    first: int
    last_ns: int = 0


class KernelLogFeed:
    """The log and the rules; `fileno` is readable when there is a line."""

    def __init__(
        self,
        log: kmsg.KernelLog,
        watch: kernel_events.KernelWatch,
        position: Position | None = None,
    ) -> None:
        self._log = log
        self._watch = watch
        self._position = position
        self._lost: _Lost | None = None

    def fileno(self) -> int:
        return self._log.fileno()

    def sightings(self, now: clock.Clock) -> watches.Sightings:
        """Return what the lines since the last call show."""
        sightings = self._watch.check(self._log.read(MAX_LINES, self._watch.wanted), now)
        holes, self._log.holes = self._log.holes, []
        return [*sightings, *([self._report_lost(holes, now)] if holes else ())]

    def _report_lost(self, holes: Sequence[tuple[int, int]], now: clock.Clock) -> watches.Sighting:
        """Report lines that were overwritten unread; in a flood, all together."""
        first = holes[0][0]
        if self._lost is None or now.monotonic_ns - self._lost.last_ns > kernel_events.FOLD_NS:
            self._lost = _Lost(now, first)
        self._lost.last_ns, last = now.monotonic_ns, holes[-1][1]
        fields: dict[str, Value] = {"rule": "kernel-log", "first": self._lost.first, "last": last}
        text = f"lines {self._lost.first} to {last} of the kernel log were overwritten unread"
        return watches.Sighting(
            LINES_LOST, "", self._lost.begin, text + " in part" * (len(holes) > 1 or first != self._lost.first),
            Severity.INFO, count=sum(end + 1 - begin for begin, end in holes), fields=fields, last=now,
        )  # fmt: skip

    def flush(self, now: clock.Clock) -> watches.Sightings:
        """Return lines that were counted and not reported yet."""
        return self._watch.finish(now)

    @property
    def has_moved(self) -> bool:
        """Return whether lines were read since `note_position`."""
        known = self._position.sequence if self._position else self._log.position
        return self._log.position != known

    def note_position(self, events: Iterable[Event]) -> None:
        """Write how far the log was read, with events that are not stored yet, before they are stored."""
        if self._position is not None and self._log.position is not None:
            self._position.write(self._log.position, self._log.drift.ahead_us, events)

    def finish(self, now: clock.Clock) -> watches.Sightings:
        """Return the last ones and close the log."""
        sightings = [*self.sightings(now), *self._watch.finish(now)]
        self._log.close()
        return sightings

    @property
    def counts(self) -> Mapping[str, int]:
        """Lines by rule since the start; only rules that had one."""
        return {name: count.matched for name, count in self._watch.counts.items() if count.matched}

    @property
    def lines(self) -> tuple[int, int, int]:
        """Lines read, lost unread, and only counted because of a flood."""
        capped = sum(count.capped for count in self._watch.counts.values())
        return self._log.lines, self._log.lost, capped


def open_kernel_log(
    root: pathlib.Path, rules: Iterable[kernelrules.Rule], position: Position | None = None
) -> tuple[KernelLogFeed | None, str]:
    """Return the feed, behind a position if one is known, or None and why; raise the OSError that is this process's own."""
    try:
        log = kmsg.KernelLog.open(root, position.sequence if position else None)
    except (sources.NoDataError, errors.MissingPermissionError) as error:
        return None, str(error)
    if position is not None and position.sequence is not None:
        log.drift.restore(log.now().monotonic_ns // 1000, position.ahead_us)
    return KernelLogFeed(log, kernel_events.KernelWatch(rules), position), ""
