"""The signals of a busy host, second by second, from a seed.

The cores are 20 % busy on average, some nearly idle and some nearly saturated, with noise that lasts seconds
and bursts of up to 15 s; a quarter of the cores serve a network queue. Ticks are binomial, as the kernel's
sampling is, and interrupts are Poisson: nothing here compresses better than its entropy. Real hosts, whose
cores sleep at night, compress better.
"""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from overnight import sources
from overnight.agent import own_processes, signals

__all__ = ["COLUMNS", "STORED_EVERY", "Second", "host_seconds"]

SEED = 20261115
STEP = 600
SIGNALS = {
    signal.name: signal
    for signal in (*signals.discover_signals(), own_processes.signal(pathlib.Path()))
    if isinstance(signal, sources.Signal)
}
COLUMNS = {name: signal.columns for name, signal in SIGNALS.items()}
STORED_EVERY = {
    name: tuple(signal.keep.get(column, 0.0) for column in signal.columns)
    for name, signal in SIGNALS.items()
}
CORES = ("cpu", "softirqs", "softnet", "schedstat")
# Rows, and the change of each column between two polls: a positive number is the average rise of a counter, 0 is a
# constant, and a negative number is a gauge of at most that size. A busy host: 2 of 8 disks work, 100 pods have a
# quota, 20 processes are busy.
OTHERS: dict[str, list[tuple[int, tuple[float, ...]]]] = {
    "pressure": [(1, (3000, 0)), (3, (900, 400))],
    "affinity": [(20, (0, 0))],
    "recorder": [(4, (0.5, 0.3))],
    "process-states": [(1, (-9, -6, -3, 0))],
    "clock": [(1, (0, 0, -200, -500, -50))],
    "cpu-throttling": [(30, (100, 3, 90_000)), (70, (20, 0.01, 30))],
    "disks": [(2, (4000, 1500, 3000, 4000, -8, 4000, 5000)), (6, (0, 0, 20, 9, 0, 9, 9))],
    "ethtool": [(24, (1.0,)), (60, (0,))],
    "interfaces": [(2, (0, 9e8, 6e5, 0, 3, 9e8, 6e5, 0, 0))],
    "interrupts": [(24, (0, 90_000, 0, 90_000))],
    "limits": [(2, (-500, 0)), (2, (-50, 0))],
    "load": [(1, (-500, -200, -90, -30, -60))],
    "memory": [(1, (0, *[-50_000] * 4, 0, -5000, -5000, 0, -9000, -900, 0))],
    "tx-timeouts": [(32, (0,))],
    "cgroup-births": [(4, (0.01, 0.01, 0.01, 0))],
    "memory-cgroups": [(1, (-9, -9, -9, 0, 0))],
    "unit-restarts": [(60, (0, 0))],
}
# Of vmstat, what rises on a busy host whose memory is nearly full.
VMSTAT = {
    "pgfault": 60_000, "pgmajfault": 2, "thp_fault_alloc": 20, "slabs_scanned": 0.5, "pgscan_kswapd": 300,
    "pgsteal_kswapd": 290, "workingset_refault_file": 50, "compact_migrate_scanned": 1, "numa_pages_migrated": 30,
}  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Second:
    """The rows of one tick by signal."""

    number: int
    rows: dict[str, dict[str, tuple[int, ...]]]


def host_seconds(cores: int, seconds: int, seed: int = SEED) -> Iterator[Second]:
    """Yield counters as a host shows them; they start at large values."""
    random = np.random.default_rng(seed)
    host = _Host(random, cores)
    keys = [str(core) for core in range(cores)]
    totals = {name: random.integers(10**6, 10**9, (cores, len(COLUMNS[name]))) for name in CORES}
    for name, silent in (("cpu", (1, 5, 7, 8, 9)), ("softirqs", (0, 5)), ("softnet", (1, 3, 4))):
        totals[name][:, silent] = 0
    rises = [VMSTAT.get(column, 0) for column in COLUMNS["vmstat"]]
    others = [_Simple(name, random, groups) for name, groups in OTHERS.items()]
    others += [_Simple("vmstat", random, [(1, tuple(rises))]), _Frequencies(random, cores)]
    tasks = _Processes(random, cores)
    for begin in range(0, seconds, STEP):
        steps = host.step(min(STEP, seconds - begin))
        for at in range(min(STEP, seconds - begin)):
            rows = {}
            for name, total in totals.items():
                np.add(total, steps[name][at], out=total)
                rows[name] = dict(zip(keys, map(tuple, total.tolist()), strict=True))
            rows["processes"] = tasks.top()
            for other in others:
                if not (begin + at) % SIGNALS[other.name].every:
                    rows[other.name] = other.poll()
            yield Second(begin + at, rows)


class _Simple:
    """Rows whose columns change independently of each other."""

    def __init__(
        self, name: str, random: np.random.Generator, groups: list[tuple[int, tuple[float, ...]]]
    ) -> None:
        self.name, self.random = name, random
        change = np.array([steps for rows, steps in groups for _ in range(rows)])
        self.rise, self.below = np.maximum(change, 0), np.maximum(-change, 1)
        self.first = random.integers(10**5, 10**8, change.shape)
        self.keys = [f"{name} {row}" for row in range(len(change))]

    def poll(self) -> dict[str, tuple[int, ...]]:
        self.first += self.random.poisson(self.rise)
        now = self.first + self.random.integers(0, self.below)
        return dict(zip(self.keys, map(tuple, now.tolist()), strict=True))


class _Frequencies:
    """Each core at any multiple of 100 MHz; the host reports no power limits."""

    name = "frequency"

    def __init__(self, random: np.random.Generator, cores: int) -> None:
        self.random, self.cores = random, cores

    def poll(self) -> dict[str, tuple[int, ...]]:
        mhz = self.random.integers(8, 36, self.cores) * 100
        return {str(core): (each, 0, 0, -1) for core, each in enumerate(mhz.tolist())}


class _Host:
    def __init__(self, random: np.random.Generator, cores: int) -> None:
        self.random, self.cores = random, cores
        self.base = np.clip(random.beta(0.8, 3.2, cores), 0.01, 0.95)  # a fifth on average
        self.noise = random.normal(size=cores)
        self.serves = np.zeros(cores)
        self.serves[random.permutation(cores)[: max(1, cores // 4)]] = 1
        self.kernel = random.uniform(0.1, 0.35, cores)
        self.disks = np.where(np.arange(cores) < max(1, cores // 12), 1.0, 0.0)

    def step(self, seconds: int) -> dict[str, npt.NDArray[np.int64]]:
        random, shape = self.random, (seconds, self.cores)
        noise = np.empty(shape)
        for t in range(seconds):
            self.noise = 0.9 * self.noise + np.sqrt(1 - 0.81) * random.normal(size=self.cores)
            noise[t] = self.noise
        load = np.clip(
            self.base * (1 + 0.35 * noise) + 0.02 * random.standard_normal(shape), 0.003, 1
        )
        for _ in range(1 + seconds * self.cores // 2000):
            t, core = random.integers(seconds), random.integers(self.cores)
            load[t : t + random.integers(2, 15), core] = random.uniform(0.7, 1)
        none = np.zeros(shape, int)
        user = random.binomial(100, load * (1 - self.kernel))
        system = random.binomial(100, load * self.kernel)
        softirq = random.binomial(100, self.serves * np.clip(0.03 + 0.02 * noise, 0, 1))
        iowait = random.binomial(100, 0.02 * self.disks * np.ones(shape))
        ticks = 100 + (random.random(shape) < 0.1) * random.integers(-1, 2, shape)
        idle = np.maximum(0, ticks - user - system - softirq - iowait)
        received = random.poisson(self.serves * 1200 * np.clip(1 + 0.5 * noise, 0.05, 4) + 0.3)
        return {
            "cpu": np.stack([user, none, system, idle, iowait, none, softirq, none, none, none], 2),
            "softirqs": np.stack(
                [
                    none,
                    random.poisson(250 * load + 8),
                    random.poisson(self.serves * 0.5 * np.ones(shape)),
                    received,
                    random.poisson(20 * self.disks * np.ones(shape)),
                    none,
                    random.poisson(0.01, shape),
                    random.poisson(180 * load + 6),
                    random.poisson(0.5, shape),
                    random.poisson(160 * load + 10),
                ],
                2,
            ),
            "softnet": np.stack(
                [
                    received * 3 + random.poisson(self.serves * 40 + 4 * np.ones(shape)),
                    none,
                    random.poisson(self.serves * 0.02 * np.ones(shape)),
                    none,
                    none,
                ],
                2,
            ),
            "schedstat": np.stack(
                [
                    np.clip(1000 * load + random.normal(0, 4, shape), 0, 1010).astype(int),
                    random.gamma(0.8, 12 * load + 0.2).astype(int),
                    random.poisson(350 * load + 15),
                ],
                2,
            ),
        }


class _Processes:
    """The top 20 of 60 processes by recent CPU use; the set changes slowly."""

    def __init__(self, random: np.random.Generator, cores: int) -> None:
        self.random, self.cores = random, cores
        self.names = [f"{n * 997 % 65000 + 300} worker-{n % 9}.py (python3)" for n in range(60)]
        self.values = np.zeros((60, len(COLUMNS["processes"])), np.int64)
        self.values[:, :5] = random.integers(1000, 10**7, (60, 5))
        self.mean_ticks = 60 * np.exp(-np.arange(60) / 8)
        self.recent = self.mean_ticks.copy()

    def top(self) -> dict[str, tuple[int, ...]]:
        random, values = self.random, self.values
        used = random.poisson(self.mean_ticks)
        kernel = random.binomial(used, 0.2)
        self.recent = 0.9 * self.recent + 0.1 * used
        values[:, 0] += used - kernel
        values[:, 1] += kernel
        values[:, 2] += random.integers(-50, 50, 60) * (random.random(60) < 0.1)
        values[:, 3] = np.where(
            random.random(60) < 0.1, random.integers(0, self.cores, 60), values[:, 3] % self.cores
        )
        values[:, 4] += random.random(60) < 0.01
        values[:, 5] = np.where(random.random(60) < self.mean_ticks / 100, ord("R"), ord("S"))
        if random.random() < 0.1:
            index = int(random.integers(15, 60))
            self.names[index] = f"{random.integers(300, 65000)} nightly.sh → short-{index}"
            values[index, :5] = random.integers(0, 300, 5)
            self.recent[index] = 20
        rows = values.tolist()
        chosen = np.argsort(-self.recent)[:20].tolist()
        return {self.names[n]: tuple(rows[n]) for n in chosen}
