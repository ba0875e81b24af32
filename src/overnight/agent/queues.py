"""Which core serves which queue of a network interface, as known before the reset.

A reset line names a queue and, before ENA 2.17, no core; after the reset the interrupts may be spread
anew. So the map is kept from the looks before.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from overnight.sources import interrupts

if TYPE_CHECKING:
    from overnight import sources
    from overnight.agent import watches

__all__ = ["QueueCores"]


class QueueCores:
    """The last facts of `nic-queues`, and of `nic-drivers`, which know an interface's device."""

    needs = ("nic-queues", "nic-drivers")

    def __init__(self) -> None:
        self._queues: sources.Facts = {}
        self._interfaces: dict[str, str] = {}

    def learn(self, signal: str, facts: sources.Facts) -> None:
        """Take in one look."""
        if signal == "nic-queues":
            self._queues = facts
        else:
            self._interfaces = {
                str(fact["bus"]): interface for interface, fact in facts.items() if "bus" in fact
            }

    def place(self, seen: watches.Sighting) -> watches.Sighting:
        """The same sighting with the interface, and the core where it can be only one.

        The interface becomes its key, as the driver's counters have it: the line and the counter of one
        reset are one event. What a process wrote keeps a key of its own.
        """
        fields = dict(seen.fields)
        interface = str(fields.get("interface", "") or "")
        if not interface and (known := self._interfaces.get(str(fields.get("device", "")))):
            interface = fields["interface"] = known
        queue = fields.get("queue", -1)
        core = seen.core
        if core < 0 and isinstance(queue, int) and queue >= 0:
            core = interrupts.core_of(self._queues, interface, queue)
        key = seen.key
        if interface and seen.kind.startswith("net.") and not fields.get("written_by_process"):
            key = interface
        return dataclasses.replace(seen, key=key, core=core, fields=fields)
