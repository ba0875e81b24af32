"""States of a host that last for hours: their window, their cgroups."""

from __future__ import annotations

from typing import TYPE_CHECKING

from overnight.model import times
from overnight.model.finding import Need
from overnight.model.selection import Window
from overnight.model.times import DAY_US, HOUR_US, SECOND_US
from overnight.queries import freshness, trends
from overnight.sources import cgroupchurn

if TYPE_CHECKING:
    from overnight.queries import case as cases

MANY_DYING = 1_000  # as in the watch that warns of them


def state_window(case: cases.Case, back_us: int) -> Window:
    """Return the window in which a lasting state is examined: up to the event.

    Where little was recorded before the event, it includes half an hour after it; the caller checks what was before.
    """
    end = case.window.end_us
    extent = case.ring.extent(case.host)
    if extent is not None and extent[0] > end - HOUR_US:
        end = max(end, min(extent[1], end + HOUR_US // 2))
    return Window(case.window.end_us - back_us, end)


def recent_window(case: cases.Case, signal: str) -> Window:
    """Return the time up to the event in which a reading of a signal shows its state at the event."""
    return Window(case.event.time_us - freshness.max_age_us(signal), case.window.end_us)


def read_dying(case: cases.Case) -> tuple[int | None, str]:
    """Read the number of dying memory cgroups at the event; None and why where no count shows it.

    A low count shows nothing if enough cgroups were removed since for many to be dying now.
    """
    signal, event_us = Need.MEMORY_CGROUPS, case.event.time_us
    window = recent_window(case, signal)
    counts = trends.gauges(case.ring, case.host, signal, window, ("dying",))
    if not len(counts.time_us):
        return None, freshness.explain_silence(case, signal)
    last = counts.row_at(event_us)
    at_us, dying = int(counts.time_us[last]), int(counts.values["dying"][last])
    if dying >= MANY_DYING or at_us >= event_us:
        return dying, ""
    removed = _count_removed(case, at_us)
    if dying + (removed or 0) < MANY_DYING and (
        removed is not None or at_us >= case.window.begin_us
    ):
        return dying, ""
    since = "it is not known how many were" if removed is None else f"{removed:,} were"
    age = times.format_duration((event_us - at_us) / SECOND_US)
    return None, (
        f"{dying:,} memory cgroups were dying {age} before the event, and {since} removed since: there may be more"
    )


def _count_removed(case: cases.Case, since_us: int) -> int | None:
    """Return how many cgroups were removed since a moment until the event; None where that is not known."""
    signal, window = Need.CGROUP_BIRTHS, Window(since_us, case.event.time_us + 1)
    removed = trends.growth(case.ring, case.host, signal, window, ("died",), DAY_US, from_zero=True)
    if freshness.explain_silence(case, signal) or cgroupchurn.UNWATCHED in removed.keys:
        return None
    return round(sum(growth.total("died") for growth in removed.keys.values()))
