"""The final report of an investigation, one module per format; none of them reads a disk."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from overnight.model.investigation import Investigation, Note, Occurrence
    from overnight.model.reservation import Reservation
    from overnight.model.verdict import Verdict
    from overnight.queries import contrast, diff, not_reproduced

SCHEMA = "overnight.investigation-report/1"


@dataclasses.dataclass(frozen=True)
class Diagnosed:
    """An event with its final verdict, which the arms are part of; None: it could not be reached."""

    occurrence: Occurrence
    verdict: Verdict | None
    report: str = ""  # path or URL


@dataclasses.dataclass(frozen=True)
class ProcessShare:
    """CPU of processes of one name in two arms, as a share of the denominator of the difference."""

    name: str
    share: float
    base_share: float

    @property
    def difference(self) -> float:
        return self.share - self.base_share


@dataclasses.dataclass(frozen=True)
class ProfileDifference:
    """What ran more or less in an arm than in the one it is compared with."""

    arm: str
    base: str
    functions: diff.Difference
    processes: tuple[ProcessShare, ...]  # the largest difference first

    @property
    def denominator(self) -> str:
        known = self.functions.coverage.capacity and self.functions.baseline.capacity
        return "of the cores' time" if known else "of the samples"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Report:
    investigation: Investigation
    contrast: contrast.Contrast
    diagnosed: tuple[Diagnosed, ...] = ()
    differences: tuple[ProfileDifference, ...] = ()
    not_reproduced: not_reproduced.NotReproduced | None = None
    next_plan: str = ""  # its path; on a server only the name, beside the report
    next_plan_text: str = ""  # YAML
    reservations: tuple[Reservation, ...] = ()
    problems: tuple[str, ...] = ()  # what could not be read or written
    notes: tuple[Note, ...] = ()  # the log
    folder: str = ""  # of the page: links to files in it are relative
    written_us: int = 0
