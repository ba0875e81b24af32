"""Samples of a night that is not recorded, for statistics over thousands of nights.

A night takes 0.06 s; recording it takes a second. Items and counts are those that `queries.consumers`
reads from the recording; tests/scenarios/test_generator.py compares them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from overnight.model.actor import Actor
from overnight.model.event import Event
from overnight.queries import consumers
from scenarios import host_setup, incidents, work

if TYPE_CHECKING:
    from overnight.model.finding import Need
    from overnight.model.selection import Window


@dataclasses.dataclass
class UnrecordedCase:
    """The part of `queries.case.Case` that the lift detector uses."""

    setup: host_setup.HostSetup
    load: work.Load
    event: Event
    recurrences: tuple[Event, ...] = ()
    imported: frozenset[Need] = frozenset()  # no recorder ran, and stacks have no limit

    def __post_init__(self) -> None:
        self.host = self.setup.host.name
        chunks = list(self.load.chunks())
        self._time = np.concatenate([part.time for part in chunks])
        self._stack = np.concatenate([part.stack for part in chunks])
        self._items: dict[consumers.Item, int] = {}
        members = [
            [self._items.setdefault(item, len(self._items)) for item in _items_of(part.task, path)]
            for part in self.load.works
            for _, path in part.stacks
        ]
        self._member = np.zeros((len(self._items), len(members)), np.int64)
        for stack, items in enumerate(members):
            self._member[items, stack] = 1

    def has_profile(self, window: Window) -> bool:
        return window.begin_us >= self.setup.begin_us

    def events(self, window: Window, *kinds: str) -> tuple[Event, ...]:
        return (self.event, *self.recurrences)

    def tally(self, windows: Sequence[Window]) -> consumers.Tally:
        counts = np.zeros((len(self._items), len(windows)), np.int64)
        seconds = np.zeros(len(windows))
        for n, window in enumerate(windows):
            begin, end = (
                (us - self.setup.begin_us) / 1e6 for us in (window.begin_us, window.end_us)
            )
            first, last = np.searchsorted(self._time, [begin, end])
            counts[:, n] = self._member @ np.bincount(
                self._stack[first:last], minlength=self._member.shape[1]
            )
            seconds[n] = max(0.0, min(end, self.setup.seconds) - max(begin, 0.0))
        none = np.zeros(len(windows), np.int64)
        all_samples = counts[[not item.function for item in self._items]].sum(axis=0)
        return consumers.Tally(
            tuple(self._items), counts, counts, all_samples, seconds, none, work.FREQUENCY
        )


def _items_of(actor: work.Task, path: work.Path) -> set[consumers.Item]:
    names = {"", *(frame[0] for frame in path)}
    return {consumers.Item(Actor(actor.process, actor.unit), name) for name in names}


def build_case(
    setup: host_setup.HostSetup, incident: incidents.Incident, moments: Sequence[float]
) -> UnrecordedCase:
    """Build the case of the latest moment of an incident; the others are its recurrences."""
    night = setup.node()
    incident.put(night)
    events = [
        Event(night.time_us(when), incident.kind, host=setup.host.name, id=f"{when}")
        for when in sorted(moments, reverse=True)
    ]
    return UnrecordedCase(setup, night.load, events[0], tuple(events[1:]))
