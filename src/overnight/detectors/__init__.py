"""From recorded evidence to findings: one module a detector.

A detector looks at one `Case` and answers found, clear or no-data; it never raises for evidence that is
missing. What breaks in it, damaged files included, it lets pass: who asks (`app.diagnosing.look`) makes
that the answer failed, in one place for all. Its module names it in `DETECTORS`; `app` discovers them, no list is kept. What links
findings into a chain is not its business.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from overnight.model.finding import Answer
    from overnight.queries import case

__all__ = ["Detector"]


class Detector(Protocol):
    """One question to the evidence."""

    @property
    def name(self) -> str:
        """What its findings' `detector` says."""

    @property
    def needs(self) -> tuple[str, ...]:
        """The inputs: names of signals, `events`, `profiles`, `snapshots`; for the report's gaps."""

    def look(self, case: case.Case) -> Answer:
        """Answer for one event."""
