"""A crash loop that does no harm, beside a process that takes the victim's core.

The loop is the first thing that anybody sees, and it is innocent: it leaks nothing, and hardly runs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from overnight.machines import nspawn
from overnight.rehearsals import random_names, rt_hog

if TYPE_CHECKING:
    from overnight import rehearsals
    from overnight.model.truth import Truth

__all__ = ["REHEARSALS", "CrashLoopDecoy"]


class CrashLoopDecoy:
    """A `Rehearsal`: that of the real-time hog, with a machine beside it."""

    name = "crash-loop-decoy"
    about = "A harmless crash loop goes on beside a process that takes the victim's core."
    needs = ("root", "kmsg", "netns", "nspawn", "realtime")
    has_event = True

    def __init__(self) -> None:
        self._culprit = rt_hog.RealTimeHog()

    def prepare(self, stage: rehearsals.Stage) -> None:
        """Boot the machine in which a unit is restarted about twice a second."""
        self._culprit.prepare(stage)
        (word,) = random_names.draw(stage.chance, 1)
        loop, pause_ms = f"{word}.service", stage.chance.randint(350, 600)
        stage.facts.update(loop=loop, pause_ms=pause_ms, machine=stage.journal.run)
        stage.say(f"booting a machine in which {loop} crashes twice a second")
        service = f"Restart=always\nRestartSec={pause_ms}ms"
        nspawn.boot(
            stage.journal,
            {loop: nspawn.unit("exit 3", service=service)},
            cores=(stage.spare,),
            name=stage.journal.run,
        )

    def strike(self, stage: rehearsals.Stage) -> None:
        """Who takes the core has nothing to do with the loop."""
        self._culprit.strike(stage)

    def truth(self, stage: rehearsals.Stage) -> Truth:
        """Who takes the core; neither a loop nor zombies."""
        return self._culprit.truth(stage)


REHEARSALS = (CrashLoopDecoy(),)
