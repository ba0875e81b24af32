"""Groups of similar events: each is one Event object, whose count and last time are updated.

Pure and bounded, as a storm of events must not become a storm of objects.
"""

from __future__ import annotations

import collections
import dataclasses
import hashlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from overnight.agent.outlets import kubernetes

MAX_SIMILAR = 10  # texts of one reason with an object of their own; client-go has the same limit
MAX_IDS = 4096
KEEP_SECONDS = 3600.0  # the API server deletes Events after this time
UPDATE_SECONDS = 60.0  # between two updates of an object: a lasting event is recorded every 5 s
COMBINED = "(combined from similar events): "


@dataclasses.dataclass(eq=False)
class Group:
    """One Event object. `event` has the newest text, and the count and times of all its events."""

    event: kubernetes.NodeEvent
    touched: float
    stored: bool = False  # by this process
    sent: float = 0.0
    earlier: int = 0  # events that only the stored object counts, from before a restart

    @property
    def count(self) -> int:
        return self.event.count + self.earlier


class SimilarEvents:
    """The events of one node; times are of a monotonic clock."""

    def __init__(self) -> None:
        self._by_reason: dict[str, dict[str, Group]] = {}
        self._by_id: collections.OrderedDict[str, tuple[Group, int]] = collections.OrderedDict()
        self._changed: dict[str, Group] = {}  # by name, the one that waits longest first

    def add(self, event: kubernetes.NodeEvent, now: float) -> None:
        """Add an event, or the newer state of a known one."""
        group, counted = self._by_id.pop(event.name, (None, 0))
        if group is None:
            group = self._find_group(event, now)
        before = group.event
        combined = before.message.startswith(COMBINED)
        group.event = dataclasses.replace(
            event,
            name=before.name,
            message=f"{COMBINED if combined else ''}{event.message}",
            first_timestamp=min(before.first_timestamp, event.first_timestamp),
            last_timestamp=max(before.last_timestamp, event.last_timestamp),
            count=before.count + max(0, event.count - counted),
        )
        group.touched = now
        self._by_id[event.name] = (group, max(counted, event.count))
        if len(self._by_id) > MAX_IDS:
            self._by_id.popitem(last=False)
        if group.event != before:
            self._changed.setdefault(before.name, group)

    def find_due(self, now: float) -> Group | None:
        """Return the group that has waited longest for a request."""
        for group in self._changed.values():
            if not group.stored or now - group.sent >= UPDATE_SECONDS:
                return group
        return None

    def note_sent(self, group: Group, now: float) -> None:
        group.stored, group.sent = True, now
        self._changed.pop(group.event.name, None)

    def _find_group(self, event: kubernetes.NodeEvent, now: float) -> Group:
        similar = self._by_reason.setdefault(event.reason, {})
        for message, group in list(similar.items()):
            if now - group.touched > KEEP_SECONDS:
                del similar[message]
        key = event.message
        if key not in similar and len(similar) >= MAX_SIMILAR:
            key = COMBINED
        if key not in similar:
            # From the id: a process that reads the same events after a restart finds the same object.
            digest = hashlib.blake2b(f"{event.node}\0{event.name}".encode(), digest_size=8)
            empty = dataclasses.replace(
                event, name=f"{event.node[:200].rstrip('.-')}.{digest.hexdigest()}", count=0
            )
            if key == COMBINED:
                empty = dataclasses.replace(empty, message=f"{COMBINED}{event.message}")
            similar[key] = Group(empty, now)
        return similar[key]
