"""The kernel log as sightings, for the recorder loop."""

from __future__ import annotations

import pathlib
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from overnight import errors, sources
from overnight.agent import kernel_events
from overnight.sources import kmsg

if TYPE_CHECKING:
    from overnight.agent import watches
    from overnight.model import clock
    from overnight.sources import kernelrules

# Per read: a flood must not keep the loop from its second.
MAX_LINES = 4000


class KernelLogFeed:
    """The log and the rules; `fileno` is readable when there is a line."""

    def __init__(self, log: kmsg.KernelLog, watch: kernel_events.KernelWatch) -> None:
        self._log = log
        self._watch = watch

    def fileno(self) -> int:
        return self._log.fileno()

    def sightings(self, now: clock.Clock) -> watches.Sightings:
        """Return what the lines since the last call show."""
        return self._watch.check(self._log.read(MAX_LINES, self._watch.wanted), now)

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
    root: pathlib.Path, rules: Iterable[kernelrules.Rule]
) -> tuple[KernelLogFeed | None, str]:
    """Return the feed, or None and why; raise the OSError that is this process's own."""
    try:
        log = kmsg.KernelLog.open(root)
    except (sources.NoDataError, errors.MissingPermissionError) as error:
        return None, str(error)
    return KernelLogFeed(log, kernel_events.KernelWatch(rules)), ""
