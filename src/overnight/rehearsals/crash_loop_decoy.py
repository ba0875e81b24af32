"""A crash loop that does no harm, beside a process that takes the victim's core.

The loop is the first thing that anybody sees, and it is innocent: it leaks nothing, and hardly runs.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from overnight import rehearsals
from overnight.hosts import machines
from overnight.rehearsals import acting, names

if TYPE_CHECKING:
    from overnight.model import truth

__all__ = ["REHEARSALS", "CrashLoopDecoy", "main"]


class CrashLoopDecoy:
    """A `Rehearsal`."""

    name = "crash-loop-decoy"
    about = "A harmless crash loop goes on beside processes that fill the victim's core."
    needs = ("root", "kmsg", "netns", "nspawn")
    has_event = True

    def prepare(self, stage: rehearsals.Stage) -> None:
        """Boot the machine in which a unit is restarted about twice a second."""
        chance = stage.chance
        loop, hog = names.draw(chance, 2)
        stage.facts.update(
            loop=f"{loop}.service",
            pause_ms=chance.randint(350, 600),
            process=hog,
            processes=chance.choice((3, 4)),
            machine=stage.ledger.run,
        )
        stage.say(f"booting a machine in which {loop}.service crashes twice a second")
        service = f"Restart=always\nRestartSec={stage.facts['pause_ms']}ms"
        machines.boot(
            stage.ledger,
            {str(stage.facts["loop"]): machines.unit("exit 3", service=service)},
            cores=(stage.spare,),
            name=stage.ledger.run,
        )

    def strike(self, stage: rehearsals.Stage) -> None:
        """Several processes of one name compute on the victim's core."""
        hogs = [
            acting.start(
                stage,
                "overnight.rehearsals.crash_loop_decoy",
                name=str(stage.facts["process"]),
                core=stage.core,
                seconds=120,
            )
            for _ in range(int(str(stage.facts["processes"])))
        ]
        acting.ends_with_fault(stage, *hogs)

    def truth(self, stage: rehearsals.Stage) -> truth.Truth:
        """Who fills the core; neither a loop nor zombies."""
        process = str(stage.facts["process"])
        return rehearsals.starved(stage, ("cpu.culprit", {"core": stage.core, "process": process}))


def main() -> None:
    """The process: computes without end."""
    acting.begin()
    block = bytes(64 << 10)
    while True:
        hashlib.sha256(block).digest()


REHEARSALS = (CrashLoopDecoy(),)

if __name__ == "__main__":
    main()
