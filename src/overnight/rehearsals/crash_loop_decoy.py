"""A harmless crash loop, the most visible symptom, beside a process that takes the victim's core."""

from __future__ import annotations

from typing import TYPE_CHECKING

from overnight.machines import nspawn
from overnight.rehearsals import random_names, rt_hog

if TYPE_CHECKING:
    from overnight import rehearsals


class CrashLoopDecoy(rt_hog.RealTimeHog):
    """The real-time hog, with a machine beside it."""

    name = "crash-loop-decoy"
    about = "A harmless crash loop runs beside a process that takes the victim's core."
    needs = ("root", "kmsg", "netns", "nspawn", "realtime")

    def prepare(self, stage: rehearsals.Stage) -> None:
        """Boot a machine in which a unit restarts about twice a second."""
        super().prepare(stage)
        (word,) = random_names.draw(stage.chance, 1)
        loop, pause_ms = f"{word}.service", stage.chance.randint(350, 600)
        stage.facts.update(loop=loop, pause_ms=pause_ms, machine=stage.journal.run)
        stage.report(f"booting a machine in which {loop} crashes twice a second")
        unit = nspawn.unit("exit 3", service=f"Restart=always\nRestartSec={pause_ms}ms")
        nspawn.boot(stage.journal, {loop: unit}, cores=(stage.spare,), name=stage.journal.run)


REHEARSALS = (CrashLoopDecoy(),)
