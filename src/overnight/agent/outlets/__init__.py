"""Where events and metrics go besides the ring: one module per outlet. Standard library only.

An outlet must not block: a reader that hangs may not cost the agent its second.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from overnight import sources
    from overnight.model import clock
    from overnight.model.event import Event


@dataclasses.dataclass(frozen=True)
class HostStatus:
    """The last reading of every signal, and what was counted since the start."""

    host: str
    clock: clock.Clock
    rows: Mapping[str, sources.Rows]  # by signal
    facts: Mapping[str, sources.Facts]
    counts: Mapping[tuple[str, str], int]  # events by kind and severity
    rules: Mapping[str, int]  # kernel-log lines by rule
    saturated: Mapping[int, float]  # seconds that each core was pinned
    open: tuple[Event, ...]
    agent: Mapping[str, float]  # what the agent itself costs


class Outlet(Protocol):
    """Publishes events and metrics."""

    def event(self, event: Event) -> None:
        """Publish an event; one with a known id replaces it."""

    def tick(self, status: HostStatus) -> None:
        """Publish metrics; called once a second."""

    def close(self) -> None:
        """Release everything; the agent ends."""
