"""What sets the hosts that fail apart from those that do not: statistics over many hosts.

Three questions to a `queries.fleet.Fleet` and a kind of event: does it follow a label (`cohort`), does it
follow the time since the boot (`uptime`), does it follow something that is installed or set (`drift`)?
The host is the unit in all three: events come in bursts, and a burst is one piece of evidence.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
from typing import TYPE_CHECKING

from overnight.model.finding import Need

if TYPE_CHECKING:
    from overnight.model.finding import Answer
    from overnight.queries import case as cases
    from overnight.queries import fleet as fleets

__all__ = ["ALPHA", "DETECTORS", "FleetDetector", "look"]

# How often a quiet fleet may be accused: one time in twenty, for each of the three questions.
ALPHA = 0.05


@dataclasses.dataclass(frozen=True)
class FleetDetector:
    """A question to all hosts of the home that an event's case was read from."""

    name: str
    module: str
    needs: tuple[Need, ...]

    def look(self, case: cases.Case) -> Answer:
        """Answer for the kind of the case's event."""
        return self.ask(_fleet_of(case), case.event.kind)

    def ask(self, fleet: fleets.Fleet, kind: str) -> Answer:
        """Answer for a fleet and a kind of event; one that ends with a dot stands for all below it."""
        # numpy and scipy are paid for when a question is asked.
        answer: Answer = importlib.import_module(self.module).look(fleet, kind)
        return answer


DETECTORS = (
    FleetDetector("fleet.cohort", f"{__name__}.cohort", (Need.EVENTS, Need.HOST)),
    FleetDetector("fleet.uptime", f"{__name__}.uptime", (Need.EVENTS,)),
    FleetDetector("fleet.drift", f"{__name__}.drift", (Need.EVENTS, Need.SNAPSHOTS)),
)


def look(fleet: fleets.Fleet, kind: str) -> tuple[Answer, ...]:
    """All three answers for a fleet that is at hand."""
    return tuple(detector.ask(fleet, kind) for detector in DETECTORS)


# The three ask for the same fleet one after the other; a case is read once and never changes.
@functools.lru_cache(maxsize=1)
def _fleet_of(case: cases.Case) -> fleets.Fleet:
    from overnight.queries import fleet

    return fleet.read_fleet(case.home, [case.event.kind])
