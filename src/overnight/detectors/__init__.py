"""From recorded evidence to findings: one module per detector.

A module lists its detectors in `DETECTORS`; `app` discovers them. A detector examines one `Case` and
answers found, clear or no-data: missing evidence is an answer, never an exception. Other exceptions pass
to the caller, which turns them into the answer failed. Linking findings into a chain is left to `diagnosis`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from overnight.model.finding import Answer, Need
    from overnight.queries import case


class Detector(Protocol):
    """One question about the evidence of an event."""

    @property
    def name(self) -> str:
        """The `detector` of its answers and findings."""

    @property
    def needs(self) -> tuple[Need, ...]:
        """The inputs; `Answer.missing` is a part of them."""

    def look(self, case: case.Case) -> Answer:
        """Answer for one event."""
