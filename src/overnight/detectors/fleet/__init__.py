"""What sets hosts that fail apart from the others: statistics over many hosts.

Three questions about a `model.fleet.Fleet` and a kind of event: does it follow a label (`cohort`), the
uptime (`uptime`), or something that is installed or configured (`drift`)? The host is the unit in all three:
events come in bursts, and a burst is one piece of evidence.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from overnight.detectors import _base

if TYPE_CHECKING:
    from overnight.model.finding import Answer
    from overnight.model.fleet import Fleet
    from overnight.queries import case as cases

# How often a fleet without any effect may be accused: one time in twenty, for each of the three questions.
ALPHA = 0.05


class FleetDetector(_base.Detector):
    """A question about all hosts in the data home of an event's case."""

    def examine(self, case: cases.Case) -> Answer:
        return self.ask(_read_fleet(case), case.event.kind)

    def ask(self, fleet: Fleet, kind: str) -> Answer:
        """Answer for a fleet and a kind of event; a kind that ends with a dot is a prefix."""
        raise NotImplementedError


# All three ask for the same fleet one after the other; a case is read once and never changes.
@functools.lru_cache(maxsize=1)
def _read_fleet(case: cases.Case) -> Fleet:
    from overnight.queries import fleet

    return fleet.read_fleet(case.home, [case.event.kind])
