"""Watches find events in the signals while they are recorded: one module for each kind of trouble.

A watch is pure: readings and their clock go in, sightings come out. It keeps what it needs between two
readings in bounded memory and never reads a clock or a file. A module lists its watches in `WATCHES`, a
tuple of functions that make a new one.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Protocol

from overnight.model.severity import Severity

if TYPE_CHECKING:
    from overnight import sources
    from overnight.model import clock
    from overnight.model.event import Value


@dataclasses.dataclass(frozen=True)
class Sighting:
    """Evidence of an event in one reading. Sightings of one kind and key in a row are one event.

    `begin` may lie before the reading: a core counts as pinned only after three seconds. Evidence with
    time stamps of its own (a kernel-log line) also sets `last`; elsewhere the reading's time counts.
    """

    kind: str
    key: str
    begin: clock.Clock
    text: str
    severity: Severity = Severity.WARNING
    core: int = -1
    unit: str = ""
    process: str = ""
    count: int = 1
    fold_seconds: float = 10.0  # a sighting this close to the one before belongs to the same event
    fields: Mapping[str, Value] = dataclasses.field(default_factory=dict)
    last: clock.Clock | None = None


Sightings = Iterable[Sighting]


class Watch(Protocol):
    """Checks the signals it needs."""

    @property
    def name(self) -> str:
        """The `source` of its events."""

    @property
    def finds(self) -> tuple[str, ...]:
        """The kinds of its events."""

    @property
    def needs(self) -> tuple[str, ...]:
        """The signals whose rows `check` gets."""

    def check(self, signal: str, now: clock.Clock, rows: sources.Rows) -> Sightings:
        """Take one reading of one signal; return what it shows."""
