"""Find crash loops: those that systemd counts, and those under a supervisor of their own."""

from __future__ import annotations

import collections
from typing import TYPE_CHECKING

from overnight.agent import watches
from overnight.agent.watches import rates
from overnight.model import cgroups
from overnight.sources import processes

if TYPE_CHECKING:
    from overnight import sources
    from overnight.model import clock

MAX_UNITS = 2000
SHARED_SLICE_FACTOR = 10  # a loop inside a unit or a pod creates its cgroups below its own
LONG_PAUSE = 600.0
# Five restarts in twenty minutes; or six cgroups in ten, none of which lived a minute.
RESTARTS, RESTART_SECONDS = 5, 1200.0
BIRTHS, BIRTH_SECONDS = 6, 600.0


class _Recent:
    """Counts of the last seconds by unit, in bounded memory."""

    def __init__(self, seconds: float) -> None:
        self._span_ns = round(seconds * 1e9)
        self._seen: dict[str, collections.deque[tuple[clock.Clock, int]]] = {}

    def add(self, unit: str, now: clock.Clock, count: int) -> tuple[int, clock.Clock]:
        """Add a count; return the sum within the span and when the first of it was seen."""
        if unit not in self._seen and len(self._seen) >= MAX_UNITS:
            del self._seen[next(iter(self._seen))]
        seen = self._seen.setdefault(unit, collections.deque(maxlen=1000))
        seen.append((now, count))
        while seen[0][0].monotonic_ns < now.monotonic_ns - self._span_ns:
            seen.popleft()
        return sum(number for _, number in seen), seen[0][0]


class CrashLoop:
    """Rows of `unit-restarts`: how often systemd restarted each unit."""

    name = "crash-loop"
    finds = ("unit.crash_loop",)
    needs = ("unit-restarts",)

    def __init__(self) -> None:
        self._counters = rates.Counters(LONG_PAUSE)
        self._recent = _Recent(RESTART_SECONDS)

    def check(self, _signal: str, now: clock.Clock, rows: sources.Rows) -> watches.Sightings:
        _, rose = self._counters.since(now, rows)
        for unit, change in rose.items():
            if not change[0]:
                continue
            count, begin = self._recent.add(unit, now, change[0])
            if count >= RESTARTS:
                yield watches.Sighting(
                    "unit.crash_loop", unit, begin,
                    f"systemd restarted {unit} {count} times in {RESTART_SECONDS / 60:.0f} min",
                    unit=unit, fold_seconds=RESTART_SECONDS,
                    fields={"restarts": count, "restarts_in_all": int(rows[unit][0])},
                )  # fmt: skip


class HiddenLoop:
    """Rows of `cgroup-births`: born, died, and died young, under each parent."""

    name = "hidden-crash-loop"
    finds = ("unit.hidden_crash_loop",)
    needs = ("cgroup-births",)

    def __init__(self) -> None:
        self._counters = rates.Counters(LONG_PAUSE)
        self._recent = _Recent(BIRTH_SECONDS)

    def check(self, _signal: str, now: clock.Clock, rows: sources.Rows) -> watches.Sightings:
        _, rose = self._counters.since(now, rows)
        for parent, (_, _, young, *_) in rose.items():
            if not young:
                continue
            count, begin = self._recent.add(parent, now, young)
            if count >= BIRTHS * (SHARED_SLICE_FACTOR if cgroups.is_shared_slice(parent) else 1):
                names = cgroups.names_of(parent)
                unit = "" if names else processes.unit_of(parent)
                yield watches.Sighting(
                    "unit.hidden_crash_loop", parent, begin,
                    f"{count} cgroups of {unit or parent} lived less than a minute, in {BIRTH_SECONDS / 60:.0f} min:"
                    " a crash loop that systemd does not count",
                    unit=unit, fold_seconds=BIRTH_SECONDS,
                    fields={"short_lived": count, "container" if names else "cgroup": parent},
                )  # fmt: skip


WATCHES = (CrashLoop, HiddenLoop)
