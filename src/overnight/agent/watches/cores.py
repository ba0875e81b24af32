"""Find one saturated core while the others have room: the average over all cores hides it.

`cpu.core_pinned`: a core is at least 95 % busy, or 90 % in the kernel, for three seconds while the others
average below 50 %. `cpu.core_stolen`: the hypervisor takes at least half of a core for as long.
`net.interrupt_skew`: that saturated core also does 80 % of the host's network receive work.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from overnight.agent import watches
from overnight.agent.watches import rates
from overnight.model import cpu
from overnight.model.severity import Severity

if TYPE_CHECKING:
    from overnight import sources
    from overnight.model import clock
    from overnight.model.event import Value

SOFTIRQ = cpu.MODES.index("softirq")
UTIME, STIME, _, LAST_CORE = range(4)  # of a row of `processes`
NET_RX = 3  # in the order of /proc/softirqs
PAUSE_NS = 3_500_000_000
# Percent from which a core counts as pinned, percent below which the others have room.
BUSY, KERNEL, OTHERS = 95.0, 90.0, 50.0
STOLEN, RECEIVE = 50.0, 80.0  # percent
# Three and five seconds in a row; a reading may come 0.2 s early.
SECONDS, CRITICAL_SECONDS = 2.8, 4.8


@dataclasses.dataclass
class _Streak:
    """Readings in a row in which a core was at its limit, and the ticks it spent meanwhile."""

    begin: clock.Clock
    ticks: list[int]
    others: float = 0.0
    readings: int = 0

    @property
    def shares(self) -> cpu.Shares:
        return cpu.tick_shares(self.ticks) or cpu.Shares(0.0, 0.0, 0.0)

    def seconds(self, now: clock.Clock) -> float:
        return (now.monotonic_ns - self.begin.monotonic_ns) / 1e9


class CorePinned:
    """Follows every core's modes; `processes` rows only name the top consumer on the core."""

    name = "core-pinned"
    needs = ("cpu", "softirqs", "processes")

    def __init__(self) -> None:
        self._rows: sources.Rows = {}
        self._then: clock.Clock | None = None
        self._pinned: dict[str, _Streak] = {}
        self._stolen: dict[str, _Streak] = {}
        self._softirqs = rates.Counters()
        self._processes: sources.Rows = {}
        self._receive: tuple[str, float] = ("", 0.0)
        self._consumers: dict[int, tuple[int, str]] = {}

    def check(self, signal: str, now: clock.Clock, rows: sources.Rows) -> watches.Sightings:
        if signal == "cpu":
            return self._check_cpu(now, rows)
        if signal == "softirqs":
            self._find_receiver(now, rows)
        else:
            self._find_consumers(rows)
        return ()

    def _check_cpu(self, now: clock.Clock, rows: sources.Rows) -> watches.Sightings:
        before, then = self._rows, self._then
        self._rows, self._then = rows, now
        if then is None or not 0 < now.monotonic_ns - then.monotonic_ns <= PAUSE_NS:
            self._pinned.clear()
            self._stolen.clear()
            return
        ticks = {
            core: cpu.tick_changes(before[core], row)
            for core, row in rows.items()
            if core in before
        }
        shares = {
            core: share
            for core, row in ticks.items()
            if (share := cpu.tick_shares(row)) is not None
        }
        whole = sum(share.busy for share in shares.values())
        for core, share in shares.items():
            others = 100 * (whole - share.busy) / (len(shares) - 1) if len(shares) > 1 else 0.0
            at_limit = 100 * share.busy >= BUSY or 100 * share.kernel >= KERNEL
            pinned = at_limit and others < OTHERS
            streak = _continue(self._pinned, core, pinned, then, ticks[core], others)
            if streak is not None and (seconds := streak.seconds(now)) >= SECONDS:
                yield from self._report_pinned(core, streak, seconds, len(shares))
            stolen = 100 * share.steal >= STOLEN
            streak = _continue(self._stolen, core, stolen, then, ticks[core], others)
            if streak is not None and (seconds := streak.seconds(now)) >= SECONDS:
                percent = 100 * streak.shares.steal
                yield watches.Sighting(
                    "cpu.core_stolen", core, streak.begin,
                    f"the hypervisor took {percent:.0f} % of core {core} for {seconds:.0f} s (steal)",
                    core=int(core), fold_seconds=3.0,
                    fields={"seconds": round(seconds, 1), "steal_percent": round(percent, 1)},
                )  # fmt: skip
        for streaks in (self._pinned, self._stolen):
            for gone in streaks.keys() - rows.keys():
                del streaks[gone]

    def _report_pinned(
        self, core: str, streak: _Streak, seconds: float, cores: int
    ) -> watches.Sightings:
        shares, others = streak.shares, streak.others / streak.readings
        critical = seconds >= CRITICAL_SECONDS
        process = self._consumers.get(int(core), (0, ""))[1]
        fields: dict[str, Value] = {
            "seconds": round(seconds, 1),
            "busy_percent": round(100 * shares.busy, 1),
            "kernel_percent": round(100 * shares.kernel, 1),
            "softirq_percent": round(100 * streak.ticks[SOFTIRQ] / sum(streak.ticks), 1),
            "others_percent": round(others, 1),
            "cores": cores,
        }
        if process:
            fields["last_ran_there"] = process
        yield watches.Sighting(
            "cpu.core_pinned", core, streak.begin,
            _describe(core, seconds, shares, cores - 1, others),
            Severity.CRITICAL if critical else Severity.WARNING,
            core=int(core), process=process, fold_seconds=3.0, fields=fields,
        )  # fmt: skip
        receiver, share = self._receive
        if receiver == core and share > RECEIVE and cores > 1:
            yield watches.Sighting(
                "net.interrupt_skew", core, streak.begin,
                f"saturated core {core} does {share:.0f} % of the host's network receive work",
                core=int(core), fold_seconds=3.0, fields={"receive_percent": round(share, 1)},
            )  # fmt: skip

    def _find_receiver(self, now: clock.Clock, rows: sources.Rows) -> None:
        _, rose = self._softirqs.since(now, rows)
        received = {core: row[NET_RX] for core, row in rose.items() if len(row) > NET_RX}
        whole = sum(received.values())
        if whole < 100:  # too few for a share
            self._receive = ("", 0.0)
            return
        top = max(received, key=lambda core: received[core])
        self._receive = (top, 100 * received[top] / whole)

    def _find_consumers(self, rows: sources.Rows) -> None:
        """Find the process that used most since the last reading, of those last seen on each core."""
        before, self._processes = self._processes, rows
        self._consumers = {}
        for key, row in rows.items():
            old = before.get(key)
            if old is None:
                continue
            ticks = row[UTIME] + row[STIME] - old[UTIME] - old[STIME]
            core = row[LAST_CORE]
            if ticks > self._consumers.get(core, (0, ""))[0]:
                pid, _, comm = key.partition(" ")
                self._consumers[core] = (ticks, f"{comm}[{pid}]")


def _describe(
    core: str, seconds: float, shares: cpu.Shares, others: int, others_percent: float
) -> str:
    kernel = 100 * shares.kernel / (shares.busy or 1.0)
    share, place = (kernel, "the kernel") if kernel >= 50 else (100 - kernel, "user space")
    text = f"core {core} was {100 * shares.busy:.0f} % busy for {seconds:.0f} s, {share:.0f} % of it in {place}"
    if others:
        name = "core" if others == 1 else f"{others} cores"
        text += f", while the other {name} averaged {others_percent:.0f} %"
    return text


def _continue(
    streaks: dict[str, _Streak],
    core: str,
    holds: bool,
    then: clock.Clock,
    ticks: list[int],
    others: float,
) -> _Streak | None:
    """Return the streak of a core with one more reading, or None where it ended."""
    if not holds:
        streaks.pop(core, None)
        return None
    streak = streaks.setdefault(core, _Streak(then, [0] * 8))
    streak.ticks = [a + b for a, b in zip(streak.ticks, ticks, strict=True)]
    streak.others += others
    streak.readings += 1
    return streak


WATCHES = (CorePinned,)
