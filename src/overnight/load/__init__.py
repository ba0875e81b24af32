"""Loads of constant footprint (`workloads`), and state that is put on a host before a recording (`host_state`)."""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from overnight.load import profile, worker
    from overnight.undo import journal


@contextlib.contextmanager
def keep_off(cores: tuple[int, ...]) -> Iterator[None]:
    """Keep this thread, and all processes it starts, off these cores where others are left."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, before - set(cores) or before)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


@dataclasses.dataclass(frozen=True)
class Options:
    """Options of a workload; None means its default. `Workload.takes` lists those it accepts."""

    cores: tuple[int, ...] = ()  # those of `runner.choose_cores`
    name: str = ""  # of the processes; empty: the workload's own
    seed: int = 1
    duty: float | None = None  # share of each core, above 0 to 1
    rate: float | None = None  # bytes or packets a second
    size: int | None = None  # bytes
    trials: int | None = None
    steps: int | None = None
    backend: str | None = None
    orchestrator: str | None = None
    address: str | None = None  # of an existing Ray cluster
    hosts: tuple[str, ...] | None = None  # of that cluster; None: all of them
    profile: profile.Profile | None = None
    veth: bool = False
    stressor: str | None = None


@dataclasses.dataclass(frozen=True)
class Job:
    """One process of a load: the cores it is pinned to, and its settings."""

    name: str
    cores: tuple[int, ...]
    settings: Mapping[str, object] = dataclasses.field(default_factory=dict)
    command: tuple[str, ...] = ()  # a program that replaces the worker
    environment: Mapping[str, str] = dataclasses.field(default_factory=dict)
    netns: str = ""  # path of the network namespace it enters
    files: tuple[int, ...] = ()  # inherited file descriptors; the parent closes its copies
    tree: bool = False  # its children's CPU time and memory count as its own
    wait: float = 0.0  # seconds before it starts: starts are staggered
    # CPU seconds it should have used in all at a monotonic time: for a load that is meant to vary.
    wanted: Callable[[float], float] | None = None


@dataclasses.dataclass(frozen=True)
class Metric:
    """A figure of the footprint, of all jobs together."""

    name: str
    unit: str  # cores, GPUs, B, B/s, /s
    # cpu (CPU seconds per second), resident (bytes), the number of a counter (per second), or of jobs with
    # `Job.wanted`: wanted (CPU seconds per second), error (mean distance of a job from it)
    source: str
    gated: bool = True  # False: reported, but without a limit
    target: float | None = None


class Workload(Protocol):
    name: str
    about: str  # one sentence for --list
    takes: tuple[str, ...]  # names of fields of Options

    def metrics(self, options: Options) -> tuple[Metric, ...]:
        """Return what is measured."""

    def prepare(self, options: Options, journal: journal.Journal) -> tuple[Job, ...]:
        """Return the processes to start; record every other change in the journal first. Raises CannotError."""

    def work(self, link: worker.Link) -> None:
        """Run in the worker process: forever, or until the requested work is done."""
