"""Something that happened at an instant: the anchor of every question about a night."""

from __future__ import annotations

import dataclasses

__all__ = ["Event"]


@dataclasses.dataclass(frozen=True)
class Event:
    """`kind` is a dotted name such as `net.driver_reset`; `core` is -1 where none is known."""

    time_us: int
    kind: str
    text: str = ""
    host: str = ""
    core: int = -1
    severity: str = "warning"  # info, warning or critical
