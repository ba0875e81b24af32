"""A night of 96 cores, generated from a seed and written through the real writer, 2 minutes at a time.

Training ranks are pinned to cores, data workers and system services come and go in runs, with idle
time between; at 05:47 core 39 is in the kernel for six seconds under kubelet, in `mem_cgroup_iter`.
"""

from __future__ import annotations

import dataclasses
import datetime
import json
import os
import pathlib
import shutil
import time
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from benchmarks.support import programs
from overnight.model.event import Event
from overnight.model.selection import Window
from overnight.store import capture, hours, segments, writer

__all__ = ["HOST", "Night", "make_night"]

SEED = 20261115
VERSION = 1  # of the generator: another version generates the night again
HOST = "night-96"
CORES = 96
FREQUENCY = 97
SEGMENT_SECONDS = 120
TICKS = FREQUENCY * SEGMENT_SECONDS
SECOND_NS = 1_000_000_000
MORNING = int(datetime.datetime(2026, 11, 15, 8, tzinfo=datetime.UTC).timestamp())
INCIDENT_CORE = 39
INCIDENT_SECONDS = 6
FULL_HOURS = 12.0
FREE_BYTES = 8 << 30
TRAINING = 8  # processes of ten pinned threads
FLOATING = {  # processes of each other program
    "pt_data_worker": 16, "kubelet": 1, "containerd": 1, "containerd-shim": 8, "cilium-agent": 1,
    "node_exporter": 1, "fluent-bit": 1, "systemd-journal": 1, "amazon-ssm-agen": 1, "bash": 4,
    "kworker": 12, "ksoftirqd": 4, "swapper": 1,
}  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Night:
    """The location, length and incident of a night."""

    home: pathlib.Path
    window: Window
    incident: Event
    notes: tuple[str, ...]

    @property
    def hours(self) -> float:
        return self.window.seconds / 3600

    @property
    def samples(self) -> int:
        """The number of samples, including those of idle cores."""
        return round(self.window.seconds) * CORES * FREQUENCY


def make_night(report: Callable[[str], None] = lambda _: None) -> Night:
    """Generate the night in OVERNIGHT_BENCH_HOME or out/night; existing segments are kept.

    OVERNIGHT_BENCH_HOURS makes it shorter, and so does a disk with less than 8 GB free.
    """
    home = pathlib.Path(
        os.environ.get("OVERNIGHT_BENCH_HOME", pathlib.Path(__file__).parents[2] / "out/night")
    )
    home.mkdir(parents=True, exist_ok=True)
    hours = float(os.environ.get("OVERNIGHT_BENCH_HOURS", "0"))
    notes = ()
    if not hours:
        hours = FULL_HOURS
        used_bytes = sum(f.stat().st_size for f in home.rglob("*") if f.is_file())
        free = shutil.disk_usage(home).free + used_bytes
        if free < FREE_BYTES:
            hours = max(0.2, FULL_HOURS * free / FREE_BYTES / 2)
            notes = (f"only {free / 1e9:.1f} GB free: {hours:.1f} h instead of {FULL_HOURS:g}",)
    count = max(3, round(hours * 3600 / SEGMENT_SECONDS))
    begin = MORNING - count * SEGMENT_SECONDS
    # 05:47 if the night includes it, else the middle.
    at = MORNING - 7980 if count * SEGMENT_SECONDS > 9000 else begin + count * SEGMENT_SECONDS // 2
    night = Night(
        home,
        Window(begin * 1_000_000, MORNING * 1_000_000),
        Event(
            at * 1_000_000,
            "net.driver_reset",
            "eth1: driver reset",
            HOST,
            INCIDENT_CORE,
            "critical",
        ),
        notes,
    )
    _fill(night, count, report)
    return night


def _fill(night: Night, count: int, report: Callable[[str], None]) -> None:
    _delete_other_versions(night.home)
    stored = {segment.begin_us for segment in segments.Catalogue(night.home).segments(HOST)}
    begins = [night.window.begin_us + i * SEGMENT_SECONDS * 1_000_000 for i in range(count)]
    missing = [begin for begin in begins if begin not in stored]
    if not missing:
        for segment in segments.Catalogue(night.home).segments(HOST):
            hours.write_past(segment)
        return
    generator = Generator(night.incident.time_us * 1000)
    began, cpu = time.monotonic(), time.process_time()
    for i, begin in enumerate(missing):
        writer.write_capture(night.home, generator.make(begin * 1000), source="synthetic")
        if i % 20 == 19:
            each = (time.process_time() - cpu) / (i + 1)
            left = (time.monotonic() - began) / (i + 1) * (len(missing) - i - 1)
            report(
                f"night: {i + 1} of {len(missing)} segments, {each:.1f} CPU s each, {left:.0f} s left"
            )


def _delete_other_versions(home: pathlib.Path) -> None:
    """Delete segments of another version of the generator."""
    marker = home / "generator.json"
    version = {"version": VERSION, "seed": SEED}
    if not marker.is_file() or json.loads(marker.read_text()) != version:
        shutil.rmtree(segments.host_folder(home, HOST), ignore_errors=True)
        marker.write_text(json.dumps(version))


class Generator:
    """Generates segments, each from its own number: it does not depend on the others."""

    def __init__(self, incident_ns: int) -> None:
        self.incident_ns = incident_ns
        self.pool = programs.make_pool(SEED)
        names = [program.name for program in programs.PROGRAMS]
        rows = [(1000 + 50 * p, 1000 + 50 * p + t, 0, f"pt_main_{t}", "kubepods-train.slice")
                for p in range(TRAINING) for t in range(10)]  # fmt: skip
        self.pinned = len(rows)
        for name, processes in FLOATING.items():
            for _ in range(processes):
                pid = 0 if name == "swapper" else 3000 + 10 * len(rows)
                unit = "" if name in ("swapper", "kworker", "ksoftirqd") else f"{name}.service"
                rows.append((pid, pid, names.index(name), name, unit))
        self.program = np.array([row[2] for row in rows])
        self.idle_task = len(rows) - 1
        self.kubelet = next(i for i, row in enumerate(rows) if names[row[2]] == "kubelet")
        self.tasks = capture.Tasks(
            np.array([row[0] for row in rows], np.int32),
            np.array([row[1] for row in rows], np.int32),
            [row[3] for row in rows],
            [names[row[2]] for row in rows],
            [row[4] for row in rows],
        )

    def make(self, begin_ns: int) -> capture.Capture:
        """Generate the two minutes from `begin_ns` on."""
        number = begin_ns // (SEGMENT_SECONDS * SECOND_NS)
        rng = np.random.default_rng([SEED, number])
        time_ns = self._times(rng, begin_ns)
        task = self._choose_tasks(rng)
        stack = self._choose_stacks(rng, task, number)
        hit = (
            (time_ns >= self.incident_ns)
            & (time_ns < self.incident_ns + INCIDENT_SECONDS * SECOND_NS)
            & (np.arange(CORES) == INCIDENT_CORE)
        )
        task[hit], stack[hit] = self.kubelet, self.pool.incident
        order = np.argsort(time_ns, axis=None, kind="stable")
        cpu = np.broadcast_to(np.arange(CORES, dtype=np.int32), (TICKS, CORES)).ravel()
        n = len(order)
        return capture.Capture(
            host=HOST,
            begin=begin_ns,
            end=begin_ns + SEGMENT_SECONDS * SECOND_NS,
            frequency=FREQUENCY,
            cores=tuple(range(CORES)),
            events=("cpu-clock",),
            time=time_ns.ravel()[order],
            cpu=cpu[order],
            task=task.ravel()[order].astype(np.uint32),
            stack=stack.ravel()[order].astype(np.uint32),
            event=np.zeros(n, np.uint8),
            count=np.ones(n, np.uint32),
            period=np.full(n, SECOND_NS // FREQUENCY, np.uint64),
            tasks=self.tasks,
            stacks=self.pool.stacks,
            frames=self.pool.frames,
        )

    def _times(self, rng: np.random.Generator, begin_ns: int) -> npt.NDArray[np.int64]:
        """Return sample times: each core has its own phase and some jitter."""
        period = SECOND_NS / FREQUENCY
        ticks = np.arange(TICKS)[:, None] * period + rng.random(CORES) * (period - 400_000)
        late = rng.exponential(25_000, (TICKS, CORES)).clip(0, 390_000)
        times: npt.NDArray[np.int64] = begin_ns + (ticks + late).astype(np.int64)
        return times

    def _choose_tasks(self, rng: np.random.Generator) -> npt.NDArray[np.int64]:
        """Choose runs of one task on a core, 40 ticks long on average."""
        change = rng.random((TICKS, CORES)) < 1 / 40
        change[0] = True
        run = np.cumsum(change.T.ravel()) - 1  # core by core
        runs = int(run[-1]) + 1
        core = np.repeat(np.arange(CORES), change.sum(axis=0))
        kind = rng.random(runs)
        floating = self.pinned + ((self.idle_task - self.pinned) ** rng.random(runs) - 1).astype(
            np.int64
        )
        own = np.where(core < self.pinned, core, floating)
        task = np.where(kind < 0.72, own, np.where(kind < 0.88, self.idle_task, floating))
        return task[run].reshape(CORES, TICKS).T.copy()

    def _choose_stacks(
        self, rng: np.random.Generator, task: npt.NDArray[np.int64], number: int
    ) -> npt.NDArray[np.int64]:
        """Choose stacks by Zipf's law: the hot ones all night, a third of the rare ones at a time."""
        program = self.program[task]
        first, after = self.pool.first[:-1], self.pool.first[1:]
        size = after - first
        third = np.maximum(1, size // 3)
        rank = (third[program] ** rng.random(task.shape) - 1).astype(np.int64)
        shift = (number * 997) % np.maximum(1, size - programs.HOT)
        moved = programs.HOT + (rank - programs.HOT + shift[program]) % (
            size[program] - programs.HOT
        )
        stack = first[program] + np.where(rank < programs.HOT, rank, moved)
        # An idle core is halted most of the time; else it handles an interrupt.
        rests = (task == self.idle_task) & (rng.random(task.shape) < 0.97)
        stack[rests] = self.pool.halted
        result: npt.NDArray[np.int64] = stack
        return result
