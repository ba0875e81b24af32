"""Events and conditions in Kubernetes' words, for whoever writes them to an API server.

What happened once becomes an Event; what lasts becomes a NodeCondition, PascalCase, where True is bad.
A condition starts Unknown, is cleared when it was not seen for its time to live, survives a restart of
the agent (the writer reads what the node says first), and is deleted when its rule is gone. The writer
is behind `NodeWriter`; the one that talks to a real API server comes with reservations.
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

__all__ = ["CLEAR_SECONDS", "Kubernetes", "NodeCondition", "NodeEvent", "NodeWriter"]

CLEAR_SECONDS = 300.0


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
    status: Literal["True", "False", "Unknown"]
    reason: str
    message: str
    transition: str


class NodeWriter(Protocol):
    """Writes to one Node; it queues and retries by itself, and never blocks the caller."""

    def conditions(self) -> Iterable[NodeCondition]:
        """What the node says now of the conditions that are ours."""

    def write_event(self, told: NodeEvent) -> None:
        """Create it, or update the one of the same name."""

    def write_condition(self, told: NodeCondition) -> None:
        """Set it."""

    def delete_condition(self, type_: str) -> None:
        """Remove it."""


class Kubernetes:
    """An outlet that speaks through a `NodeWriter`."""

    def __init__(self, writer: NodeWriter, node: str, clear_seconds: float = CLEAR_SECONDS) -> None:
        self._writer = writer
        self._node = node
        self._clear_us = round(clear_seconds * 1e6)
        self._said: dict[str, NodeCondition] = {}
        self._seen_us: dict[str, int] = {}
        self._started = False

    def event(self, told: Event) -> None:
        """Tell an event, and the condition that it proves."""
        reason = npd.reason_of(told.kind)
        self._writer.write_event(
            NodeEvent(
                name=told.id,
                node=self._node,
                reason=reason,
                message=told.text,
                type="Normal" if told.severity == "info" else "Warning",
                first_timestamp=_time(told.time_us),
                last_timestamp=_time(max(told.until_us, told.time_us)),
                count=told.count,
            )
        )
        condition = npd.condition_of(told.kind)
        if condition:
            self._seen_us[condition] = max(told.until_us, told.time_us)
            self._say(condition, "True", reason, told.text, self._seen_us[condition])

    def tick(self, standing: outlets.Standing) -> None:
        """Begin with what the node says; clear what has not been seen for long."""
        now_us = standing.clock.wall_ns // 1000
        if not self._started:
            self._started = True
            self._take_up(now_us)
        for one in standing.open:
            condition = npd.condition_of(one.kind)
            if condition:
                self._seen_us[condition] = now_us
        for condition, said in list(self._said.items()):
            quiet = now_us - self._seen_us.get(condition, now_us) > self._clear_us
            if said.status == "True" and quiet:
                self._say(condition, "False", "Clear", "not seen any more", now_us)

    def close(self) -> None:
        """What holds stays said: the node is no better because the agent went."""

    def _take_up(self, now_us: int) -> None:
        ours = dict.fromkeys(set(npd.CONDITIONS.values()), "Unknown")
        for before in self._writer.conditions():
            if before.type in ours:
                self._said[before.type] = before
                self._seen_us.setdefault(before.type, now_us)
                del ours[before.type]
            else:
                self._writer.delete_condition(before.type)
        for condition in sorted(ours):
            self._say(condition, "Unknown", "NotYetLooked", "the agent has just started", now_us)

    def _say(
        self,
        condition: str,
        status: Literal["True", "False", "Unknown"],
        reason: str,
        message: str,
        now_us: int,
    ) -> None:
        before = self._said.get(condition)
        if before is not None and (before.status, before.reason) == (status, reason):
            return
        said = NodeCondition(condition, status, reason, message, _time(now_us))
        self._said[condition] = said
        self._writer.write_condition(said)


def _time(at_us: int) -> str:
    """RFC 3339, as the API server wants it."""
    at = datetime.datetime.fromtimestamp(at_us / 1e6, datetime.UTC)
    return at.strftime("%Y-%m-%dT%H:%M:%SZ")
