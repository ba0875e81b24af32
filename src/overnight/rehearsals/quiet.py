"""Nothing happens: the victim works, and nobody takes its core. No cause may be found."""

from __future__ import annotations

from typing import TYPE_CHECKING

from overnight.model.truth import CAUSES, NONE, Truth

if TYPE_CHECKING:
    from overnight import rehearsals

__all__ = ["REHEARSALS", "Quiet"]


class Quiet:
    """A `Rehearsal` without a fault."""

    name = "quiet"
    about = "Nothing strikes: no event may be seen, and no cause be claimed."
    needs = ("root", "kmsg", "netns")
    has_event = False

    def prepare(self, stage: rehearsals.Stage) -> None:
        """Nothing."""

    def strike(self, stage: rehearsals.Stage) -> None:
        """Nothing."""

    def truth(self, stage: rehearsals.Stage) -> Truth:
        """No cause."""
        del stage
        return Truth(NONE, (), CAUSES)


REHEARSALS = (Quiet(),)
