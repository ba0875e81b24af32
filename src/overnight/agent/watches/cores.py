"""One core at its limit while the others have room: what an average over all cores hides.

`cpu.core_pinned`: a core that is at least 95 % busy, or 90 % in the kernel, for three seconds while the
others average below 50 %. `cpu.core_stolen`: the hypervisor took half of a core or more for as long.
`net.interrupt_skew`: that pinned core also did 80 % of the host's network receive work.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from overnight.agent import watches
from overnight.agent.watches import rates

if TYPE_CHECKING:
    from overnight import sources
    from overnight.model import clock

__all__ = ["WATCHES", "CoreLimits", "CorePinned"]

USER, NICE, SYSTEM, IDLE, IOWAIT, IRQ, SOFTIRQ, STEAL = range(8)
UTIME, STIME, _, LAST_CORE = range(4)  # of a row of `processes`
NET_RX = 3  # in the order of /proc/softirqs
PAUSE_NS = 3_500_000_000


@dataclasses.dataclass(frozen=True)
class CoreLimits:
    """From when on a core counts as pinned; percent, and seconds in a row."""

    busy: float = 95.0
    kernel: float = 90.0
    others: float = 50.0
    seconds: float = 3.0
    critical_seconds: float = 5.0
    stolen: float = 50.0
    receive: float = 80.0


@dataclasses.dataclass
class _Streak:
    """Seconds in a row in which a core was at its limit, and the ticks it spent meanwhile."""

    begin: clock.Clock
    ticks: list[int]
    others: float = 0.0
    looks: int = 0


class CorePinned:
    """Follows every core's modes; `processes` rows only tell who last ran on the core."""

    name = "core-pinned"
    needs = ("cpu", "softirqs", "processes")

    def __init__(self, limits: CoreLimits | None = None) -> None:
        self._limits = limits or CoreLimits()
        self._rows: sources.Rows = {}
        self._then: clock.Clock | None = None
        self._pinned: dict[str, _Streak] = {}
        self._stolen: dict[str, _Streak] = {}
        self._softirqs = rates.Counters()
        self._processes: sources.Rows = {}
        self._receive: tuple[str, float] = ("", 0.0)
        self._runs: dict[int, tuple[int, str]] = {}

    def look(self, signal: str, now: clock.Clock, rows: sources.Rows) -> Iterable[watches.Sighting]:
        """One reading."""
        if signal == "cpu":
            return self._cpu(now, rows)
        if signal == "softirqs":
            self._look_at_receive(now, rows)
        else:
            self._look_at_processes(rows)
        return ()

    def _cpu(self, now: clock.Clock, rows: sources.Rows) -> Iterator[watches.Sighting]:
        before, then = self._rows, self._then
        self._rows, self._then = rows, now
        if then is None or not 0 < now.monotonic_ns - then.monotonic_ns <= PAUSE_NS:
            self._pinned.clear()
            self._stolen.clear()
            return
        limits = self._limits
        changes: dict[str, list[int]] = {}
        shares: dict[str, tuple[float, float, float]] = {}
        for core, row in rows.items():
            old = before.get(core)
            if old is None:
                continue
            # idle and iowait may step back a little (proc(5)): nothing is less than nothing.
            change = [b - a if b > a else 0 for a, b in zip(old[:8], row[:8], strict=True)]
            total = sum(change)
            if total <= 0:
                continue
            kernel = change[SYSTEM] + change[IRQ] + change[SOFTIRQ]
            busy = kernel + change[USER] + change[NICE]
            changes[core] = change
            shares[core] = (100 * busy / total, 100 * kernel / total, 100 * change[STEAL] / total)
        if not shares:
            return
        whole = sum(busy for busy, _, _ in shares.values())
        for core, (used, inside, stolen) in shares.items():
            others = (whole - used) / (len(shares) - 1) if len(shares) > 1 else 0.0
            at_limit = (used >= limits.busy or inside >= limits.kernel) and others < limits.others
            streak = _go_on(self._pinned, core, at_limit, then, changes[core], others)
            if streak is not None:
                yield from self._pinned_sighting(core, streak, now, len(shares))
            taken = _go_on(self._stolen, core, stolen >= limits.stolen, then, changes[core], others)
            if taken is not None:
                yield from self._stolen_sighting(core, taken, now)
        for gone in self._pinned.keys() - rows.keys():
            del self._pinned[gone]
        for gone in self._stolen.keys() - rows.keys():
            del self._stolen[gone]

    def _pinned_sighting(
        self, core: str, streak: _Streak, now: clock.Clock, cores: int
    ) -> Iterator[watches.Sighting]:
        seconds = (now.monotonic_ns - streak.begin.monotonic_ns) / 1e9
        # Looks come a little early or late: three of them are three seconds.
        if seconds < self._limits.seconds - 0.2:
            return
        ticks = streak.ticks
        total = max(1, sum(ticks))
        kernel = 100 * (ticks[SYSTEM] + ticks[IRQ] + ticks[SOFTIRQ]) / total
        user = 100 * (ticks[USER] + ticks[NICE]) / total
        others = streak.others / streak.looks
        severity = "critical" if seconds >= self._limits.critical_seconds - 0.2 else "warning"
        process = self._runs.get(int(core), (0, ""))[1]
        where = "in the kernel" if kernel >= user else "in user space"
        text = (
            f"core {core} was {user + kernel:.0f} % busy for {seconds:.0f} s, mostly {where}, while "
            + _others(cores - 1, others)
        )
        fields: dict[str, str | int | float | bool] = {
            "seconds": round(seconds, 1),
            "busy_percent": round(user + kernel, 1),
            "kernel_percent": round(kernel, 1),
            "softirq_percent": round(100 * ticks[SOFTIRQ] / total, 1),
            "others_percent": round(others, 1),
            "cores": cores,
        }
        if process:
            fields["last_ran_there"] = process
        yield watches.Sighting(
            "cpu.core_pinned", core, streak.begin, text, severity,
            core=int(core), process=process, fold_seconds=3.0, fields=fields,
        )  # fmt: skip
        receiver, share = self._receive
        if receiver == core and share > self._limits.receive and cores > 1:
            yield watches.Sighting(
                "net.interrupt_skew",
                core,
                streak.begin,
                f"pinned core {core} does {share:.0f} % of the host's network receive work",
                core=int(core),
                fold_seconds=3.0,
                fields={"receive_percent": round(share, 1)},
            )

    def _stolen_sighting(
        self, core: str, streak: _Streak, now: clock.Clock
    ) -> Iterator[watches.Sighting]:
        seconds = (now.monotonic_ns - streak.begin.monotonic_ns) / 1e9
        if seconds < self._limits.seconds - 0.2:
            return
        stolen = 100 * streak.ticks[STEAL] / max(1, sum(streak.ticks))
        yield watches.Sighting(
            "cpu.core_stolen",
            core,
            streak.begin,
            f"the hypervisor took {stolen:.0f} % of core {core} for {seconds:.0f} s",
            core=int(core),
            fold_seconds=3.0,
            fields={"seconds": round(seconds, 1), "steal_percent": round(stolen, 1)},
        )

    def _look_at_receive(self, now: clock.Clock, rows: sources.Rows) -> None:
        _, rose = self._softirqs.since(now, rows)
        received = {core: row[NET_RX] for core, row in rose.items() if len(row) > NET_RX}
        whole = sum(received.values())
        if whole < 100:  # a share of next to nothing says nothing
            self._receive = ("", 0.0)
            return
        top = max(received, key=lambda core: received[core])
        self._receive = (top, 100 * received[top] / whole)

    def _look_at_processes(self, rows: sources.Rows) -> None:
        """Who used most since the look before, of those last seen on each core."""
        before, self._processes = self._processes, rows
        self._runs = {}
        for key, row in rows.items():
            old = before.get(key)
            if old is None:
                continue
            ticks = row[UTIME] + row[STIME] - old[UTIME] - old[STIME]
            core = row[LAST_CORE]
            if ticks > self._runs.get(core, (0, ""))[0]:
                pid, _, comm = key.partition(" ")
                self._runs[core] = (ticks, f"{comm}[{pid}]")


def _others(count: int, mean: float) -> str:
    if count < 1:
        return "it was alone"
    return f"the other {count if count > 1 else 'core'} averaged {mean:.0f} %"


def _go_on(
    streaks: dict[str, _Streak],
    core: str,
    holds: bool,
    then: clock.Clock,
    ticks: list[int],
    others: float,
) -> _Streak | None:
    """The streak of a core after one more look, or none."""
    if not holds:
        streaks.pop(core, None)
        return None
    streak = streaks.setdefault(core, _Streak(then, [0] * 8))
    streak.ticks = [a + b for a, b in zip(streak.ticks, ticks, strict=True)]
    streak.others += others
    streak.looks += 1
    return streak


WATCHES = (CorePinned,)
