"""Find work that waits for a core, memory or a disk, and kernel tables that are nearly full."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from overnight.agent import watches
from overnight.agent.watches import rates
from overnight.model.severity import Severity
from overnight.sources import vmstat

if TYPE_CHECKING:
    from overnight import sources
    from overnight.model import clock

IN_A_ROW = 3
# Share of a second in which some, or all, tasks waited. Waiting for a core is normal on a busy host, so
# its threshold is high.
SOME = {"cpu": 0.80, "memory": 0.15, "io": 0.50, "irq": 0.15}
FULL_CRITICAL = {"memory": 0.50, "irq": 0.50}
WAIT_A_SECOND = 2000.0  # ms: as if two runnable tasks had waited all the time
SHARES = {"conntrack": 0.75}
SHARE = 0.70
OOM_KILL = list(vmstat.COLUMNS).index("oom_kill")


class _Streaks:
    """How much counters rose, and for which keys a condition held in the last readings."""

    def __init__(self) -> None:
        self._counters = rates.Counters()
        self._since: dict[str, tuple[clock.Clock, int]] = {}
        self._then: clock.Clock | None = None
        self._now: clock.Clock | None = None

    def read(
        self, now: clock.Clock, rows: sources.Rows
    ) -> tuple[float, dict[str, tuple[int, ...]]]:
        """Return seconds and rises since the last reading, as `rates.Counters.since`."""
        self._then, self._now = self._now or now, now
        return self._counters.since(now, rows)

    def update(self, key: str, *, holds: bool) -> clock.Clock | None:
        """Return since when the condition holds, once it held for IN_A_ROW readings."""
        if not holds or self._then is None:
            self._since.pop(key, None)
            return None
        begin, readings = self._since.get(key, (self._then, 0))
        self._since[key] = (begin, readings + 1)
        return begin if readings + 1 >= IN_A_ROW else None


class Pressure:
    """Rows of `pressure`: microseconds in which some, and all, tasks waited for each resource."""

    name = "pressure"
    finds = tuple(f"pressure.{resource}" for resource in SOME)
    needs = ("pressure",)

    def __init__(self) -> None:
        self._streaks = _Streaks()

    def check(self, _signal: str, now: clock.Clock, rows: sources.Rows) -> watches.Sightings:
        seconds, rose = self._streaks.read(now, rows)
        for resource, change in rose.items():
            some, full = (value / 1e6 / seconds for value in (*change, 0)[:2])
            begin = self._streaks.update(resource, holds=some >= SOME.get(resource, 2.0))
            if begin is None:
                continue
            critical = full >= FULL_CRITICAL.get(resource, 2.0)
            yield watches.Sighting(
                f"pressure.{resource}", resource, begin,
                f"tasks waited for {resource} {100 * some:.0f} % of the time,"
                f" all tasks at once {100 * full:.0f} %",
                Severity.CRITICAL if critical else Severity.INFO if resource == "cpu" else Severity.WARNING,
                fields={"some_percent": round(100 * some, 1), "full_percent": round(100 * full, 1)},
            )  # fmt: skip


class RunQueue:
    """Rows of `schedstat`: milliseconds that tasks ran, and waited in the run queue, on each core."""

    name = "run-queue"
    finds = ("cpu.run_queue",)
    needs = ("schedstat",)

    def __init__(self) -> None:
        self._streaks = _Streaks()

    def check(self, _signal: str, now: clock.Clock, rows: sources.Rows) -> watches.Sightings:
        """Report a core only while tasks on the others wait little."""
        for core, wait, others in waits(*self._streaks.read(now, rows)):
            begin = self._streaks.update(core, holds=is_crowded(wait, others))
            if begin is not None:
                yield watches.Sighting(
                    "cpu.run_queue", core, begin,
                    f"tasks in the run queue of core {core} waited {wait / 1000:.1f} s per second",
                    Severity.INFO, core=int(core),
                    fields={"wait_ms_a_second": round(wait), "others_ms": round(others)},
                )  # fmt: skip


def waits(
    seconds: float, rose: Mapping[str, tuple[int, ...]]
) -> Iterator[tuple[str, float, float]]:
    """Yield for each core how long tasks waited for it, and for the others on average, in ms a second."""
    whole = sum(change[1] for change in rose.values())
    for core, change in rose.items():
        yield (
            core,
            change[1] / seconds,
            (whole - change[1]) / seconds / max(1, len(rose) - 1),
        )


def is_crowded(wait: float, others: float) -> bool:
    """Whether tasks wait for this core while those of the others hardly do."""
    return wait >= max(WAIT_A_SECOND, 4 * others)


class Reclaim:
    """Row of `vmstat`: kills by the OOM killer."""

    name = "reclaim"
    finds = ("memory.oom_kill",)
    needs = ("vmstat",)

    def __init__(self) -> None:
        self._counters = rates.Counters()

    def check(self, _signal: str, now: clock.Clock, rows: sources.Rows) -> watches.Sightings:
        _, rose = self._counters.since(now, rows)
        for change in rose.values():
            killed = change[OOM_KILL]
            if killed:
                yield watches.Sighting(
                    "memory.oom_kill", "", now, f"the OOM killer ended {killed} process{'es' * (killed > 1)}",
                    Severity.CRITICAL, fold_seconds=30.0, fields={"kills": killed},
                )  # fmt: skip


class Limits:
    """Rows of `limits`: used and maximum."""

    name = "limits"
    finds = ("limit.near",)
    needs = ("limits",)

    def check(self, _signal: str, now: clock.Clock, rows: sources.Rows) -> watches.Sightings:
        for name, row in rows.items():
            used, maximum = (int(value) for value in row)
            if maximum > 0 and used >= SHARES.get(name, SHARE) * maximum:
                yield watches.Sighting(
                    "limit.near", name, now,
                    f"{name}: {used} of {maximum} used ({100 * used / maximum:.0f} %)",
                    Severity.CRITICAL if used >= 0.95 * maximum else Severity.WARNING,
                    fold_seconds=120.0, fields={"used": used, "maximum": maximum},
                )  # fmt: skip


class ClockSync:
    """Row of `clock`: whether the clock is synchronised."""

    name = "clock-sync"
    finds = ("clock.unsynchronised",)
    needs = ("clock",)

    def check(self, _signal: str, now: clock.Clock, rows: sources.Rows) -> watches.Sightings:
        row = rows.get("")
        if row and row[0]:
            yield watches.Sighting(
                "clock.unsynchronised", "", now,
                "the clock is not synchronised to a time server: times may differ from other hosts",
                Severity.INFO, fold_seconds=120.0,
            )  # fmt: skip


WATCHES = (Pressure, RunQueue, Reclaim, Limits, ClockSync)
