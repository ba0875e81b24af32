"""Real incidents, made on purpose and undone: one module each, with the fault and the truth.

A module names its rehearsals in REHEARSALS. What a rehearsal may use is its stage: cores, names and rates
that the seed chose, the ledger in which every change is written before it is made, and the victim.
"""

from __future__ import annotations

import dataclasses
import pathlib
import random
import subprocess
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from overnight.model.truth import FOUND, Expected, Truth, forbidden

if TYPE_CHECKING:
    from overnight.undo import journal

__all__ = ["Rehearsal", "Stage", "starved"]


@dataclasses.dataclass
class Stage:
    """Where one rehearsal happens. `core` is the victim's; `spare` is where everything else belongs.

    `brief` asks for the short form: the same fault, with less of everything that only takes time.
    """

    seed: int
    core: int
    spare: int
    home: pathlib.Path
    folder: pathlib.Path  # for files of the fault; removed with the run
    journal: journal.Journal
    chance: random.Random  # of the seed: names, rates and timing are drawn from it
    stop: threading.Event
    say: Callable[[str], None] = lambda _: None
    brief: bool = False
    interface: str = ""  # of the victim, as its line in the kernel log names it
    queue: int = -1
    facts: dict[str, object] = dataclasses.field(
        default_factory=dict
    )  # what the seed chose, for the report
    # What ends the fault once `stop` is set; the run waits for these before it goes on.
    ending: list[threading.Thread] = dataclasses.field(default_factory=list)
    # Processes without which there is no fault, and where each says what it dies of.
    playing: list[subprocess.Popen[bytes]] = dataclasses.field(default_factory=list)
    said: dict[int, pathlib.Path] = dataclasses.field(default_factory=dict)


class Rehearsal(Protocol):
    """One kind of incident. Every step may raise CannotError; the ledger is undone whatever happens."""

    name: str
    about: str  # one sentence for --list
    needs: tuple[str, ...]  # of "root", "kmsg", "memory-cgroups", "netns", "nspawn", "realtime"
    has_event: bool  # False: nothing must happen, and nothing may be found

    def prepare(self, stage: Stage) -> None:
        """What takes time and is no trouble yet: boot a machine, write files. Before the baseline."""

    def strike(self, stage: Stage) -> None:
        """Begin the fault; returns when it is under way. It goes on until `stage.stop` is set."""

    def truth(self, stage: Stage) -> Truth:
        """What a right verdict says, with the names that the seed chose."""


def starved(stage: Stage, *causes: Expected) -> Truth:
    """The truth of a fault that took the victim's core: these causes, the full core, the reset."""
    chain: tuple[Expected, ...] = (
        *causes,
        ("cpu.core_saturated", {"core": stage.core}),
        ("net.driver_reset", {"interface": stage.interface, "queue": stage.queue}),
    )
    return Truth(FOUND, chain, forbidden(chain))
