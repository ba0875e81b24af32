"""Count memory cgroups: tracked, in use, dying, their growth, and which cgroups create them.

The kernel keeps a removed cgroup while a page is still charged to it, and iterates over all of them:
68,680 tracked with 240 in use saturated a core for seconds.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import operator
import pathlib
import platform
import statistics
import time
from collections.abc import Callable, Iterator, Sequence

from overnight import errors, sources
from overnight.model import times
from overnight.sources import cgroupchurn, perf, processes
from overnight.sources.memorycgroups import counts, parents
from overnight.store.ring import reader as ring_reader

SCHEMA = "overnight.census/1"
WARN_DYING = 1_000
WARN_RATIO = 10.0
WARN_GROWTH = 50.0  # per hour
WARN_GROWTH_HOURS = 6.0
CRITICAL_DYING = 10_000
SLOW_READ_US = 100_000
PAGE_READ_US = 1_000_000
WATCHDOG_US = 5_000_000
# A faster read is not slowed by dying cgroups, so nothing can be projected from it.
PROJECTABLE_US = 10_000
RECORDING_S = 120.0  # the flight recorder counts every 60 s
STEP_S = 1.0
LOCATE_S = 2.0
MAX_CREATORS = 10

# time in seconds (of any clock that only rises), tracked, in use, dying
Sample = tuple[float, int, int, int]


@dataclasses.dataclass(frozen=True)
class Creator:
    """A cgroup whose children were created and removed during the measurement."""

    cgroup: str
    unit: str
    births_per_hour: float
    deaths_per_hour: float
    short_lived: int
    # Removals here as a share of all that can explain the growth; None without growth.
    explains: float | None


@dataclasses.dataclass(frozen=True)
class Report:
    """The result and what it is based on."""

    tracked: int
    in_use: int
    dying: int
    growth_per_hour: float | None
    measured_s: float
    stat_read_us: int
    parents: tuple[parents.Parent, ...]
    creators: tuple[Creator, ...]
    version: str
    severity: str  # ok, warning or critical
    reasons: tuple[str, ...]

    @property
    def ratio(self) -> float:
        """Tracked cgroups for each one in use."""
        return self.tracked / max(1, self.in_use)

    @property
    def hours_to_critical(self) -> float | None:
        """Hours until 10,000 are dying; 0 if they are, None without growth."""
        if self.dying >= CRITICAL_DYING:
            return 0.0
        return _hours(CRITICAL_DYING - self.dying, self.growth_per_hour)

    @property
    def hours_to_watchdog(self) -> float | None:
        """Hours until a statistics read takes 5 s, in proportion to the dying; None if not foreseeable."""
        if self.stat_read_us >= WATCHDOG_US:
            return 0.0
        if self.stat_read_us < PROJECTABLE_US or not self.dying:
            return None
        return _hours(
            self.dying * (WATCHDOG_US / self.stat_read_us) - self.dying, self.growth_per_hour
        )

    def as_json(self) -> dict[str, object]:
        """Schema census-1."""
        return {
            "schema": SCHEMA,
            "tracked": self.tracked,
            "in_use": self.in_use,
            "dying": self.dying,
            "ratio": round(self.ratio, 2),
            "growth_per_hour": _rounded(self.growth_per_hour),
            "measured_seconds": round(self.measured_s, 3),
            "hours_to_critical": _rounded(self.hours_to_critical),
            "hours_to_watchdog": _rounded(self.hours_to_watchdog),
            "stat_read_us": self.stat_read_us,
            "cgroups": self.version,
            "severity": self.severity,
            "reasons": list(self.reasons),
            "parents": [dataclasses.asdict(parent) for parent in self.parents],
            "creators": [
                {
                    **dataclasses.asdict(creator),
                    "births_per_hour": _rounded(creator.births_per_hour),
                    "deaths_per_hour": _rounded(creator.deaths_per_hour),
                    "explains": None if creator.explains is None else round(creator.explains, 4),
                }
                for creator in self.creators
            ],
        }


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 1)


def _hours(missing: float, growth: float | None) -> float | None:
    return missing / growth if growth is not None and growth > 0 else None


def since_last_fall(history: Sequence[Sample]) -> Sequence[Sample]:
    """Return the history after the last reboot or purge: a slope across one means nothing."""
    falls = [
        n
        for n, ((*_, before), (*_, now)) in enumerate(itertools.pairwise(history), 1)
        if now < before / 2 and before - now > 100
    ]
    return history[falls[-1] :] if falls else history


def continue_history(history: Sequence[Sample], samples: Sequence[Sample]) -> Sequence[Sample]:
    """Return both if the recording still runs; the trend of one that ended says nothing about now."""
    running = history and samples[0][0] - history[-1][0] <= RECORDING_S
    return (*history, *samples) if running else samples


def growth_per_hour(history: Sequence[Sample]) -> float | None:
    """Return the growth of dying cgroups per hour, by least squares; None below two samples."""
    seconds, dying = [sample[0] for sample in history], [sample[3] for sample in history]
    try:
        return 3600 * statistics.linear_regression(seconds, dying).slope
    except statistics.StatisticsError:  # too few, or all at the same time
        return None


def judge(
    tracked: int, in_use: int, dying: int, growth: float | None, hours: float, stat_read_us: int
) -> tuple[str, tuple[str, ...]]:
    """Return severity and reasons. `hours` is how long the growth was measured."""
    critical, warning = [], []
    if dying > CRITICAL_DYING:
        critical.append(f"more than {CRITICAL_DYING:,} are dying")
    if stat_read_us > PAGE_READ_US:
        critical.append("reading the root cgroup's statistics takes more than 1 s")
    elif stat_read_us > SLOW_READ_US:
        critical.append("reading the root cgroup's statistics takes more than 100 ms")
    if dying > WARN_DYING and tracked > WARN_RATIO * in_use:
        warning.append(f"more than {WARN_DYING:,} are dying, {tracked / max(1, in_use):.0f} times those in use")  # fmt: skip
    if growth is not None and growth > WARN_GROWTH and hours >= WARN_GROWTH_HOURS:
        warning.append(f"{growth:.0f} more an hour, for {hours:.0f} hours")
    severity = "critical" if critical else "warning" if warning else "ok"
    return severity, (*critical, *warning)


def rank_creators(
    before: sources.Rows, after: sources.Rows, seconds: float, grown: int
) -> tuple[Creator, ...]:
    """Rank cgroups by children removed between two readings of the counters."""
    changes = {
        path: tuple(map(operator.sub, row, before.get(path, (0,) * len(row))))
        for path, row in after.items()
        if path != cgroupchurn.UNWATCHED
    }
    deaths = sum(died for _, died, _, _ in changes.values())
    possible = max(deaths, grown) if grown > 0 and deaths else None
    creators = []
    for path, (born, died, short, _) in changes.items():
        if born > 0 or died > 0:
            births, removals = born * 3600 / seconds, died * 3600 / seconds
            explains = min(1.0, died / possible) if possible else None
            creators.append(
                Creator(path, processes.unit_of(path), births, removals, short, explains)
            )
    creators.sort(key=lambda c: (-c.deaths_per_hour, -c.births_per_hour, c.cgroup))
    return tuple(creators[:MAX_CREATORS])


@contextlib.contextmanager
def _explain_no_data() -> Iterator[None]:
    try:
        yield
    except sources.NoDataError as error:
        raise errors.CannotError(
            f"cannot count memory cgroups: {error}",
            why="the kernel has no memory controller, or this is a container that sees only part of it",
            todo="run it on the host, or mount the host's root and use --root /host",
        ) from error


@_explain_no_data()
def take(
    root: pathlib.Path = sources.ROOT,
    *,
    seconds: float = 10.0,
    history: Sequence[Sample] = (),
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Report:
    """Count for `seconds` and judge the result.

    The growth comes from these seconds, and from `history` if that recording still runs.
    """
    layout = counts.read_layout(root)
    with contextlib.closing(cgroupchurn.Churn(cgroupchurn.hierarchies(root), root=root)) as churn:
        births = dict(churn.read())
        samples = [_sample(counts.read_census(layout, root), clock)]
        end = samples[0][0] + seconds
        while (left := end - clock()) > 0:
            sleep(min(STEP_S, left))
            churn.read()  # often: lifetimes are known only to the interval between reads
            samples.append(_sample(counts.read_census(layout, root), clock))
        after = churn.read()
    _, tracked, in_use, dying = samples[-1]
    took = samples[-1][0] - samples[0][0]
    known = since_last_fall(continue_history(history, samples))
    growth = growth_per_hour(known)
    measured = known[-1][0] - known[0][0]
    stat_read_us = counts.StatTimer(layout, root).read()
    severity, reasons = judge(tracked, in_use, dying, growth, measured / 3600, stat_read_us)
    return Report(
        tracked, in_use, dying, growth, measured, stat_read_us,
        parents.read_parents(layout, dying, root, budget_s=LOCATE_S),
        rank_creators(births, after, max(took, 1e-3), dying - samples[0][3]),
        layout.version, severity, reasons,
    )  # fmt: skip


def read_history(home: pathlib.Path, root: pathlib.Path = sources.ROOT) -> list[Sample]:
    """Return what the flight recorder counted on this host since boot, of the last day."""
    now, boot = times.now_us(), perf.read_identity(root).boot[:8]
    counted = _read_samples(home, platform.node() or "host", now)
    return sorted(sample for of_boot, sample in counted if of_boot == boot)


def read_recorded(home: pathlib.Path, host: str, end_us: int) -> Report:
    """Judge what the flight recorder counted on a host in the day before, since its last boot."""
    counted = sorted(_read_samples(home, host, end_us), key=lambda each: each[1])
    if not counted:
        raise errors.CannotError(
            f"memory cgroups of {host} are not recorded",
            why="the signal memory-cgroups has no reading in the day before",
            todo="run `overnight record` or `overnight agent` on the host",
        )
    known = since_last_fall([sample for boot, sample in counted if boot == counted[-1][0]])
    _, tracked, in_use, dying = known[-1]
    growth, measured = growth_per_hour(known), known[-1][0] - known[0][0]
    severity, reasons = judge(tracked, in_use, dying, growth, measured / 3600, 0)
    return Report(tracked, in_use, dying, growth, measured, 0, (), (), "", severity, reasons)


def _read_samples(home: pathlib.Path, host: str, end_us: int) -> Iterator[tuple[str, Sample]]:
    """Yield what was counted in the day before, with the boot."""
    columns = ("tracked", "in_use", "dying")
    frames = ring_reader.Reader(home).numbers(
        host, "memory-cgroups", end_us - times.DAY_US, end_us, columns=columns
    )
    for frame in frames:
        if "" in frame.keys:
            rows = [frame.series("", column)[1] for column in columns]
            for ns, *counts_now in zip(frame.monotonic_ns, *rows, strict=True):
                tracked, in_use, dying = counts_now
                yield frame.boot[:8], (ns / 1e9, tracked, in_use, dying)


def _sample(census: counts.Census, clock: Callable[[], float]) -> Sample:
    return clock(), census.tracked, census.in_use, census.dying
