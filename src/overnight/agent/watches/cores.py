"""Find one saturated core: the average over all cores hides it.

`cpu.core_pinned`: a core is at its limit for three seconds and stands out: it is in the kernel while the other
cores are not, or the others have room, or it lasts several times as long as any core did lately. A program
that fills a core in user space is only worth knowing (info) unless it keeps others from running.
`cpu.host_saturated`: nearly all cores are at their limit.
`cpu.core_stolen`: the hypervisor takes at least half of a core for three seconds.
`net.interrupt_skew`: the pinned core also does 80 % of the host's network receive work.
"""

from __future__ import annotations

import bisect
import collections
import dataclasses
from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING

from overnight.agent import watches
from overnight.agent.watches import pressure, rates
from overnight.model import cpu
from overnight.model.severity import Severity

if TYPE_CHECKING:
    from overnight import sources
    from overnight.model import clock
    from overnight.model.event import Value

SOFTIRQ = cpu.MODES.index("softirq")
UTIME, STIME, LAST_CORE, POLICY = 0, 1, 3, 6  # of a row of `processes`
# FIFO, RR and DEADLINE: other work on the core waits until the process sleeps.
REAL_TIME = (1, 2, 6)
NET_RX = 3  # in the order of /proc/softirqs
PAUSE_NS = 3_500_000_000
STOLEN, RECEIVE = 0.5, 80.0
# Three and five seconds in a row; a reading may come 0.2 s early.
SECONDS, CRITICAL_SECONDS = 2.8, 4.8
# From this share of the cores at their limit, for ten seconds, the host is saturated.
SATURATED, SATURATED_SECONDS = 0.9, 9.8
# The host's own past.
PAST_SECONDS = 600.0
# Stretches that took a quarter of it are ordinary here; a fault of six seconds a minute takes a tenth.
ORDINARY_SECONDS = 150.0
# From this many cores at once, or this share of them, the kernel's work is that of many workers, not a pinned core.
MANY, MANY_SHARE = 5, 0.125
# Where the others are busy too, a core stands out by lasting three times as long as any stretch of the past.
PERSISTENT = 3.0
MAX_PAST = 2000


@dataclasses.dataclass
class _Streak:
    """Readings in a row in which a core was at its limit, and the ticks it spent meanwhile."""

    begin: clock.Clock
    ticks: list[int] = dataclasses.field(default_factory=lambda: [0] * 8)
    # Sums over the readings: the others' mean, and the median of their kernel shares.
    others: float = 0.0
    others_kernel: float = 0.0
    readings: int = 0
    ordinary: bool | None = None  # decided once it is long enough
    reported: bool = False

    @property
    def shares(self) -> cpu.Shares:
        return cpu.tick_shares(self.ticks) or cpu.Shares(0.0, 0.0, 0.0)

    @property
    def in_kernel(self) -> bool:
        return self.shares.stands_out(self.others_kernel / self.readings)

    def seconds(self, now: clock.Clock) -> float:
        return (now.monotonic_ns - self.begin.monotonic_ns) / 1e9


class _Streaks(dict[str, _Streak]):
    """Streaks by core, and how long those of the last ten minutes lasted."""

    def __init__(self) -> None:
        self._ended: collections.deque[tuple[float, float]] = collections.deque(maxlen=MAX_PAST)

    def extend(
        self, core: str, begin: clock.Clock, ticks: list[int], others: float, others_kernel: float
    ) -> _Streak:
        streak = self.setdefault(core, _Streak(begin))
        streak.ticks = list(map(int.__add__, streak.ticks, ticks))
        streak.others += others
        streak.others_kernel += others_kernel
        streak.readings += 1
        return streak

    def keep(self, cores: Collection[str], then: clock.Clock) -> None:
        """End the streaks of all other cores."""
        for core in self.keys() - cores:
            if (seconds := self.pop(core).seconds(then)) >= SECONDS:
                self._ended.append((then.monotonic_ns / 1e9, seconds))

    def lengths(self, now: clock.Clock) -> list[float]:
        """Return the seconds of the streaks that go on or ended in the last ten minutes, the longest first."""
        since = now.monotonic_ns / 1e9 - PAST_SECONDS
        while self._ended and self._ended[0][0] < since:
            self._ended.popleft()
        lasting = (min(streak.seconds(now), PAST_SECONDS) for streak in self.values())
        ended = (seconds for _, seconds in self._ended)
        return sorted((s for s in (*lasting, *ended) if s >= SECONDS), reverse=True)


class CorePinned:
    """Follows every core's modes; the other signals say who ran there, and who waited."""

    name = "core-pinned"
    finds = ("cpu.core_pinned", "cpu.core_stolen", "cpu.host_saturated", "net.interrupt_skew")
    needs = ("cpu", "softirqs", "processes", "schedstat")

    def __init__(self) -> None:
        self._rows: sources.Rows = {}
        self._then: clock.Clock | None = None
        self._full, self._kernel, self._stolen, self._host = (_Streaks() for _ in range(4))
        self._softirqs, self._waits = rates.Counters(), rates.Counters()
        self._processes: sources.Rows = {}
        self._receive: tuple[str, float] = ("", 0.0)
        # The busiest process of each core: its ticks, name, and whether it is real-time.
        self._consumers: dict[int, tuple[int, str, bool]] = {}
        self._crowded: set[str] = set()

    def check(self, signal: str, now: clock.Clock, rows: sources.Rows) -> watches.Sightings:
        if signal == "cpu":
            return self._check_cpu(now, rows)
        if signal == "softirqs":
            self._find_receiver(now, rows)
        elif signal == "schedstat":
            waits = pressure.waits(*self._waits.since(now, rows))
            self._crowded = {core for core, *wait in waits if pressure.is_crowded(*wait)}
        else:
            self._find_consumers(rows)
        return ()

    def _check_cpu(self, now: clock.Clock, rows: sources.Rows) -> watches.Sightings:
        before, then = self._rows, self._then
        self._rows, self._then = rows, now
        if then is None or not 0 < now.monotonic_ns - then.monotonic_ns <= PAUSE_NS:
            for streaks in (self._full, self._kernel, self._stolen, self._host):
                streaks.clear()
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
        full = [core for core, share in shares.items() if share.at_limit]
        stolen = [core for core, share in shares.items() if share.steal >= STOLEN]
        kernels = sorted(share.kernel for share in shares.values()) if full or stolen else []
        others_kernel = {c: _median_without(kernels, shares[c].kernel) for c in full + stolen}
        in_kernel = [core for core in full if shares[core].stands_out(others_kernel[core])]
        whole = sum(share.busy for share in shares.values())
        for streaks, cores in (
            (self._full, full),
            (self._kernel, in_kernel),
            (self._stolen, stolen),
        ):
            streaks.keep(cores, then)
            for core in cores:
                others = (whole - shares[core].busy) / max(1, len(shares) - 1)
                streaks.extend(core, then, ticks[core], others, others_kernel[core])
        saturated = len(shares) > 1 and len(full) >= SATURATED * len(shares)
        if full:
            yield from self._report_pinned(now, len(shares), saturated)
        yield from self._report_stolen(now)
        self._host.keep([""] if saturated else [], then)
        if saturated:
            together = [sum(modes) for modes in zip(*(ticks[core] for core in full), strict=True)]
            self._host.extend("", then, together, 0.0, 0.0)
            number = "all" if len(full) == len(shares) else f"{len(full)} of"
            yield from self._report_saturated(now, f"{number} {len(shares)} cores", len(shares))

    def _report_pinned(
        self, now: clock.Clock, cores: int, saturated: bool
    ) -> Iterator[watches.Sighting]:
        kernel_lengths, lengths = self._kernel.lengths(now), self._full.lengths(now)
        many = len(self._kernel) >= max(MANY, MANY_SHARE * cores)
        for core, full in self._full.items():
            kernel = self._kernel.get(core)
            if kernel is not None and kernel.seconds(now) >= SECONDS:
                if kernel.ordinary is None:
                    kernel.ordinary = many or _is_ordinary(kernel, kernel_lengths, now)
                # A kernel-heavy host has one stretch after the other: only the longest is worth knowing.
                if (
                    kernel.reported
                    or not kernel.ordinary
                    or self._starves(core)
                    or kernel.seconds(now) > _longest_other(kernel_lengths)
                ):
                    # A separate event, because it may begin long after another program filled the core.
                    yield from self._report(core, f"{core} kernel", kernel, now, cores)
            elif full.seconds(now) >= SECONDS and (kernel is None or full.reported):
                if full.ordinary is None:
                    full.ordinary = many or _is_ordinary(full, lengths, now)
                stands_out = full.others < cpu.ROOM * full.readings and not full.ordinary
                # The others' lengths end at ten minutes, too.
                lasts = min(full.seconds(now), PAST_SECONDS) >= PERSISTENT * _longest_other(lengths)
                if (
                    full.reported
                    or self._starves(core)
                    or (not saturated and (stands_out or lasts))
                ):
                    yield from self._report(core, core, full, now, cores)

    def _report(
        self, core: str, key: str, streak: _Streak, now: clock.Clock, cores: int
    ) -> Iterator[watches.Sighting]:
        streak.reported = True
        seconds, shares = streak.seconds(now), streak.shares
        others, others_kernel = (
            100 * whole / streak.readings for whole in (streak.others, streak.others_kernel)
        )
        harms = self._starves(core) or (streak.in_kernel and not streak.ordinary)
        alarm = Severity.CRITICAL if seconds >= CRITICAL_SECONDS else Severity.WARNING
        process = self._consumers.get(int(core), (0, "", False))[1]
        fields: dict[str, Value] = {
            "seconds": round(seconds, 1),
            "busy_percent": round(100 * shares.busy, 1),
            "kernel_percent": round(100 * shares.kernel, 1),
            "softirq_percent": round(100 * streak.ticks[SOFTIRQ] / sum(streak.ticks), 1),
            "others_percent": round(others, 1),
            "others_kernel_percent": round(others_kernel, 1),
            "cores": cores,
        }
        if process:
            fields["last_ran_there"] = process
        yield watches.Sighting(
            "cpu.core_pinned", key, streak.begin,
            _describe(f"core {core} was", seconds, shares) + _describe_others(cores - 1, others, others_kernel),
            alarm if harms else Severity.INFO,
            core=int(core), process=process, fold_seconds=3.0, fields=fields,
        )  # fmt: skip
        receiver, share = self._receive
        if receiver == core and share > RECEIVE and cores > 1:
            yield watches.Sighting(
                "net.interrupt_skew", core, streak.begin,
                f"saturated core {core} does {share:.0f} % of the host's network receive work",
                core=int(core), fold_seconds=3.0, fields={"receive_percent": round(share, 1)},
            )  # fmt: skip

    def _starves(self, core: str) -> bool:
        """Whether other work waits for this core: for a real-time process, or in a long run queue."""
        return core in self._crowded or self._consumers.get(int(core), (0, "", False))[2]

    def _report_stolen(self, now: clock.Clock) -> Iterator[watches.Sighting]:
        for core, streak in self._stolen.items():
            if (seconds := streak.seconds(now)) >= SECONDS:
                percent = 100 * streak.shares.steal
                yield watches.Sighting(
                    "cpu.core_stolen", core, streak.begin,
                    f"the hypervisor took {percent:.0f} % of core {core} for {seconds:.0f} s (steal)",
                    core=int(core), fold_seconds=3.0,
                    fields={"seconds": round(seconds, 1), "steal_percent": round(percent, 1)},
                )  # fmt: skip

    def _report_saturated(
        self, now: clock.Clock, who: str, cores: int
    ) -> Iterator[watches.Sighting]:
        streak = self._host[""]
        if (seconds := streak.seconds(now)) >= SATURATED_SECONDS:
            shares = streak.shares
            yield watches.Sighting(
                "cpu.host_saturated", "", streak.begin,
                _describe(f"{who} were", seconds, shares),
                Severity.WARNING if shares.kernel >= cpu.KERNEL_HEAVY else Severity.INFO,
                fold_seconds=10.0,
                fields={
                    "seconds": round(seconds, 1),
                    "busy_percent": round(100 * shares.busy, 1),
                    "kernel_percent": round(100 * shares.kernel, 1),
                    "cores": cores,
                },
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
            if ticks > self._consumers.get(core, (0,))[0]:
                pid, _, comm = key.partition(" ")
                self._consumers[core] = (ticks, f"{comm}[{pid}]", row[POLICY] in REAL_TIME)


def _is_ordinary(streak: _Streak, lengths: Sequence[float], now: clock.Clock) -> bool:
    """Whether such streaks took much of the last ten minutes, this one not counted."""
    return sum(lengths) - min(streak.seconds(now), PAST_SECONDS) >= ORDINARY_SECONDS


def _longest_other(lengths: Sequence[float]) -> float:
    """Return how long the longest of the last ten minutes lasted, without the one that asks if it is that."""
    return [*lengths, 0.0][1]


def _median_without(ordered: Sequence[float], value: float) -> float:
    """Return the median of a sorted list without one of its values; 0 where no other is left.

    >>> _median_without([1.0, 2.0, 5.0, 9.0], 9.0)
    2.0
    """
    own, left = bisect.bisect_left(ordered, value), len(ordered) - 1
    if not left:
        return 0.0
    middle = ((left - 1) // 2, left // 2)
    return sum(ordered[index + (index >= own)] for index in middle) / 2


def _describe(who: str, seconds: float, shares: cpu.Shares) -> str:
    kernel = 100 * shares.kernel / (shares.busy or 1.0)
    share, place = (kernel, "the kernel") if kernel >= 50 else (100 - kernel, "user space")
    return (
        f"{who} {100 * shares.busy:.0f} % busy for {seconds:.0f} s, {share:.0f} % of it in {place}"
    )


def _describe_others(others: int, percent: float, kernel: float) -> str:
    if not others:
        return ""
    name = "core" if others == 1 else f"{others} cores"
    text = f", while the other {name} averaged {percent:.0f} %"
    if percent >= 100 * cpu.ROOM:
        text += f", {kernel:.0f} % in the kernel" + " (median)" * (others > 1)
    return text


WATCHES = (CorePinned,)
