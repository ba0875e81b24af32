"""Where events and levels go besides the ring: one module an outlet. Standard library only.

An outlet is told and must not block: the agent's second is short, and a reader that hangs is not its
problem.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from overnight import sources
    from overnight.model import clock
    from overnight.model.event import Event

__all__ = ["Outlet", "Standing"]


@dataclasses.dataclass(frozen=True)
class Standing:
    """How the host and the agent stand: the last look of every signal, and what was counted since
    the start.
    """

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
    """One way out."""

    def event(self, told: Event) -> None:
        """An event that is new, or has grown; the same id again replaces it."""

    def tick(self, standing: Standing) -> None:
        """Once a second."""

    def close(self) -> None:
        """The agent ends."""
