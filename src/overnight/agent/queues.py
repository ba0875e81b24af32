"""Which core serves which queue of a network interface, as it was before a reset.

A reset line names a queue and, before ENA 2.17, no core; after the reset the interrupts may be on other
cores. So the map of the readings before is kept.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from overnight.sources import interrupts

if TYPE_CHECKING:
    from overnight import sources
    from overnight.agent import watches


class QueueCores:
    """The last facts of `nic-queues`, and of `nic-drivers`, which has the device of an interface."""

    needs = ("nic-queues", "nic-drivers")

    def __init__(self) -> None:
        self._queues: sources.Facts = {}
        self._interfaces: dict[str, str] = {}

    def learn(self, signal: str, facts: sources.Facts) -> None:
        if signal == "nic-queues":
            self._queues = facts
        else:
            self._interfaces = {
                str(fact["bus"]): interface for interface, fact in facts.items() if "bus" in fact
            }

    def place(self, sighting: watches.Sighting) -> watches.Sighting:
        """Return the sighting with its interface, and with its core where only one is possible.

        The interface becomes the key, as in the driver's counters, so the line and the counter of one
        reset are one event. A line written by a process keeps its own key.
        """
        fields = dict(sighting.fields)
        interface = str(fields.get("interface", "") or "")
        if not interface and (known := self._interfaces.get(str(fields.get("device", "")))):
            interface = fields["interface"] = known
        queue = fields.get("queue", -1)
        core = sighting.core
        if core < 0 and isinstance(queue, int) and queue >= 0:
            core = interrupts.core_of(self._queues, interface, queue)
        key = sighting.key
        if interface and sighting.kind.startswith("net.") and not fields.get("written_by_process"):
            key = interface
        return dataclasses.replace(sighting, key=key, core=core, fields=fields)
