"""Writes Events and NodeConditions of one Node: at a limited rate, and only what is its own."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from overnight import kubernetes_api
from overnight.agent.outlets import kubernetes, npd
from overnight.app.node_events import similar_events

if TYPE_CHECKING:
    from overnight.kubernetes_api import client as api

MANAGER = "overnight-node-events"  # of the fields that it writes: how it knows its own conditions
NAMESPACE = "default"  # of Events about objects without a namespace
BURST, EVERY_SECONDS = 25, 5.0  # requests at once, and one more after each of these times
CHECK_SECONDS = 300.0  # between checks that the node still has the conditions
MAX_MESSAGE = 1024
INVALID = (400, 413, 422)

Object = dict[str, Any]


class Bucket:
    """A token bucket."""

    def __init__(self, burst: int, every_seconds: float) -> None:
        self._burst, self._every = burst, every_seconds
        self._tokens, self._filled = float(burst), 0.0

    def take(self, now: float) -> bool:
        new = (now - self._filled) / self._every if self._filled else 0.0
        self._tokens, self._filled = min(self._burst, self._tokens + new), now
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True


class NodeWriter(kubernetes.NodeWriter):
    """Keeps what is to be written until `flush` has written it; only `read` and `flush` send requests."""

    def __init__(
        self,
        client: api.Client,
        node: str,
        clock: Callable[[], float],
        bucket: Bucket | None = None,
    ) -> None:
        self._client = client
        self._node = node
        self._clock = clock
        self._bucket = bucket or Bucket(BURST, EVERY_SECONDS)
        self._events = similar_events.SimilarEvents()
        self._pending: dict[str, kubernetes.NodeCondition | None] = {}  # None: to be deleted
        self._written: dict[str, kubernetes.NodeCondition] = {}
        self._checked = 0.0
        self._alive = self._beat = ""  # when the recorder last wrote, as known and as on the node
        self.foreign: frozenset[str] = frozenset()  # conditions of our names by another writer

    def read(self) -> None:
        """Read the node's conditions, and write those again that it has lost."""
        node = self._client.get(kubernetes_api.NODES, self._node)
        present = {c["type"]: c for c in node.get("status", {}).get("conditions") or []}
        own = find_own(node)
        self.foreign = frozenset(present.keys() & set(npd.CONDITIONS.values()) - own)
        found = {type_: _parse(present[type_]) for type_ in sorted(own & present.keys())}
        for type_, condition in self._written.items():
            if type_ not in found or found[type_].status != condition.status:
                self._pending.setdefault(type_, condition)
        self._written = found
        self._checked = self._clock()

    def conditions(self) -> Iterable[kubernetes.NodeCondition]:
        """Return the node's own conditions, with those that are still to be written."""
        return [condition for condition in {**self._written, **self._pending}.values() if condition]

    def confirm(self, at_us: int) -> None:
        """Note when the recorder last wrote: the conditions held then."""
        self._alive = kubernetes.format_time(at_us)

    def write_event(self, event: kubernetes.NodeEvent) -> None:
        self._events.add(event, self._clock())

    def write_condition(self, condition: kubernetes.NodeCondition) -> None:
        known = self._written.get(condition.type)
        if known and (known.status, known.reason) == (condition.status, condition.reason):
            self._pending.pop(condition.type, None)  # it changed, and changed back
        elif condition.type not in self.foreign:
            self._pending[condition.type] = condition

    def delete_condition(self, type_: str) -> None:
        self._pending[type_] = None

    def flush(self) -> int:
        """Send what the rate allows, conditions first; return the number of requests that wrote."""
        sent, now = 0, self._clock()
        if now - self._checked > CHECK_SECONDS:
            self.read()
            if self._alive != self._beat:
                self._pending = {**self._written, **self._pending}
        if self._pending and self._bucket.take(now):
            self._patch_conditions()
            sent += 1
        while (group := self._events.find_due(now)) and self._bucket.take(now):
            try:
                self._send(group)
            except kubernetes_api.KubernetesError as error:
                if error.code in INVALID:
                    self._events.note_sent(group, now)  # it would hold up those behind it
                raise
            self._events.note_sent(group, now)
            sent += 1
        return sent

    def _patch_conditions(self) -> None:
        # A strategic merge by type: entries of others are not in the patch, so nobody's are overwritten.
        changes = [
            {"type": type_, "$patch": "delete"}
            if condition is None
            else _format(condition, max(self._alive, condition.transition))
            for type_, condition in self._pending.items()
        ]
        patch = {"status": {"conditions": changes}}
        self._client.patch_status(kubernetes_api.NODES, self._node, patch, manager=MANAGER)
        now = self._written | self._pending
        self._written = {type_: condition for type_, condition in now.items() if condition}
        self._beat = self._alive
        self._pending.clear()

    def _send(self, group: similar_events.Group) -> None:
        name = group.event.name
        if not group.stored:
            with kubernetes_api.accept(409):
                self._client.create(kubernetes_api.EVENTS, self._build(group), NAMESPACE)
                return
            stored = self._client.get(kubernetes_api.EVENTS, name, NAMESPACE)
            group.earlier = max(0, (stored.get("count") or 0) - group.event.count)
        changed = ("message", "type", "count", "lastTimestamp")
        patch = {key: value for key, value in self._build(group).items() if key in changed}
        with kubernetes_api.accept(404):
            self._client.patch(kubernetes_api.EVENTS, name, patch, NAMESPACE)
            return
        # The API server deletes Events after an hour.
        self._client.create(kubernetes_api.EVENTS, self._build(group), NAMESPACE)

    def _build(self, group: similar_events.Group) -> Object:
        event = group.event
        return {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": event.name, "namespace": NAMESPACE},
            # The name as uid, as kubelets do: `kubectl describe node` looks for that.
            "involvedObject": {"apiVersion": "v1", "kind": "Node", "name": self._node, "uid": self._node},
            "reason": event.reason,
            "message": event.message[:MAX_MESSAGE],
            "type": event.type,
            "source": {"component": "overnight", "host": self._node},
            "firstTimestamp": event.first_timestamp,
            "lastTimestamp": event.last_timestamp,
            "count": group.count,
        }  # fmt: skip


def find_own(node: Object) -> set[str]:
    """Return the types of the conditions that this program wrote, by the managers of their fields."""
    managed = node["metadata"].get("managedFields")
    if not managed:
        return set(npd.CONDITIONS.values())  # a server that does not record them: by name
    own: set[str] = set()
    for entry in managed:
        if entry.get("manager") == MANAGER:
            fields = entry.get("fieldsV1", {}).get("f:status", {}).get("f:conditions", {})
            own |= {json.loads(key[2:])["type"] for key in fields if key.startswith("k:")}
    return own


def _parse(condition: Object) -> kubernetes.NodeCondition:
    return kubernetes.NodeCondition(
        condition["type"],
        condition["status"],
        condition.get("reason", ""),
        condition.get("message", ""),
        condition.get("lastTransitionTime") or "",
    )


def _format(condition: kubernetes.NodeCondition, heartbeat: str) -> Object:
    return {
        "type": condition.type,
        "status": condition.status,
        "reason": condition.reason,
        "message": condition.message[:MAX_MESSAGE],
        "lastTransitionTime": condition.transition,
        "lastHeartbeatTime": heartbeat,
    }
