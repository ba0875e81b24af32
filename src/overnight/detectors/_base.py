"""What all detectors share: how they answer, and how they build a finding."""

from __future__ import annotations

import dataclasses
import itertools
import shlex
from typing import TYPE_CHECKING

from overnight.model import times
from overnight.model.finding import Answer, Evidence, Finding, Need, Status, Subject, finding_id
from overnight.queries import freshness

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from overnight.model.event import Value
    from overnight.model.selection import Window
    from overnight.queries import case as cases


class MissingError(Exception):
    """Evidence that a detector needs was not recorded; `missing` names it."""

    def __init__(self, why: str, *missing: Need) -> None:
        super().__init__(why)
        self.missing = missing


def require_imported(case: cases.Case, need: Need, name: str) -> None:
    """Raise MissingError where the evidence was imported, and no file contains this."""
    if case.imported is not None and need not in case.imported:
        raise MissingError(f"not in the imported files: {name}", need)


def require_fresh(case: cases.Case, *needs: Need) -> None:
    """Raise MissingError where the readings of all these signals are too old to show what led to the event."""
    if case.imported is not None:
        needs = tuple(case.imported.intersection(needs))
    if needs and (why := freshness.explain_doubt(case, *needs)):
        raise MissingError(why, *needs)


@dataclasses.dataclass
class Draft:
    """A finding while its detector collects the evidence for and against it.

    `magnitude` holds the numbers by which linked findings are compared.
    """

    kind: str
    subject: Subject
    window: Window
    confidence: float
    summary: str
    evidence: list[Evidence] = dataclasses.field(default_factory=list)
    against: list[Evidence] = dataclasses.field(default_factory=list)
    magnitude: dict[str, float] = dataclasses.field(default_factory=dict)

    def support(
        self,
        text: str,
        source: str,
        /,
        *,
        window: Window | None = None,
        look: str = "",
        **values: Value | None,
    ) -> None:
        """Add evidence for the finding, from its own window unless given; values of None are left out."""
        self.evidence.append(Evidence(text, source, _known(values), window or self.window, look))

    def oppose(
        self, text: str, source: str, /, *, factor: float = 1.0, **values: Value | None
    ) -> None:
        """Add evidence against the finding from its window; `factor` lowers the confidence."""
        evidence = Evidence(text, source, _known(values), self.window)
        self.weigh(evidence, supports=False, factor=factor)

    def weigh(self, evidence: Evidence, *, supports: bool, factor: float = 1.0) -> None:
        """Add evidence on the side to which it belongs; evidence against lowers the confidence by a factor."""
        (self.evidence if supports else self.against).append(evidence)
        self.confidence *= 1.0 if supports else factor

    def finish(self, detector: str) -> Finding:
        """Return the finding with its id and its numbers rounded."""
        return Finding(
            finding_id(detector, self.kind, self.subject, self.window.begin_us),
            detector,
            self.kind,
            self.subject,
            self.window,
            min(1.0, max(0.0, self.confidence)),
            self.summary,
            tuple(self.evidence),
            {name: _round(float(number)) for name, number in self.magnitude.items()},
            tuple(self.against),
        )


def _known(values: Mapping[str, Value | None]) -> dict[str, Value]:
    return {
        name: _round(value) if isinstance(value, float) else value
        for name, value in values.items()
        if value is not None
    }


def _round(number: float) -> float:
    """Round to four decimals, or to four significant digits where those would lose a small p-value.

    >>> _round(2 / 3), _round(2 / 30_000)
    (0.6667, 6.667e-05)
    """
    return round(number, 4) if abs(number) >= 0.01 else float(f"{number:.4g}")


class Detector:
    """One question about the evidence of an event."""

    name = ""  # the `detector` of its answers and findings
    needs: tuple[Need, ...] = ()  # its inputs; `Answer.missing` is a part of them
    # Nothing found is clear only if one input of each group was recorded until the event.
    clears_by: tuple[tuple[Need, ...], ...] = ()
    rank_by = ""  # the magnitude by which findings are sorted, the highest first
    max_findings: int | None = None

    def look(self, case: cases.Case) -> Answer:
        """Answer for one event."""
        try:
            answer = self.examine(case)
            if answer.status is Status.CLEAR:
                for needs in self.clears_by:
                    require_fresh(case, *needs)
            return answer
        except MissingError as error:
            return self.no_data(str(error), *error.missing)

    def examine(self, case: cases.Case) -> Answer:
        """Answer found or clear, or raise MissingError."""
        raise NotImplementedError

    def answer(self, drafts: Iterable[Draft], *, clear: str, remark: str = "") -> Answer:
        """Build the answer; `clear` gives the reason where nothing was found, `remark` limits what was."""
        if self.rank_by:
            drafts = sorted(drafts, key=lambda draft: -draft.magnitude[self.rank_by])
        chosen = itertools.islice(drafts, self.max_findings)
        findings = tuple(draft.finish(self.name) for draft in chosen)
        if not findings:
            return Answer(self.name, Status.CLEAR, why=clear)
        return Answer(self.name, Status.FOUND, findings, remark)

    def no_data(self, why: str, *missing: Need) -> Answer:
        return Answer(self.name, Status.NO_DATA, why=why, missing=missing)


def command(subcommand: str, window: Window, host: str, *options: str) -> str:
    """Return the overnight command line that shows a window."""
    begin, end = (times.format_instant(us) for us in (window.begin_us, window.end_us))
    parts = ("overnight", subcommand, "-b", begin, "-e", end, "--host", shlex.quote(host), *options)
    return " ".join(parts)
