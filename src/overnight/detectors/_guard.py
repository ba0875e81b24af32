"""Evidence that cannot be read is an answer, too: the other detectors go on."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from overnight import errors
from overnight.model import finding

if TYPE_CHECKING:
    from overnight import detectors
    from overnight.queries import case as cases

__all__ = ["told"]

One = TypeVar("One", bound="detectors.Detector")
Look = Callable[[One, "cases.Case"], finding.Answer]


def told(look: Look[One]) -> Look[One]:
    """For a `look`: a damaged or unreadable file makes it answer failed, with what the error says."""

    @functools.wraps(look)
    def guarded(self: One, case: cases.Case) -> finding.Answer:
        try:
            return look(self, case)
        except (errors.OvernightError, OSError) as error:
            return finding.Answer(self.name, finding.Status.FAILED, why=str(error))

    return guarded
