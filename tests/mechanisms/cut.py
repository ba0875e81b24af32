"""A part of a recording as if nothing else had been recorded: runs that share a recording must not see each other."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING
from unittest import mock

from overnight.model.selection import Window
from overnight.store import segments
from overnight.store.ring import reader as rings

if TYPE_CHECKING:
    from overnight.model.event import Event
    from overnight.store.ring import frames


@contextlib.contextmanager
def cut_evidence(window: Window) -> Iterator[None]:
    """Hide the readings, facts, events and segments outside of a window from all readers of this process."""
    ring = type("Ring", (_Ring,), {"window": window})
    catalogue = type("Catalogue", (_Catalogue,), {"window": window})
    with mock.patch.object(rings, "Reader", ring), mock.patch.object(segments, "Catalogue", catalogue):  # fmt: skip
        yield


def align(catalogue: segments.Catalogue, window: Window) -> Window:
    """Move the begin of a window out of a segment that began before it: part of one cannot be hidden."""
    inside = [
        segment
        for host in catalogue.hosts()
        for segment in catalogue.segments(host, window.begin_us, window.end_us)
    ]
    ends = [segment.end_us for segment in inside if segment.begin_us < window.begin_us]
    return Window(max(ends, default=window.begin_us), window.end_us)


class _Ring(rings.Reader):
    window: Window

    def _clip(self, begin_us: int, end_us: int) -> tuple[int, int]:
        return max(begin_us, self.window.begin_us), min(end_us, self.window.end_us)

    def extent(self, host: str) -> tuple[int, int] | None:
        extent = super().extent(host)
        return extent and self._clip(*extent)

    def signals(self, host: str, begin_us: int, end_us: int) -> dict[str, tuple[str, ...]]:
        begin_us, end_us = self._clip(begin_us, end_us)
        return super().signals(host, begin_us, end_us) if begin_us < end_us else {}

    def numbers(
        self,
        host: str,
        signal: str,
        begin_us: int,
        end_us: int,
        keys: Collection[str] | None = None,
        columns: Collection[str] | None = None,
    ) -> Iterator[frames.Frame]:
        begin_us, end_us = self._clip(begin_us, end_us)
        if begin_us < end_us:
            yield from super().numbers(host, signal, begin_us, end_us, keys, columns)

    def facts(
        self, host: str, signal: str, begin_us: int, end_us: int | None = None
    ) -> rings.Facts:
        first, last = self._clip(begin_us, begin_us + 1 if end_us is None else end_us)
        if first >= last:
            return rings.Facts(None, ())
        facts = super().facts(host, signal, first, last)
        return facts if first == begin_us else dataclasses.replace(facts, state=None)

    def events(
        self,
        begin_us: int,
        end_us: int,
        hosts: Collection[str] | None = None,
        kinds: Collection[str] | None = None,
    ) -> tuple[Event, ...]:
        found = super().events(*self._clip(begin_us, end_us), hosts, kinds)
        # A recorder that starts later dates what lasts to its own start.
        return tuple(
            dataclasses.replace(event, time_us=max(event.time_us, self.window.begin_us))
            for event in found
        )

    def gaps(self, host: str, begin_us: int = 0, end_us: int = rings.EVER) -> tuple[rings.Gap, ...]:
        return super().gaps(host, *self._clip(begin_us, end_us))


class _Catalogue(segments.Catalogue):
    window: Window

    def segments(
        self, host: str, begin_us: int | None = None, end_us: int | None = None
    ) -> tuple[segments.Segment, ...]:
        return tuple(
            segment
            for segment in super().segments(host, begin_us, end_us)
            if self.window.begin_us <= segment.begin_us < self.window.end_us
        )
