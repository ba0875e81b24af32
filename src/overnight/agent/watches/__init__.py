"""Watches see events in the signals while they are recorded: one module a kind of trouble.

A watch is pure: it is told what was read and when, and answers with sightings. It keeps what it needs
from one look to the next in itself, in bounded memory, and never looks at a clock or a file.
A module here tells its watches in `WATCHES`, a tuple of functions that make a new one.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from overnight import sources
    from overnight.model import clock
    from overnight.model.event import Value

__all__ = ["Sighting", "Watch"]


@dataclasses.dataclass(frozen=True)
class Sighting:
    """Something seen once. Sightings of the same kind and key that follow each other are one event.

    `begin` may lie before the look that saw it: three seconds must pass before a core counts as pinned.
    """

    kind: str
    key: str
    begin: clock.Clock
    text: str
    severity: str = "warning"
    core: int = -1
    unit: str = ""
    process: str = ""
    count: int = 1
    fold_seconds: float = 10.0  # a sighting within this of the last one is of the same event
    fields: Mapping[str, Value] = dataclasses.field(default_factory=dict)


class Watch(Protocol):
    """Looks at the signals it needs."""

    @property
    def name(self) -> str:
        """What the events' `source` says."""

    @property
    def needs(self) -> tuple[str, ...]:
        """The signals whose rows `look` is told."""

    def look(self, signal: str, now: clock.Clock, rows: sources.Rows) -> Iterable[Sighting]:
        """Take in one reading of one signal, and say what it shows."""
