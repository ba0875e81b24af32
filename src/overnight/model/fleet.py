"""A fleet of hosts: labels, observed time, events and snapshots of each.

Rates need the time a host was observed as much as its events.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING

from overnight.model.event import Event, boot_name
from overnight.model.times import SECOND_US

if TYPE_CHECKING:
    from overnight.model.selection import Window
    from overnight.model.snapshot import Snapshot

# An event may be reported with the reading after the last recorded one, or before the first.
NEAR_US = 120 * SECOND_US


@dataclasses.dataclass(frozen=True)
class Spell:
    """Time in which a host was observed without interruption in one boot."""

    begin_us: int
    end_us: int
    uptime: float  # seconds at its begin: time before a late start of the agent is not exposure
    boot: str = ""

    @property
    def seconds(self) -> float:
        return (self.end_us - self.begin_us) / SECOND_US


@dataclasses.dataclass(frozen=True)
class Host:
    """One host. `snapshot` is the one nearest to the time in question, if any."""

    name: str
    labels: Mapping[str, str] = dataclasses.field(default_factory=dict)
    spells: tuple[Spell, ...] = ()
    events: tuple[Event, ...] = ()
    snapshot: Snapshot | None = None

    @property
    def seconds(self) -> float:
        """Observed time of all spells."""
        return sum(spell.seconds for spell in self.spells)

    def of_kind(self, kind: str) -> tuple[Event, ...]:
        """Return its events of a kind; a kind that ends with a dot is a prefix."""
        return tuple(event for event in self.events if event.is_of(kind))

    def place(self, event: Event) -> tuple[int, float] | None:
        """Return the spell an event is in, and the seconds into it; None: not in observed time."""
        boot = boot_name(event.boot) if event.boot else ""
        distances = [
            (max(spell.begin_us - event.time_us, event.time_us - spell.end_us, 0), number)
            for number, spell in enumerate(self.spells)
            if not (boot and spell.boot) or boot_name(spell.boot) == boot
        ]
        distance, number = min(distances, default=(NEAR_US + 1, -1))
        if distance > NEAR_US:
            return None
        spell = self.spells[number]
        into = min(max(event.time_us, spell.begin_us), spell.end_us) - spell.begin_us
        return number, into / SECOND_US

    def places(self, kind: str) -> list[tuple[int, float]]:
        """Return the places of its events of a kind that are in observed time."""
        return [place for event in self.of_kind(kind) if (place := self.place(event))]

    def spans(self, kind: str) -> list[tuple[float, list[float]]]:
        """Return the seconds of each spell, and how far into it its events of a kind are."""
        spans: list[tuple[float, list[float]]] = [(spell.seconds, []) for spell in self.spells]
        for number, into in self.places(kind):
            spans[number][1].append(into)
        return spans

    def cut(self, window: Window) -> Host:
        """Return the host with its spells and events in a window."""
        ends = ((max(s.begin_us, window.begin_us), min(s.end_us, window.end_us), s) for s in self.spells)  # fmt: skip
        spells = (
            Spell(begin, end, spell.uptime + (begin - spell.begin_us) / SECOND_US, spell.boot)
            for begin, end, spell in ends
            if begin < end
        )
        events = (
            event for event in self.events if window.begin_us <= event.time_us < window.end_us
        )
        return dataclasses.replace(self, spells=tuple(spells), events=tuple(events))


@dataclasses.dataclass(frozen=True)
class Fleet:
    """Hosts by name. `problems` lists what could not be read."""

    hosts: tuple[Host, ...]
    problems: tuple[str, ...] = ()

    @property
    def watched(self) -> tuple[Host, ...]:
        """Hosts with observed time."""
        return tuple(host for host in self.hosts if host.seconds > 0)

    @property
    def window_us(self) -> tuple[int, int]:
        """From the first reading of any host to the last."""
        spells = [spell for host in self.hosts for spell in host.spells]
        if not spells:
            return 0, 0
        return min(spell.begin_us for spell in spells), max(spell.end_us for spell in spells)
