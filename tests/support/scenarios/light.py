"""The samples of a night without a recording of it: for statistics over thousands of nights.

A night is made in 0.06 s, where its recording takes a second. Items and counts are those that `queries.consumers`
reads from the recording; tests/scenarios/test_generator.py compares them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from overnight.model.event import Event
from overnight.queries import consumers
from scenarios import acts, setting, work

if TYPE_CHECKING:
    from overnight.model.selection import Window


@dataclasses.dataclass
class LightCase:
    """As much of a `queries.case.Case` as `lift` asks."""

    made: setting.Setting
    load: work.Load
    event: Event
    recurrences: tuple[Event, ...] = ()

    def __post_init__(self) -> None:
        self.host = self.made.host.name
        chunks = list(self.load.chunks())
        self._time = np.concatenate([one.time for one in chunks])
        self._stack = np.concatenate([one.stack for one in chunks])
        self._items: dict[consumers.Item, int] = {}
        members = [
            [self._items.setdefault(item, len(self._items)) for item in _items_of(one.who, path)]
            for one in self.load.works
            for _, path in one.stacks
        ]
        self._member = np.zeros((len(self._items), len(members)), np.int64)
        for stack, mine in enumerate(members):
            self._member[mine, stack] = 1

    def has_profile(self, window: Window) -> bool:
        return window.begin_us >= self.made.begin_us

    def events(self, window: Window, *kinds: str) -> tuple[Event, ...]:
        return (self.event, *self.recurrences)

    def tally(self, windows: Sequence[Window]) -> consumers.Tally:
        counts = np.zeros((len(self._items), len(windows)), np.int64)
        seconds = np.zeros(len(windows))
        for n, window in enumerate(windows):
            begin, end = (
                (us - self.made.begin_us) / 1e6 for us in (window.begin_us, window.end_us)
            )
            first, last = np.searchsorted(self._time, [begin, end])
            counts[:, n] = self._member @ np.bincount(
                self._stack[first:last], minlength=self._member.shape[1]
            )
            seconds[n] = max(0.0, min(end, self.made.seconds) - max(begin, 0.0))
        none = np.zeros(len(windows), np.int64)
        whole = counts[[not item.function for item in self._items]].sum(axis=0)
        return consumers.Tally(
            tuple(self._items), counts, counts, whole, seconds, none, work.FREQUENCY
        )


def _items_of(person: work.Who, path: work.Path) -> set[consumers.Item]:
    names = {"", *(frame[0] for frame in path)}
    return {consumers.Item(person.unit, person.process, name) for name in names}


def of(made: setting.Setting, act: acts.Act, moments: Sequence[float]) -> LightCase:
    """The case of the latest moment of an act; the others are its recurrences."""
    night = made.node()
    act.put(night)
    told = [
        Event(night.time_us(when), act.kind, host=made.host.name, id=f"{when}")
        for when in sorted(moments, reverse=True)
    ]
    return LightCase(made, night.load, told[0], tuple(told[1:]))
