"""Find work that waits for a core, memory or a disk, and kernel tables that are nearly full."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from overnight.agent import watches
from overnight.agent.watches import rates
from overnight.model.severity import Severity
from overnight.sources import vmstat

if TYPE_CHECKING:
    from overnight import sources
    from overnight.model import clock

__all__ = ["WATCHES", "ClockSync", "Limits", "Pressure", "Reclaim", "RunQueue"]

IN_A_ROW = 3
# Share of a second in which some, or all, tasks waited. Waiting for a core is normal on a busy host, so
# its threshold is high.
SOME = {"cpu": 0.80, "memory": 0.15, "io": 0.50, "irq": 0.15}
FULL_CRITICAL = {"memory": 0.50, "irq": 0.50}
WAIT_A_SECOND = 2000.0  # ms: as if two runnable tasks had waited all the time
SHARES = {"conntrack": 0.75}
SHARE = 0.70
OOM_KILL = list(vmstat.COLUMNS).index("oom_kill")


class _Rows:
    """For each key, how many readings in a row a condition held, and since when."""

    def __init__(self) -> None:
        self._since: dict[str, tuple[clock.Clock, int]] = {}

    def hold(self, key: str, then: clock.Clock, holds: object) -> tuple[clock.Clock, int] | None:
        if not holds:
            self._since.pop(key, None)
            return None
        begin, readings = self._since.get(key, (then, 0))
        self._since[key] = (begin, readings + 1)
        return self._since[key]


class Pressure:
    """Rows of `pressure`: microseconds in which some, and all, tasks waited for each resource."""

    name = "pressure"
    needs = ("pressure",)

    def __init__(self) -> None:
        self._counters = rates.Counters()
        self._rows = _Rows()
        self._then: clock.Clock | None = None

    def check(
        self, signal: str, now: clock.Clock, rows: sources.Rows
    ) -> Iterator[watches.Sighting]:
        del signal
        seconds, rose = self._counters.since(now, rows)
        then, self._then = self._then, now
        for resource, change in rose.items():
            some, full = (value / 1e6 / seconds for value in (*change, 0)[:2])
            held = self._rows.hold(
                resource, then or now, resource in SOME and some >= SOME[resource]
            )
            if held is None or held[1] < IN_A_ROW:
                continue
            critical = full >= FULL_CRITICAL.get(resource, 2.0)
            yield watches.Sighting(
                f"pressure.{resource}", resource, held[0],
                f"tasks waited for {resource} {100 * some:.0f} % of the time,"
                f" all tasks at once {100 * full:.0f} %",
                Severity.CRITICAL if critical else Severity.INFO if resource == "cpu" else Severity.WARNING,
                fields={"some_percent": round(100 * some, 1), "full_percent": round(100 * full, 1)},
            )  # fmt: skip


class RunQueue:
    """Rows of `schedstat`: milliseconds that tasks ran, and waited in the run queue, on each core."""

    name = "run-queue"
    needs = ("schedstat",)

    def __init__(self) -> None:
        self._counters = rates.Counters()
        self._rows = _Rows()
        self._then: clock.Clock | None = None

    def check(
        self, signal: str, now: clock.Clock, rows: sources.Rows
    ) -> Iterator[watches.Sighting]:
        """Report a core only while tasks on the others wait little."""
        del signal
        seconds, rose = self._counters.since(now, rows)
        then, self._then = self._then, now
        whole = sum(change[1] for change in rose.values())
        for core, change in rose.items():
            wait = change[1] / seconds
            others = (whole - change[1]) / seconds / max(1, len(rose) - 1)
            held = self._rows.hold(core, then or now, wait >= max(WAIT_A_SECOND, 4 * others))
            if held is not None and held[1] >= IN_A_ROW:
                yield watches.Sighting(
                    "cpu.run_queue", core, held[0],
                    f"tasks in the run queue of core {core} waited {wait / 1000:.1f} s per second",
                    Severity.INFO, core=int(core),
                    fields={"wait_ms_a_second": round(wait), "others_ms": round(others)},
                )  # fmt: skip


class Reclaim:
    """Row of `vmstat`: kills by the OOM killer."""

    name = "reclaim"
    needs = ("vmstat",)

    def __init__(self) -> None:
        self._counters = rates.Counters()

    def check(
        self, signal: str, now: clock.Clock, rows: sources.Rows
    ) -> Iterator[watches.Sighting]:
        del signal
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
    needs = ("limits",)

    def check(
        self, signal: str, now: clock.Clock, rows: sources.Rows
    ) -> Iterator[watches.Sighting]:
        del signal
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
    needs = ("clock",)

    def check(
        self, signal: str, now: clock.Clock, rows: sources.Rows
    ) -> Iterator[watches.Sighting]:
        del signal
        row = rows.get("")
        if row and row[0]:
            yield watches.Sighting(
                "clock.unsynchronised", "", now,
                "the clock is not synchronised to a time server: times may differ from other hosts",
                Severity.INFO, fold_seconds=120.0,
            )  # fmt: skip


WATCHES = (Pressure, RunQueue, Reclaim, Limits, ClockSync)
