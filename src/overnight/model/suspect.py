"""Suspects: what else could have caused an event, and the number that clears each."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from overnight.model.event import Value


class SuspectName(enum.StrEnum):
    HUGE_PAGES = "huge-pages"
    ALLOCATOR = "allocator"
    AFFINITY = "cpu-affinity"
    THROTTLING = "cpu-throttling"
    INTERRUPTS = "interrupts"
    STEAL = "steal"
    FREQUENCY = "frequency"
    MEMORY = "memory"
    DISK = "disk"
    NETWORK = "network"
    CLOCK = "clock"
    RECORDER = "recorder"


class SuspectOutcome(enum.StrEnum):
    CLEARED = "cleared"
    NOT_CLEARED = "not-cleared"  # it changed at the event, which does not make it the cause
    NOT_CHECKED = "not-checked"  # no data


@dataclasses.dataclass(frozen=True)
class Suspect:
    """`values` are the numbers of incident window and baseline, denominators in their names.

    `look` is a command for the host that shows the present values.
    """

    name: SuspectName
    title: str
    outcome: SuspectOutcome
    text: str
    values: Mapping[str, Value] = dataclasses.field(default_factory=dict)
    look: str = ""

    def as_json(self) -> dict[str, object]:
        return {**dataclasses.asdict(self), "values": dict(self.values)}
