"""The signals of a busy host, second by second, from a seed.

The cores are 20 % busy on average, some nearly idle and some nearly saturated, with noise that lasts seconds
and bursts of up to 15 s; a quarter of the cores serve a network queue. Ticks are binomial, as the kernel's
sampling is, and interrupts are Poisson: nothing here compresses better than its entropy. Real hosts, whose
cores sleep at night, compress better.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

__all__ = ["COLUMNS", "Second", "host_seconds", "noisy_every"]

SEED = 20261115
STEP = 600
COLUMNS = {
    "cpu": ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal", "guest", "guest_nice"),
    "softirqs": ("HI", "TIMER", "NET_TX", "NET_RX", "BLOCK", "IRQ_POLL", "TASKLET", "SCHED", "HRTIMER", "RCU"),
    "softnet": ("processed", "dropped", "squeezed"),
    "schedstat": ("run_ms", "wait_ms", "slices"),
    "pressure": tuple(f"{what}_{kind}" for what in ("cpu", "memory", "io", "irq") for kind in ("some", "full")),
    "vmstat": tuple(f"vmstat_{n}" for n in range(12)),
    "processes": ("user", "system", "rss", "faults", "switches"),
    "interrupts": ("count",),
    "memory": tuple(f"memory_{n}" for n in range(20)),
}  # fmt: skip
EVERY = {"interrupts": 10, "memory": 60}


@dataclasses.dataclass(frozen=True)
class Second:
    """The rows of one tick by signal."""

    number: int
    rows: dict[str, dict[str, tuple[int, ...]]]


def noisy_every(pace: float) -> dict[str, tuple[float, ...]]:
    """Return the interval of each column when noisy columns are kept every `pace` seconds.

    The columns kept each second show a saturated core and a busy or squeezed queue.
    """
    return {
        "softirqs": tuple(pace if n in (1, 7, 8, 9) else 0.0 for n in range(10)),
        "softnet": (pace, 0.0, 0.0),
        "schedstat": (pace, pace, pace),
    }


def host_seconds(cores: int, seconds: int, seed: int = SEED) -> Iterator[Second]:
    """Yield counters as a host shows them; they start at large values."""
    random = np.random.default_rng(seed)
    host = _Host(random, cores)
    keys = [str(core) for core in range(cores)]
    totals = {
        name: random.integers(10**6, 10**9, (cores, len(COLUMNS[name])))
        for name in ("cpu", "softirqs", "softnet", "schedstat")
    }
    for name, silent in (("cpu", (1, 5, 7, 8, 9)), ("softirqs", (0, 5)), ("softnet", (1,))):
        totals[name][:, silent] = 0
    small = {name: random.integers(10**5, 10**9, len(COLUMNS[name])) for name in ("pressure", "vmstat", "memory")}  # fmt: skip
    queues = random.integers(10**6, 10**9, (24, 1))
    tasks = _Processes(random)
    for begin in range(0, seconds, STEP):
        steps = host.step(min(STEP, seconds - begin))
        for at in range(min(STEP, seconds - begin)):
            rows = {}
            for name, total in totals.items():
                np.add(total, steps[name][at], out=total)
                rows[name] = dict(zip(keys, map(tuple, total.tolist()), strict=True))
            small["pressure"] += random.poisson(3000, 8) * (random.random(8) < 0.3)
            small["vmstat"][:6] += random.poisson(2000, 6)
            small["vmstat"][6:] += random.integers(-300, 300, 6)
            for name in ("pressure", "vmstat"):
                rows[name] = {"": tuple(small[name].tolist())}
            rows["processes"] = tasks.top()
            if not (begin + at) % EVERY["interrupts"]:
                queues += random.poisson(9000, queues.shape)
                rows["interrupts"] = {str(n): tuple(row) for n, row in enumerate(queues.tolist())}
            if not (begin + at) % EVERY["memory"]:
                small["memory"] += random.integers(-5000, 5000, 20)
                rows["memory"] = {"": tuple(small["memory"].tolist())}
            yield Second(begin + at, rows)


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

    def __init__(self, random: np.random.Generator) -> None:
        self.random = random
        self.names = [f"{n * 997 % 65000 + 300} worker-{n % 9}" for n in range(60)]
        self.values = random.integers(1000, 10**7, (60, 5))
        self.mean_ticks = 60 * np.exp(-np.arange(60) / 8)
        self.recent = self.mean_ticks.copy()

    def top(self) -> dict[str, tuple[int, ...]]:
        random = self.random
        used = random.poisson(self.mean_ticks)
        kernel = random.binomial(used, 0.2)
        self.recent = 0.9 * self.recent + 0.1 * used
        rss_changes = random.integers(-50, 50, 60) * (random.random(60) < 0.1)
        switches = random.poisson(2 + self.mean_ticks)
        self.values += np.stack(
            [used - kernel, kernel, rss_changes, random.poisson(used), switches], 1
        )
        if random.random() < 0.1:
            index = int(random.integers(15, 60))
            self.names[index] = f"{random.integers(300, 65000)} short-{index}"
            self.values[index] = random.integers(0, 300, 5)
            self.recent[index] = 20
        rows = self.values.tolist()
        chosen = np.argsort(-self.recent)[:20].tolist()
        return {self.names[n]: tuple(rows[n]) for n in chosen}
