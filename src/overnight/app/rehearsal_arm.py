"""The incident of one arm of an investigation, as a process: prepare the fault, strike, undo.

    python -m overnight.app.rehearsal_arm HOME NAME ARM SEED [CHANGE …]

It creates HOME/rehearsal.ready once the fault is prepared, and ends with SIGTERM or with the process that started it.
Nothing records here: the recorder of the arm does. The fault is on the first core, which loads leave free.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import pathlib
import random
import subprocess
import sys
import threading
import time
from collections.abc import Sequence

from overnight import errors, load, rehearsals
from overnight.app import rehearsal, rehearsal_host
from overnight.model import stop_signals
from overnight.model.plan import ArmKind, RehearsalPlan
from overnight.rehearsals import processes
from overnight.rehearsals import victim as victims
from overnight.store import loads
from overnight.undo import journal

READY, LOG = "rehearsal.ready", "rehearsal.log"
END_SECONDS = 60.0
POLL_SECONDS = 0.5
BASELINE_SECONDS = 8.0  # without the fault
# Each strike is a separate event: resets less than 10 s apart are folded into one, and a strike takes one to three
# seconds to starve the queue. The driver of the victim resets sooner than after the usual 5 s, while the core is
# still saturated.
LATE_MS = 1500
STRIKE_SECONDS, PERIOD_SECONDS = 6.8, 12.5
# Of the victim's core. Less than in `overnight rehearse`: in the arms without the fault it must survive neighbours.
SHARE = 0.4


def find(name: str) -> rehearsals.ArmRehearsal:
    """Return a rehearsal that can be repeated in arms."""
    found = rehearsal.find(name)
    if not isinstance(found, rehearsals.ArmRehearsal):
        known = [each.name for each in rehearsal.discover() if isinstance(each, rehearsals.ArmRehearsal)]  # fmt: skip
        raise errors.UsageError(
            f"rehearsal {name} has no arms",
            why=f"rehearsals with arms: {', '.join(known)}",
            todo=f"rehearsal: {{name: {known[0]}}}",
        )
    return found


def check(name: str) -> None:
    """Raise CannotError if this host lacks something for it."""
    rehearsal_host.check_needs((*find(name).needs, "nspawn"))


class Process:
    """The process of the arm that is prepared or observed now."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    def begin(
        self, home: pathlib.Path, plan: RehearsalPlan, arm: ArmKind, changes: Sequence[str]
    ) -> bool:
        """Start it unless it runs; return whether the fault is prepared. Raise CannotError where it has ended."""
        ready, log = home / READY, home / LOG
        if self._process is None:
            ready.unlink(missing_ok=True)
            words = (str(home), plan.name, arm, str(plan.seed), *changes)
            command = (sys.executable, "-m", "overnight.app.rehearsal_arm", *words)
            with log.open("wb") as output:
                self._process = subprocess.Popen(
                    command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, process_group=0
                )
        elif (code := self._process.poll()) is not None:
            self._process = None
            lines = log.read_text(errors="replace").strip().splitlines() or [f"exit code {code}"]
            raise errors.CannotError(
                f"rehearsal {plan.name} ended in arm {arm}",
                why=lines[-1],
                todo="see whether this host is too busy: `overnight doctor`",
            )
        return ready.exists()

    def end(self) -> None:
        """End it, and wait until everything is undone."""
        if self._process is not None:
            self._process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(END_SECONDS)
        self._process = None


class _Incident:
    def __init__(self, home: pathlib.Path, name: str, arm: ArmKind, seed: int) -> None:
        self._rehearsal = find(name)
        cores = os.sched_getaffinity(0)
        drawn = rehearsal_host.draw(name, seed, cores, brief=True, core=min(cores))
        self._journal = journal.Journal(f"rehearse {name} in arm {arm}")
        self._core = drawn.core
        self.stage = rehearsals.Stage(
            seed=seed,
            core=drawn.core,
            spare=drawn.spare,
            home=home,
            folder=home / self._journal.run,
            journal=self._journal,
            chance=random.Random(f"{name} {seed}"),  # noqa: S311 - no secret
            stop=threading.Event(),
            brief=True,
            arm=arm,
            interface=drawn.victim.interface,
            queue=drawn.victim.queue,
        )
        self._victim = victims.Victim(
            self.stage, dataclasses.replace(drawn.victim, share=SHARE, late_ms=LATE_MS)
        )
        self._parent = os.getppid()

    def play(self, changes: list[str]) -> None:
        """Prepare, change, and strike until this process is to end."""
        with self._journal, load.keep_off((self._core,)):
            self._journal.write("folder", self.stage.folder)
            self.stage.folder.mkdir(parents=True)
            try:
                self._rehearsal.prepare(self.stage)
                for change in changes:
                    self._rehearsal.change(self.stage, change)
                self._victim.start()
                (self.stage.home / READY).touch()
                with loads.note_victim(self.stage.home, self._core, self._victim.pids):
                    if self._wait(time.monotonic() + BASELINE_SECONDS):
                        self._strike()
            finally:
                self.stage.stop.set()
                for thread in self.stage.ending:
                    thread.join(rehearsal.END_SECONDS)
                self._victim.stop()

    def _strike(self) -> None:
        """Strike again and again until the arm ends."""
        begin = time.monotonic()
        self._rehearsal.strike(self.stage)
        while self._wait(begin + STRIKE_SECONDS):
            self._rehearsal.pause()
            begin += PERIOD_SECONDS
            if not self._wait(begin):
                return
            self._rehearsal.resume()

    def _wait(self, until: float) -> bool:
        """Wait, and watch fault and victim; return False once the parent is gone."""
        while time.monotonic() < until:
            time.sleep(POLL_SECONDS)
            if os.getppid() != self._parent:
                return False
            processes.check(self.stage)
            self._victim.check()
        return True


def main() -> None:
    home, name, arm, seed, *changes = sys.argv[1:]
    with (
        contextlib.suppress(KeyboardInterrupt),
        stop_signals.interrupt_on_signals(),
        rehearsal_host.alone(),
    ):
        _Incident(pathlib.Path(home), name, ArmKind(arm), int(seed)).play(changes)


if __name__ == "__main__":
    main()
