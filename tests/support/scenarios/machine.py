"""A simulated host: the flight recorder's signals, second by second."""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Callable, Iterator

import numpy as np

from overnight import sources
from overnight.agent import own_processes, signals
from scenarios import nights, work

RX_COLUMN = "NET_RX"
SLEEPS = ord("S")


def _tuples(values: np.ndarray) -> list[list[tuple[int, ...]]]:
    """[second][key] -> one integer a column."""
    return [list(map(tuple, second)) for second in values.tolist()]


class Machine:
    """The signals of a night. `take` loads the next minutes; `second` is the current second."""

    def __init__(self, night: nights.Night) -> None:
        self.night = night
        self.second = 0
        self._begin = 0
        host = night.host
        self._real = {signal.name: signal for signal in signals.discover_signals()}
        self._real["recorder"] = own_processes.signal(pathlib.Path())
        self._names = {
            name: list(signal.columns)
            for name, signal in self._real.items()
            if isinstance(signal, sources.Signal)
        }
        chance = np.random.default_rng((night.seed, 3))
        up = host.uptime_seconds
        self._sums: dict[str, np.ndarray] = {
            "cpu": np.tile(
                (np.array([20, 0, 8, 70, 1, 0, 1, 0, 0, 0]) * up).astype(np.int64), (host.cores, 1)
            ),
            "softirqs": chance.integers(
                1 << 20, 1 << 27, (host.cores, len(self._names["softirqs"]))
            ),
            "softnet": chance.integers(0, 1 << 24, (host.cores, len(self._names["softnet"]))),
            "pressure": chance.integers(0, 1 << 32, (4, 2)),
            "vmstat": chance.integers(0, 1 << 24, (1, len(self._names["vmstat"]))),
            "processes": chance.integers(100, 200_000, (len(night.load.works), 2)),
        }
        self._sums["softnet"][:, 1:] = 0
        self._series: dict[str, list[list[tuple[int, ...]]]] = {}
        self._last_core: list[list[int]] = []
        self._rss = chance.integers(2_000, 2_000_000, len(night.load.works)).tolist()
        self._traffic = chance.integers(1 << 30, 1 << 40, 4)
        self._stat_reads = 0
        self._resources = ["cpu", "memory", "io"] + (["irq"] if host.kernel[0] == "6" else [])

    def signals(self) -> tuple[sources.Signal | sources.FactSignal, ...]:
        """Return the real signals, with polls that read this host."""
        polls: dict[str, Callable[[], object]] = {
            "cpu": lambda: self._row("cpu"),
            "softirqs": lambda: self._row("softirqs"),
            "softnet": lambda: self._row("softnet"),
            "pressure": lambda: dict(
                zip(self._resources, self._now("pressure"), strict=False)  # irq: newer kernels
            ),
            "vmstat": lambda: {"": self._now("vmstat")[0]},
            "processes": self._processes,
            "recorder": lambda: {
                key: row[:2] for key, row in self._processes().items() if key.endswith(" perf")
            },
            "process-states": lambda: {"": (310, 2, 0, 0)},
            "rt-threads": dict,
            "affinity": self._affinity,
            "cpu-throttling": self._throttling,
            "disks": self._disks,
            "frequency": self._frequency,
            "memory": self._memory,
            "load": lambda: {"": (240, 230, 220, 3, 900)},
            "limits": lambda: {"pids": (900, 4194304), "files": (9000, 3_000_000)},
            "clock": lambda: {"": (int(self.night.unsynced), 64, 12, 4000, 30)},
            "memory-cgroups": self._memory_cgroups,
            "memory-cgroup-parents": self._parents,
            "cgroup-births": self._births,
            "cgroup-creators": self._creators,
            "cgroup-supervisors": self._supervisors,
            "units": self._units,
            "unit-restarts": self._restarts,
            "host": self._labels,
            "interfaces": self._interfaces,
            "interrupts": self._interrupts,
            "nic-queues": self._queues,
            "nic-drivers": self._drivers,
            "ethtool": self._ethtool,
            "tx-timeouts": lambda: {
                f"{self.night.host.interface} q{n}": (0,)
                for n in range(len(self.night.host.queue_cores))
            },
        }
        return tuple(
            dataclasses.replace(self._real[name], open=lambda _root, poll=poll: poll)
            for name, poll in polls.items()
            if name not in self.night.absent
        )

    # Counters, each second

    def take(self, chunk: work.Chunk) -> None:
        """Compute the counters of the next minutes."""
        self._begin = chunk.begin
        chance = np.random.default_rng((self.night.seed, 4, chunk.begin))
        count = chunk.end - chunk.begin
        grown = {
            "cpu": self._cpu(chunk, chance),
            "softirqs": self._softirqs(chunk, chance),
            "pressure": self._pressure(count, chance),
            "vmstat": np.zeros((count, 1, len(self._names["vmstat"])), np.int64),
            "processes": chunk.by_work,
        }
        softnet = np.zeros((count, self.night.host.cores, len(self._names["softnet"])), np.int64)
        softnet[:, :, 0] = grown["softirqs"][:, :, self._names["softirqs"].index(RX_COLUMN)] * 3
        grown["softnet"] = softnet
        faults = self._names["vmstat"].index("pgmajfault")
        grown["vmstat"][:, 0, faults] = chance.poisson(2, count)
        grown["vmstat"][:, 0, self._names["vmstat"].index("pgfault")] = chance.poisson(9000, count)
        self._add_rates(grown, chunk, chance)
        for name, growth in grown.items():
            after = self._sums[name] + np.cumsum(growth, axis=0)
            # A poll at the beginning of a second sees what happened before it.
            before = np.concatenate([self._sums[name][None], after[:-1]])
            self._sums[name] = after[-1]
            self._series[name] = _tuples(before)
        self._last_core = chunk.last_core.tolist()

    def _cpu(self, chunk: work.Chunk, chance: np.random.Generator) -> np.ndarray:
        count = chunk.end - chunk.begin
        ticks = np.zeros((count, self.night.host.cores, 10), np.int64)
        for mode, column in ((work.USER, 0), (work.SYSTEM, 2), (work.SOFTIRQ, 6), (work.STOLEN, 7)):
            ticks[:, :, column] = chunk.ticks[:, :, mode]
        rest = np.maximum(0, work.HZ - chunk.ticks.sum(axis=2))
        ticks[:, :, 4] = np.minimum(rest, chance.poisson(0.2, rest.shape))
        ticks[:, :, 3] = rest - ticks[:, :, 4]
        return ticks

    def _softirqs(self, chunk: work.Chunk, chance: np.random.Generator) -> np.ndarray:
        night, names = self.night, self._names["softirqs"]
        count = chunk.end - chunk.begin
        mean = {"TIMER": 150, "SCHED": 60, "RCU": 90, "BLOCK": 2, "NET_TX": 1, "TASKLET": 1}
        rate = np.array([mean.get(name, 0.0) for name in names], float)
        rates = np.tile(rate, (count, night.host.cores, 1))
        receive = names.index(RX_COLUMN)
        for core in night.host.queue_cores:
            wave = 1 + 0.2 * np.sin(np.arange(chunk.begin, chunk.end) / 97.0 + core)
            rates[:, core, receive] += night.receive * wave
        for core in range(night.host.cores):
            for begin, end in night.starved(core):
                for second in range(max(chunk.begin, int(begin)), min(chunk.end, int(end) + 1)):
                    covered = min(end, second + 1) - max(begin, second)
                    rates[second - chunk.begin, core, receive] *= 1 - covered
        return chance.poisson(rates)

    def _pressure(self, count: int, chance: np.random.Generator) -> np.ndarray:
        stalls = np.zeros((count, 4, 2), np.int64)
        for n, mean in enumerate((15_000, 300, 4_000, 900)):
            stalls[:, n, 0] = chance.gamma(2.0, mean / 2, count)
            stalls[:, n, 1] = stalls[:, n, 0] // 4 if n else 0
        return stalls

    def _add_rates(
        self, grown: dict[str, np.ndarray], chunk: work.Chunk, chance: np.random.Generator
    ) -> None:
        for (signal, key, column), spans in self.night.rates.items():
            if signal not in grown:
                continue
            column_index = self._names[signal].index(column)
            row = self._resources.index(key) if signal == "pressure" else int(key or 0)
            for begin, end, rate in spans:
                for second in range(max(chunk.begin, int(begin)), min(chunk.end, int(end) + 1)):
                    covered = min(end, second + 1) - max(begin, second)
                    increase = rate * covered
                    if signal != "pressure":
                        increase = chance.poisson(max(0.0, increase))
                    grown[signal][second - chunk.begin, row, column_index] += int(increase)

    def _now(self, name: str) -> list[tuple[int, ...]]:
        return self._series[name][self.second - self._begin]

    def _row(self, name: str) -> dict[str, tuple[int, ...]]:
        return {str(n): row for n, row in enumerate(self._now(name))}

    def _processes(self) -> dict[str, tuple[int, ...]]:
        cores = self._last_core[max(0, self.second - self._begin - 1)]
        rows: dict[str, tuple[int, ...]] = {}
        for n, ((utime, stime), program) in enumerate(
            zip(self._now("processes"), self.night.load.works, strict=True)
        ):
            if not program.task.pid or program.task.launcher:
                continue
            row = rows.get(program.task.key)
            values = {
                "utime": utime + (row[0] if row else 0),
                "stime": stime + (row[1] if row else 0),
                "rss": self._rss[n],
                "core": cores[n] if not row or self._busy(n) else row[3],
                "state": SLEEPS,
                "rt_priority": program.task.rt,
                "policy": 1 if program.task.rt else 0,
            }
            rows[program.task.key] = tuple(values.get(name, 0) for name in self._names["processes"])
        return rows

    def _busy(self, n: int) -> bool:
        program = self.night.load.works[n]
        return any(
            episode.work is program and episode.begin < self.second <= episode.end + 1
            for episode in self.night.load.episodes
        )

    # Signals that are polled less often

    def _since(self, signal: str, key: str, column: str) -> int:
        return sum(n for when, n in self.night.steps[signal, key, column] if when <= self.second)

    def _with_steps(self, signal: str, key: str, **values: int) -> tuple[int, ...]:
        return tuple(
            values.get(name, 0) + self._since(signal, key, name) for name in self._names[signal]
        )

    def _affinity(self) -> dict[str, tuple[int, ...]]:
        """A real-time task is bound to its core, the others may run anywhere."""
        rows = {}
        for episode in self.night.load.episodes:
            task = episode.work.task
            if task.pid and episode.share >= 0.5 and episode.begin < self.second <= episode.end + 1:
                rows[task.key] = (1, episode.core) if task.rt else (self.night.host.cores, 0)
        return rows

    def _throttling(self) -> dict[str, tuple[int, ...]]:
        pod = "/kubepods/burstable/pod7f"
        return {pod: self._with_steps("cpu-throttling", pod, periods=10 * self.second)}

    def _disks(self) -> dict[str, tuple[int, ...]]:
        counts = {"reads": 40, "read_ms": 24, "writes": 90, "write_ms": 80, "busy_ms": 30}
        totals = {name: rate * self.second for name, rate in counts.items()}
        return {"nvme0n1": self._with_steps("disks", "nvme0n1", **totals)}

    def _frequency(self) -> dict[str, tuple[int, ...]]:
        return {
            str(core): self._with_steps("frequency", str(core), mhz=2900, power_limits=-1)
            for core in range(self.night.host.cores)
        }

    def _memory(self) -> dict[str, tuple[int, ...]]:
        zombies = self._dying()
        values = {
            "total": 64_000_000,
            "free": 20_000_000 - 40 * zombies // 10,
            "available": 40_000_000,
            "cached": 18_000_000,
            "anonymous": 20_000_000,
            "slab": 1_200_000 + 30 * zombies,
            "percpu": 60_000 + 45 * zombies,
            "dirty": 9_000,
        }
        return {"": tuple(values.get(name, 0) for name in self._names["memory"])}

    def _dying(self) -> int:
        return int(self.night.dying + self.night.dying_per_hour * self.second / 3600)

    def _memory_cgroups(self) -> dict[str, tuple[int, ...]]:
        dying, in_use = self._dying(), self.night.in_use
        # No sooner than 10 minutes after the last read, an hour where that was slow.
        self._stat_reads = 1 + self.second // (3600 if self.night.zombie_us * dying > 1e5 else 600)
        took = round(180 + self.night.zombie_us * dying)
        return {"": (in_use + dying, in_use, dying, took, self._stat_reads)}

    def _parents(self) -> dict[str, tuple[int, ...]]:
        dying = self._dying()
        parent = self.night.zombie_parent
        if not parent:
            return {"/system.slice": (dying, dying // 2, dying, 60)}
        sure = dying if self.night.host.cgroups == "v2" else dying * 6 // 10
        below_parent = dying * 98 // 100
        rest = (dying - below_parent, 0 if sure < dying else dying - below_parent, dying, 60)
        return {"/system.slice": rest, parent: (below_parent, min(below_parent, sure), dying, 1)}

    def _births(self) -> dict[str, tuple[int, ...]]:
        rows: dict[str, list[int]] = {}
        for births in self.night.births:
            born = int(self.second / births.every)
            died = int(max(0.0, self.second - births.lived) / births.every)
            key = births.creator.key if births.creator else births.parent
            row = rows.setdefault(key, [0, 0, 0, 0])
            row[0] += born
            row[1] += died
            row[2] += died if births.lived < 60 else 0
            row[3] += round(died * births.lived * 1000)
        return {parent: tuple(row) for parent, row in rows.items() if row[0]}

    def _creators(self) -> dict[str, dict[str, str | int]]:
        return {
            births.creator.key: {"cgroup": births.parent, **births.creator.fact}
            for births in self.night.births
            if births.creator and self.second >= 2 * births.every
        }

    def _supervisors(self) -> dict[str, tuple[int, ...]]:
        rows = {}
        for births in self.night.births:
            count = int(self.second / births.every)
            if births.creator and count >= 2:
                for unit, (share, usual) in births.creator.supervisors.items():
                    coincided = round(share * count)
                    acted = coincided + round(usual * (self.second - count))
                    led = round(coincided / 5)
                    rows[f"{births.creator.key} {unit}"] = (
                        count,
                        coincided,
                        self.second,
                        acted,
                        led,
                        0,
                    )
        return rows

    def _loops(self) -> dict[str, nights.Births]:
        return {births.unit: births for births in self.night.births if births.unit}

    def _units(self) -> dict[str, dict[str, str | int]]:
        loops = self._loops()
        booted = self.night.begin_us // 1_000_000 - int(self.night.host.uptime_seconds)
        rows: dict[str, dict[str, str | int]] = {}
        for name, properties in self.night.units.items():
            loop = loops.get(name)
            since = booted + 40
            if loop is not None:
                since = int(self.night.begin_us / 1e6 + self.second // loop.every * loop.every)
            rows[name] = {
                "active": "active",
                "sub": "running",
                "result": "exit-code" if loop else "success",
                "file": "enabled",
                "preset": "enabled",
                "restart": "always" if loop else "on-failure",
                "since": since,
                **properties,
            }
        return rows

    def _restarts(self) -> dict[str, tuple[int, ...]]:
        loops = self._loops()
        return {
            name: (
                loops[name].before + int(self.second / loops[name].every) if name in loops else 0,
                int(fact["since"]),
            )
            for name, fact in self._units().items()
            if fact["restart"] != "no"
        }

    def _labels(self) -> dict[str, dict[str, str | int]]:
        host = self.night.host
        return {
            "": {
                "boot": host.boot,
                "booted_at": self.night.begin_us // 1_000_000 - int(host.uptime_seconds),
                "kernel": host.kernel,
                "cgroups": host.cgroups,
                "memory_controller": host.cgroups,
                "image": host.image,
                "zone": host.zone,
                "instance_type": host.instance_type,
                "name": host.name,
                "cores": host.cores,
                "memory_kb": 64_000_000,
            },
            host.interface: {"driver": "ena", "speed_mbit": -1},
        }

    def _interfaces(self) -> dict[str, tuple[int, ...]]:
        rx, rx_packets, tx, tx_packets = (int(v) for v in self._traffic + self.second * 1_000_000)
        return {
            self.night.host.interface: (2, rx, rx_packets, 0, 0, tx, tx_packets, 0, 0),
            "lo": (0, 5000, 50, 0, 0, 5000, 50, 0, 0),
        }

    def _irqs(self) -> Iterator[tuple[str, int, int, int]]:
        host = self.night.host
        for queue, core in enumerate(host.queue_cores):
            yield f"{host.interface} q{queue}", 40 + queue, queue, core

    def _interrupts(self) -> dict[str, tuple[int, ...]]:
        rate = round(self.night.receive / 3)
        return {
            key: (irq, 1_000_000 + rate * self.second, core, rate * 10)
            for key, irq, _, core in self._irqs()
        }

    def _queues(self) -> dict[str, dict[str, str | int | bool]]:
        host = self.night.host
        return {
            key: {
                "irq": irq,
                "interface": host.interface,
                "queue": queue,
                "way": "",
                "name": f"{host.interface}-Tx-Rx-{queue}",
                "cores": str(core),
                "core": core,
                **({"threaded": True} if host.threaded else {}),
            }
            for key, irq, queue, core in self._irqs()
        }

    def _drivers(self) -> dict[str, dict[str, str]]:
        host = self.night.host
        return {
            host.interface: {
                "driver": "ena", "version": host.driver, "firmware": "", "bus": host.bus,
            }
        }  # fmt: skip

    def _ethtool(self) -> dict[str, tuple[int, ...]]:
        interface = self.night.host.interface
        return {
            f"{interface} {name}": (self._since("ethtool", interface, name),)
            for name in (
                "total_resets", "reset_fail", "tx_timeout", "suspected_poll_starvation",
                "missing_tx_cmpl", "wd_expired", "admin_to", "device_request_reset",
                "bw_in_allowance_exceeded", "pps_allowance_exceeded",
            )
        }  # fmt: skip
