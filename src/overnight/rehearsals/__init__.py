"""Rehearsals: real incidents, caused on purpose and undone. A module exports REHEARSALS: faults and their truth."""

from __future__ import annotations

import dataclasses
import pathlib
import random
import subprocess
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from overnight.model.truth import Expected, Truth, forbidden
from overnight.model.verdict import VerdictStatus

if TYPE_CHECKING:
    from overnight.model.plan import ArmKind
    from overnight.undo import journal


@dataclasses.dataclass
class Stage:
    """What one rehearsal works with. `core` is the victim's; everything else runs on `spare`."""

    seed: int
    core: int
    spare: int
    home: pathlib.Path
    folder: pathlib.Path  # for files of the fault; removed after the run
    journal: journal.Journal
    chance: random.Random  # seeded: names, rates and timing are drawn from it
    stop: threading.Event
    report: Callable[[str], None] = lambda _: None
    brief: bool = False  # the same fault, with shorter phases
    arm: ArmKind | None = None  # of an investigation; None: of `overnight rehearse`
    interface: str = ""  # the victim's, as in its kernel log line
    queue: int = -1
    # What was drawn from the seed, for the report.
    facts: dict[str, object] = dataclasses.field(default_factory=dict)
    # Threads that end the fault once `stop` is set; the run waits for them.
    ending: list[threading.Thread] = dataclasses.field(default_factory=list)
    # Processes of the fault, and the file with the error output of each.
    fault_processes: list[subprocess.Popen[bytes]] = dataclasses.field(default_factory=list)
    error_files: dict[int, pathlib.Path] = dataclasses.field(default_factory=dict)


class Rehearsal(Protocol):
    """One kind of incident. Every step may raise CannotError; the journal is undone in any case."""

    name: str
    about: str  # one sentence for --list
    needs: tuple[str, ...]  # of "root", "kmsg", "memory-cgroups", "netns", "nspawn", "realtime"
    has_event: bool  # False: no event may occur, and no cause may be claimed

    def prepare(self, stage: Stage) -> None:
        """Do the harmless setup before the baseline: boot a machine, write files."""

    def strike(self, stage: Stage) -> None:
        """Start the fault and return once it is active. It lasts until `stage.stop` is set."""

    def truth(self, stage: Stage) -> Truth:
        """Return the right verdict, with the names drawn from the seed."""


@runtime_checkable
class ArmRehearsal(Rehearsal, Protocol):
    """A rehearsal that an investigation can repeat in its arms: `stage.arm` is cold, hot or fixed."""

    def change(self, stage: Stage, change: str) -> None:
        """Carry out a change of an experiment, such as `mask-unit NAME`, where the fault is."""

    def pause(self) -> None:
        """Let the core recover, after `strike`; what was prepared stays."""

    def resume(self) -> None:
        """Strike again after a pause."""


def starved(stage: Stage, *causes: Expected) -> Truth:
    """Return the truth of a fault that took the victim's core: the causes, the saturated core, the reset."""
    chain: tuple[Expected, ...] = (
        *causes,
        ("cpu.core_saturated", {"core": stage.core}),
        ("net.driver_reset", {"interface": stage.interface, "queue": stage.queue}),
    )
    return Truth(VerdictStatus.CAUSE_FOUND, chain, forbidden(chain))


def starved_by_process(stage: Stage, kind: str) -> Truth:
    """Return the truth where the fault's process, which `stage.facts` names, took the core."""
    return starved(stage, (kind, {"core": stage.core, "process": str(stage.facts["process"])}))
