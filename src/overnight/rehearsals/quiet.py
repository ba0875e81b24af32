"""No fault: the victim works undisturbed, and no cause may be claimed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from overnight.model.truth import CAUSES, Truth
from overnight.model.verdict import VerdictStatus

if TYPE_CHECKING:
    from overnight import rehearsals


class Quiet:
    name = "quiet"
    about = "No fault: no event may occur, and no cause may be claimed."
    needs = ("root", "kmsg", "netns")
    has_event = False

    def prepare(self, stage: rehearsals.Stage) -> None: ...

    def strike(self, stage: rehearsals.Stage) -> None: ...

    def truth(self, _stage: rehearsals.Stage) -> Truth:
        return Truth(VerdictStatus.NO_CAUSE, (), CAUSES)


REHEARSALS = (Quiet(),)
