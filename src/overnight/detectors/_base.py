"""What all detectors share: how they answer, and how they build a finding."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from overnight.model import times
from overnight.model.finding import Answer, Evidence, Finding, Need, Status, Subject, finding_id

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from overnight.model.selection import Window
    from overnight.queries import case as cases

__all__ = ["BaseDetector", "MissingError", "command", "make"]


class MissingError(Exception):
    """Evidence that a detector needs was not recorded; `missing` names it, all its needs if empty."""

    def __init__(self, why: str, *missing: Need) -> None:
        super().__init__(why)
        self.missing = missing


class BaseDetector:
    """Runs `examine`; a `MissingError` in it becomes the answer no-data with the missing inputs."""

    name = ""
    needs: tuple[Need, ...] = ()

    def look(self, case: cases.Case) -> Answer:
        """Answer for one event."""
        try:
            return self.examine(case)
        except MissingError as error:
            missing = error.missing or self.needs
            return Answer(self.name, Status.NO_DATA, why=str(error), missing=missing)

    def examine(self, case: cases.Case) -> Answer:
        """Answer found or clear, or raise MissingError."""
        raise NotImplementedError

    def answer(self, findings: Sequence[Finding], *, clear: str, remark: str = "") -> Answer:
        """Build the answer; `clear` gives the reason where nothing was found, `remark` limits what was."""
        if not findings:
            return Answer(self.name, Status.CLEAR, why=clear)
        return Answer(self.name, Status.FOUND, tuple(findings), remark)


def make(
    detector: str,
    kind: str,
    subject: Subject,
    window: Window,
    confidence: float,
    summary: str,
    evidence: Iterable[Evidence],
    magnitude: Mapping[str, float],
    against: Iterable[Evidence] = (),
) -> Finding:
    """Build a finding with its id and its numbers rounded."""
    return Finding(
        finding_id(detector, kind, subject, window.begin_us),
        detector,
        kind,
        subject,
        window,
        min(1.0, max(0.0, confidence)),
        summary,
        tuple(evidence),
        {name: _round(float(number)) for name, number in magnitude.items()},
        tuple(against),
    )


def _round(number: float) -> float:
    """Round to what is worth reading; small p-values stay exact."""
    return round(number, 4) if abs(number) >= 0.01 else number


def command(subcommand: str, window: Window, host: str, *options: str) -> str:
    """Return the overnight command line that shows a window."""
    begin, end = (times.format_instant(us) for us in (window.begin_us, window.end_us))
    parts = ("overnight", subcommand, "-b", begin, "-e", end, "--host", shlex.quote(host), *options)
    return " ".join(parts)
