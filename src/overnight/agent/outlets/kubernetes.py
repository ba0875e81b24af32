"""Events and conditions as Kubernetes objects, for a `NodeWriter` that talks to the API server.

Something that happened once becomes an Event; something that lasts becomes a NodeCondition in PascalCase,
where True is bad. A condition starts as Unknown, is cleared when it was not seen for its time to live,
survives a restart of the agent (the node's conditions are read first), and is deleted when its rule is
gone. `app.node_events` has the writer.
"""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Iterable
from typing import TYPE_CHECKING, Literal, Protocol

from overnight.agent.outlets import npd

if TYPE_CHECKING:
    from overnight.agent import outlets
    from overnight.model.event import Event

CLEAR_SECONDS = 300.0
ConditionStatus = Literal["True", "False", "Unknown"]


@dataclasses.dataclass(frozen=True)
class NodeEvent:
    """A core/v1 Event on a Node."""

    name: str
    node: str
    reason: str
    message: str
    type: Literal["Normal", "Warning"]
    first_timestamp: str
    last_timestamp: str
    count: int


@dataclasses.dataclass(frozen=True)
class NodeCondition:
    """One entry of a Node's status.conditions."""

    type: str
    status: ConditionStatus
    reason: str
    message: str
    transition: str


class NodeWriter(Protocol):
    """Writes to one Node; it queues and retries, and never blocks the caller."""

    def conditions(self) -> Iterable[NodeCondition]:
        """Read the node's present conditions of this agent."""

    def write_event(self, event: NodeEvent) -> None:
        """Create the event, or update the one of the same name."""

    def write_condition(self, condition: NodeCondition) -> None: ...

    def delete_condition(self, type_: str) -> None: ...


class Kubernetes:
    """An outlet that writes through a `NodeWriter`."""

    def __init__(self, writer: NodeWriter, node: str, clear_seconds: float = CLEAR_SECONDS) -> None:
        self._writer = writer
        self._node = node
        self._clear_us = round(clear_seconds * 1e6)
        self._written: dict[str, NodeCondition] = {}
        self._seen_us: dict[str, int] = {}
        self._adopted = False

    def event(self, event: Event) -> None:
        """Write an event, and the condition that it proves."""
        reason = npd.reason_of(event.kind)
        self._writer.write_event(
            NodeEvent(
                name=event.id,
                node=self._node,
                reason=reason,
                message=event.text,
                type="Normal" if event.severity == "info" else "Warning",
                first_timestamp=format_time(event.time_us),
                last_timestamp=format_time(max(event.until_us, event.time_us)),
                count=event.count,
            )
        )
        if condition := npd.CONDITIONS.get(event.kind):
            self._seen_us[condition] = max(event.until_us, event.time_us)
            self._set(condition, "True", reason, event.text, self._seen_us[condition])

    def tick(self, status: outlets.HostStatus) -> None:
        """Read the node's conditions at first; clear those not seen for long."""
        now_us = status.clock.wall_ns // 1000
        if not self._adopted:
            self._adopted = True
            self._adopt_conditions(now_us)
        for event in status.open:
            if condition := npd.CONDITIONS.get(event.kind):
                self._seen_us[condition] = now_us
        for condition, written in list(self._written.items()):
            quiet = now_us - self._seen_us.get(condition, now_us) > self._clear_us
            if written.status != "False" and quiet:
                message = "no longer seen" if written.status == "True" else "not seen"
                self._set(condition, "False", "Clear", message, now_us)

    def close(self) -> None:
        """Leave all conditions set: the node is not better because the agent ended."""

    def _adopt_conditions(self, now_us: int) -> None:
        missing = set(npd.CONDITIONS.values())
        for before in self._writer.conditions():
            if before.type in missing:
                self._written[before.type] = before
                self._seen_us.setdefault(before.type, now_us)
                missing.remove(before.type)
            else:
                self._writer.delete_condition(before.type)
        for condition in sorted(missing):
            self._seen_us.setdefault(condition, now_us)
            self._set(condition, "Unknown", "NotYetLooked", "the agent has just started", now_us)

    def _set(
        self, condition: str, status: ConditionStatus, reason: str, message: str, now_us: int
    ) -> None:
        before = self._written.get(condition)
        # Another reason for the same status: two kinds of one condition would take turns.
        if before is not None and before.status == status:
            return
        self._written[condition] = NodeCondition(
            condition, status, reason, message, format_time(now_us)
        )
        self._writer.write_condition(self._written[condition])


def format_time(at_us: int) -> str:
    """RFC 3339, as the API server wants it."""
    at = datetime.datetime.fromtimestamp(at_us / 1e6, datetime.UTC)
    return at.strftime("%Y-%m-%dT%H:%M:%SZ")
