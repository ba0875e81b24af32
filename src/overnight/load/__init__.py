"""Constant-footprint load, and state that is put on hosts before a recording.

A module of `workloads` names its workload in WORKLOAD: which processes it needs, what each of them does,
and which of its figures have to stay the same. `runner` starts, measures and ends them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from overnight.load import worker
    from overnight.undo import journal

__all__ = ["Job", "Metric", "Options", "Workload"]


@dataclasses.dataclass(frozen=True)
class Options:
    """What is asked of a workload; None: its own default. Which of them it takes, it says in `takes`."""

    cores: tuple[int, ...]
    name: str = ""  # of the processes; the workload's own where empty
    seed: int = 1
    duty: float | None = None  # share of each core, above 0 to 1
    rate: float | None = None  # bytes or packets a second
    size: int | None = None  # bytes
    trials: int | None = None
    steps: int | None = None
    backend: str | None = None
    orchestrator: str | None = None
    veth: bool = False
    stressor: str | None = None


@dataclasses.dataclass(frozen=True)
class Job:
    """One process of a load: where it is pinned, and what it is told."""

    name: str
    cores: tuple[int, ...]
    told: Mapping[str, object] = dataclasses.field(default_factory=dict)
    command: tuple[str, ...] = ()  # another program, which is run in the worker's place
    environment: Mapping[str, str] = dataclasses.field(default_factory=dict)
    netns: str = ""  # the path of a network namespace that it enters
    files: tuple[int, ...] = ()  # open files it inherits; closed here once it runs
    tree: bool = False  # its children's CPU time and memory count as its own
    wait: float = 0.0  # seconds after the others: starts are staggered


@dataclasses.dataclass(frozen=True)
class Metric:
    """A figure of the footprint, of all jobs together.

    `source` is `cpu` (seconds of CPU a second), `resident` (bytes), or a counter's number, by the second.
    """

    name: str
    unit: str  # cores, B, B/s, /s
    source: str
    gated: bool = True  # whether the gate looks at it; else it is told
    target: float | None = None  # what was asked for


class Workload(Protocol):
    """One kind of load."""

    name: str
    about: str  # one sentence for --list
    takes: tuple[str, ...]  # of the fields of Options

    def metrics(self, options: Options) -> tuple[Metric, ...]:
        """What is measured of it."""

    def prepare(self, options: Options, book: journal.Journal) -> tuple[Job, ...]:
        """The processes; what else it changes is written to the ledger before. Raises CannotError."""

    def work(self, link: worker.Link) -> None:
        """In the worker's process: for ever, or until what was asked for is done."""
