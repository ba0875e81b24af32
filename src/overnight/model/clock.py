"""One instant on the two clocks that every record carries."""

from __future__ import annotations

import dataclasses

__all__ = ["Clock"]


@dataclasses.dataclass(frozen=True)
class Clock:
    """One instant on two clocks, in nanoseconds."""

    wall_ns: int
    monotonic_ns: int

    @property
    def offset_ns(self) -> int:
        """Wall minus monotonic: constant while nobody steps the clock, NTP slewing included."""
        return self.wall_ns - self.monotonic_ns
