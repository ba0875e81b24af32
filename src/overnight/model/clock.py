"""The two clocks of every record."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class Clock:
    """One instant on two clocks, in nanoseconds."""

    wall_ns: int
    monotonic_ns: int

    @property
    def offset_ns(self) -> int:
        """Wall minus monotonic: constant unless the clock is stepped; NTP slewing does not change it."""
        return self.wall_ns - self.monotonic_ns
