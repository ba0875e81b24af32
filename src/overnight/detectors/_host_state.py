"""States of a host that last for hours: their window, their cgroups."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from overnight.model.selection import Window
from overnight.model.times import HOUR_US
from overnight.queries import trends

if TYPE_CHECKING:
    from overnight.queries import case as cases

MANY_DYING = 1_000  # as in the watch that warns of them
# Timers, sessions and jobs of many units are born here and soon gone, on every healthy host.
SHARED_SLICE = re.compile(
    r"(?:^|/)(?:system|user|user-\d+|app|background|session)\.slice$|/user@\d+\.service$|^/$"
)


def is_shared_slice(cgroup: str) -> bool:
    """Return whether many units create short-lived cgroups below this one on any host."""
    return SHARED_SLICE.search(cgroup) is not None


def state_window(case: cases.Case, back_us: int) -> Window:
    """Return the window in which a lasting state is examined: up to the event.

    Where little was recorded before the event, it includes half an hour after it; the caller checks what was before.
    """
    end = case.window.end_us
    extent = case.ring.extent(case.host)
    if extent is not None and extent[0] > end - HOUR_US:
        end = max(end, min(extent[1], end + HOUR_US // 2))
    return Window(case.window.end_us - back_us, end)


def recent_window(case: cases.Case) -> Window:
    """Return the two hours up to the event, for gauges that are recorded rarely."""
    return Window(case.event.time_us - 2 * HOUR_US, case.window.end_us)


def read_dying(case: cases.Case) -> int | None:
    """Read the number of dying memory cgroups at the event; None where they were not counted recently."""
    row = trends.table(case.ring, case.host, "memory-cgroups", recent_window(case)).get("")
    return None if row is None else row["dying"]
