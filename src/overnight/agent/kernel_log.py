"""The kernel log as the loop takes it: read when there is something, told as sightings."""

from __future__ import annotations

import pathlib
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from overnight import errors, sources
from overnight.agent import kernel_events
from overnight.sources import kmsg
from overnight.sources.kernelrules import rulefiles

if TYPE_CHECKING:
    from overnight.agent import watches
    from overnight.model import clock

__all__ = ["KernelLogFeed", "open_kernel_log"]

# Of one reading: a flood must not keep the loop from its second.
LINES = 4000


class KernelLogFeed:
    """A `flight.LogFeed`."""

    def __init__(self, log: kmsg.KernelLog, watch: kernel_events.KernelWatch) -> None:
        self._log = log
        self._watch = watch

    def fileno(self) -> int:
        """Readable when there is a line."""
        return self._log.fileno()

    def sightings(self, now: clock.Clock) -> Iterable[watches.Sighting]:
        """What the lines since the last call show, and what was folded before."""
        return self._watch.look(self._log.read(LINES, self._watch.wanted), now)

    def finish(self, now: clock.Clock) -> Iterable[watches.Sighting]:
        """The last ones."""
        seen = [*self.sightings(now), *self._watch.finish(now)]
        self._log.close()
        return seen

    @property
    def counts(self) -> Mapping[str, int]:
        """Lines by rule; only rules that had one."""
        return {name: one.matched for name, one in self._watch.counts.items() if one.matched}

    @property
    def lines(self) -> tuple[int, int, int]:
        """Lines read, lost before they could be read, and only counted because of a flood."""
        capped = sum(one.capped for one in self._watch.counts.values())
        return self._log.lines, self._log.lost, capped


def open_kernel_log(root: pathlib.Path, *rules: pathlib.Path) -> tuple[KernelLogFeed | None, str]:
    """The feed, or why there is none; `rules` are folders with rules besides the built-in ones."""
    try:
        log = kmsg.KernelLog.open(root)
    except (sources.NoDataError, errors.MissingPermissionError) as error:
        return None, f"the kernel log is not read: {error}"
    return KernelLogFeed(log, kernel_events.KernelWatch(rulefiles.load(*rules))), ""
