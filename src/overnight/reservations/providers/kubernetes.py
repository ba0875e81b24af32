"""Nodes of a Kubernetes cluster: `where` is a context of the kubeconfig, or '' for the cluster of this pod.

The claim is a Lease object, which the API server creates once. The marks on the Node say the same to a janitor
that finds nothing else; docs/reservations-kubernetes.md describes each one.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from overnight import kubernetes_api, reservations
from overnight.kubernetes_api import client as api
from overnight.model import times
from overnight.model.reservation import Candidate, Held, HostPlan, Lease, Order, Workload
from overnight.reservations.providers import _kubernetes_agent as agents
from overnight.reservations.providers import _kubernetes_marks as marks
from overnight.reservations.providers import _kubernetes_nodes as nodes
from overnight.reservations.providers import _kubernetes_pods as pods

NAME = "kubernetes"
DELETES = 5  # of a Lease object that a driver renews at the same time

LEASES, NODES = kubernetes_api.LEASES, kubernetes_api.NODES
PODS, SECRETS = kubernetes_api.PODS, kubernetes_api.SECRETS
Object = dict[str, Any]


def create(settings: reservations.Settings) -> Nodes:
    """Return the provider; it connects when it is first used."""
    return Nodes(settings)


@contextlib.contextmanager
def _reported() -> Iterator[None]:
    try:
        yield
    except kubernetes_api.KubernetesError as error:
        raise reservations.PlatformError(
            error.what, why=error.why, todo=error.todo, retry=error.retry
        ) from error


class Nodes:
    """Nodes, one Lease object for each that is reserved."""

    name = NAME
    ignores = frozenset({"region", "detach"})

    def __init__(self, settings: reservations.Settings) -> None:
        self._settings = settings
        self._namespace = settings.namespace
        # The namespace of the Leases has the restricted profile, which forbids what an agent needs.
        self._agents = f"{settings.namespace}-agents"
        self._steps = settings.steps
        self._lock = threading.Lock()
        self._clients: dict[str, api.Client] = {}

    def close(self) -> None:
        """Close the connections; the next call opens new ones."""
        with self._lock:
            for client in self._clients.values():
                client.close()
            self._clients.clear()

    @_reported()
    def list_hosts(self, order: Order) -> Sequence[Candidate]:
        found = self._connect(order).list(NODES)
        taken = marks.find_taken(self._find_held(order, found), times.now_us())
        return [nodes.describe(node, taken.get(node["metadata"]["name"], "")) for node in found]

    @_reported()
    def plan(self, host: Candidate, order: Order) -> HostPlan:
        """Return which pods go, which stay, and which an eviction would not move now."""
        client = self._connect(order)
        budgets = _list_budgets(client)
        present = [pod for pod in _list_pods(client, host.name) if pods.is_foreign(pod)]
        workloads = tuple(pods.describe(pod, budgets) for pod in present)
        until_us = times.now_us() + order.seconds * 1_000_000
        warnings = nodes.find_karpenter_warnings(client, host.name, until_us)
        disrupts: list[str] = []
        if order.evict:
            disrupts += pods.find_losses(present) + pods.find_protected(present)
            warnings += pods.find_lost_data(present)
        if order.no_execute:
            disrupts += pods.find_deleted(present)
        return HostPlan(
            host=host, workloads=workloads, disrupts=tuple(disrupts), warnings=tuple(warnings)
        )

    @_reported()
    def claim(self, host: str, order: Order, lease: Lease) -> None:
        """Create the Lease object, or take over that of an expired lease."""
        client = self._connect(order)
        node = client.find(NODES, host)
        if node is None:
            raise _gone(host, None, {})
        self._steps("before the claim")
        claim = self._create_claim(client, host, lease, node["metadata"]["uid"])
        self._steps("claimed")
        node = client.find(NODES, host)
        if node is None or marks.find_absence(host, node, claim):
            raise _gone(host, node, claim)
        for held in marks.find_held([node], (), (), times.now_us()):
            if held.id == lease.id:
                continue
            if not marks.is_expired(held.lease, times.now_us()):
                # Its Lease object was deleted by hand; it still has the host.
                client.delete(LEASES, marks.name_claim(host), self._namespace, only=claim)
                raise _taken(host, held)
            self._remove(client, host, held.id)

    def _create_claim(self, client: api.Client, host: str, lease: Lease, uid: str) -> Object:
        body = marks.build_claim(host, self._namespace, lease, times.now_us(), uid)
        name, held = body["metadata"]["name"], Held(host, "", None)
        for _ in range(DELETES):
            with kubernetes_api.accept(409):
                return client.create(LEASES, body, self._namespace)
            if (current := client.find(LEASES, name, self._namespace)) is None:
                continue  # it ended meanwhile
            (held,) = marks.find_held((), [current], (), times.now_us())
            if held.id == lease.id:
                return current
            if not marks.is_expired(held.lease, times.now_us()):
                break
            # Not patched: the age of the object is that of its lease.
            with kubernetes_api.accept(409):  # another reserver or the janitor was first
                client.delete(LEASES, name, self._namespace, only=current)
                self._steps("ended the expired claim")
        raise _taken(host, held)

    @_reported()
    def mark(self, host: str, order: Order, lease: Lease) -> None:
        """Put label, taint and annotations on the node, if its Lease object is still ours."""
        client = self._connect(order)
        node = self._mark(client, host, lease)
        if not marks.carries(node, lease.id):  # it had the NoExecute taint, and lost it
            if present := self._list_evictable(client, host, lease):
                raise reservations.PlatformError(
                    f"cannot restore the NoExecute taint of {host}",
                    why=f"it would delete pod {pods.name(present[0])}, whatever its PodDisruptionBudget says",
                    todo=f"remove the pod, or give the node back: `overnight release {lease.id}`",
                )
            client.edit(NODES, host, lambda node: marks.add_no_execute(node, lease.id))

    def _mark(self, client: api.Client, host: str, lease: Lease) -> Object:
        claim = client.find(LEASES, marks.name_claim(host), self._namespace)
        if claim is None or marks.find_holder(claim) != lease.id:
            held = marks.find_held((), [claim] if claim else (), (), times.now_us())
            raise _taken(host, held[0] if held else Held(host, "", None, claimed=False))

        def change(node: Object) -> Object | None:
            if marks.find_absence(host, node, claim):
                raise _gone(host, node, claim)
            return marks.mark(node, lease)

        self._steps("before the marks")
        with kubernetes_api.accept(404):
            node = client.edit(NODES, host, change)
            self._steps("marked")
            return node
        raise _gone(host, None, claim)

    @_reported()
    def empty(self, host: str, order: Order, lease: Lease, progress: reservations.Progress) -> bool:
        """Evict what may be evicted, but nothing while a PodDisruptionBudget protects one of the pods."""
        client = self._connect(order)
        # Without its taint the node fills again, and without its claim it is another's.
        self._mark(client, host, lease)
        present = self._list_evictable(client, host, lease)
        version = client.find_part_version("pods/eviction") if present and order.evict else ""
        blocked = [work for work in self.list_workloads(host, order, lease) if work.blocked]
        for pod in present:
            name = pods.name(pod)
            if pod["metadata"].get("deletionTimestamp"):
                progress(f"pod {name} is terminating")
            elif not order.evict:
                progress(f"pod {name} is still on {host}")
            elif not blocked:
                self._steps(f"before the eviction of {name}")
                progress(_evict(client, pod, version))
        for work in blocked:  # the others would be evicted in vain
            progress(f"cannot evict pod {work.name}: {work.blocked}")
        if present:
            return False
        if order.no_execute:
            self._steps("before NoExecute")
            client.edit(NODES, host, lambda node: marks.add_no_execute(node, lease.id))
        self._steps("empty")
        return True

    @_reported()
    def renew(self, host: str, order: Order, lease: Lease) -> bool:
        """Write the new end into the Lease object and the node; create neither again."""
        client, name = self._connect(order), marks.name_claim(host)
        node = client.find(NODES, host)
        claim = client.find(LEASES, name, self._namespace)
        if node is None or (claim and marks.find_absence(host, node, claim)):
            raise _gone(host, node, claim or {})
        if claim is None and lease.id not in marks.find_ids(node):
            raise _gone(host, node, {})
        if not _is_whole(node, claim, lease):
            return False
        self._steps("before the renewal")
        with kubernetes_api.accept(404):
            claim = client.edit(
                LEASES,
                name,
                lambda now: marks.renew_claim(now, lease, times.now_us()),
                self._namespace,
            )
            self._steps("renewed the claim")
            node = client.edit(NODES, host, lambda now: marks.write_record(now, lease))
            return _is_whole(node, claim, lease)
        return False

    @_reported()
    def release(self, host: str, order: Order, lease_id: str) -> None:
        """Remove agent, marks and, at last, the Lease object: until then nobody else takes the node."""
        client, space = self._connect(order), self._namespace
        self._remove(client, host, lease_id)
        for attempt in range(1, DELETES + 1):
            left = [
                claim
                for claim in self._list_claims(client)
                if (marks.find_host(claim), marks.find_holder(claim)) == (host, lease_id)
            ]
            self._steps("before the end of the claim")
            with kubernetes_api.accept(*(() if attempt == DELETES else (409,))):
                for claim in left:
                    client.delete(LEASES, claim["metadata"]["name"], space, only=claim)
                self._steps("released")
                return

    def _remove(self, client: api.Client, host: str, lease_id: str) -> None:
        """Remove all marks of a lease but its Lease object."""
        self._stop_agent(client, host, lease_id)
        self._steps("before the removal of the marks")
        with kubernetes_api.accept(404):
            client.edit(NODES, host, lambda node: marks.strip(node, lease_id))
        self._steps("removed the marks")

    @_reported()
    def list_held(self, order: Order) -> Sequence[Held]:
        """List every lease of which a label, taint, annotation, Lease object or agent is left."""
        return self._find_held(order, self._connect(order).list(NODES))

    def _find_held(self, order: Order, found: Sequence[Object]) -> list[Held]:
        client = self._connect(order)
        agents_pods = client.list(PODS, self._agents, labels=marks.KEY)
        return marks.find_held(found, self._list_claims(client), agents_pods, times.now_us())

    def _list_claims(self, client: api.Client) -> list[Object]:
        return list(filter(marks.is_claim, client.list(LEASES, self._namespace)))

    @_reported()
    def list_workloads(self, host: str, order: Order, lease: Lease) -> Sequence[Workload]:
        client = self._connect(order)
        present = [p for p in _list_pods(client, host) if pods.is_foreign(p, lease.id)]
        moved = any(not pods.find_reason_to_stay(pod) for pod in present)
        budgets = _list_budgets(client) if moved and order.evict else []
        return [pods.describe(pod, budgets) for pod in present]

    @_reported()
    def start_agent(
        self, host: str, order: Order, lease: Lease, setup: reservations.AgentSetup
    ) -> None:
        """Start a pod, unless that of the DaemonSet runs there."""
        if any(map(agents.is_of_daemon_set, _list_pods(self._connect(order), host))):
            return
        if not self._settings.image:
            raise reservations.PlatformError(
                f"cannot start an agent on {host}",
                why="no container image of the agent is given",
                todo="kubectl apply -k deploy/kubernetes/base   (the DaemonSet), or export OVERNIGHT_AGENT_IMAGE=IMAGE",
                retry=False,
            )
        pod = agents.build_pod(host, self._agents, self._settings.image, lease, setup)
        self.start_pod(order, pod, agents.list_files(setup))

    @_reported()
    def start_pod(self, order: Order, pod: Object, files: Mapping[str, str]) -> None:
        """Start a pod in place of that of `start_agent`, with a Secret of these files. Repeatable."""
        client, name = self._connect(order), pod["metadata"]["name"]
        self._steps("before the agent")
        present = client.find(PODS, name, self._agents)
        if present and present.get("status", {}).get("phase") in ("Succeeded", "Failed"):
            client.delete(PODS, name, self._agents, only=present, grace_seconds=0)
            present = None
        pod = present or client.create(PODS, pod, self._agents)
        self._steps("before the token of the agent")
        # The token of an earlier attempt may have been used or revoked.
        client.delete(SECRETS, name, self._agents)
        client.create(SECRETS, agents.build_secret(pod, files), self._agents)
        self._steps("started the agent")

    @_reported()
    def stop_agent(self, host: str, order: Order, lease_id: str) -> None:
        """Delete the pod and the Secret of `start_agent`."""
        self._stop_agent(self._connect(order), host, lease_id)

    def _stop_agent(self, client: api.Client, host: str, lease_id: str) -> None:
        name = agents.build_name(host, lease_id)
        for kind in (PODS, SECRETS):
            self._steps(f"before the deletion of {kind.plural} of the agent")
            client.delete(kind, name, self._agents)

    def _connect(self, order: Order) -> api.Client:
        with self._lock:
            if order.where not in self._clients:
                self._clients[order.where] = api.connect(order.where)
            return self._clients[order.where]

    def _list_evictable(self, client: api.Client, host: str, lease: Lease) -> list[Object]:
        return [
            pod
            for pod in _list_pods(client, host)
            if pods.is_foreign(pod, lease.id) and not pods.find_reason_to_stay(pod)
        ]


def _list_pods(client: api.Client, host: str) -> list[Object]:
    return client.list(PODS, fields=f"spec.nodeName={host}")


def _list_budgets(client: api.Client) -> list[Object]:
    for version in ("policy/v1", "policy/v1beta1"):
        with kubernetes_api.accept(404):
            found = client.list(kubernetes_api.Kind(version, "poddisruptionbudgets"))
            # Lists leave out the version of their items, and an empty selector means something else in each.
            return [{**item, "apiVersion": version} for item in found]
    return []


def _evict(client: api.Client, pod: Object, version: str) -> str:
    name, metadata = pods.name(pod), pod["metadata"]
    body = {
        "apiVersion": version or "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": metadata["name"], "namespace": metadata["namespace"]},
        # A StatefulSet starts another pod with the same name, maybe on another node.
        "deleteOptions": {"preconditions": {"uid": metadata["uid"]}},
    }
    try:
        client.create(PODS, body, metadata["namespace"], name=metadata["name"], part="eviction")
    except kubernetes_api.KubernetesError as error:
        if error.code in (404, 409):
            return f"pod {name} is gone"
        # 429: its budget. 500: two budgets. Never deleted: that would ignore them.
        if error.code in (429, 500):
            return f"cannot evict pod {name}: {error.why}"
        raise
    return f"evicted pod {name}"


def _is_whole(node: Object | None, claim: Object | None, lease: Lease) -> bool:
    return bool(
        node and claim and marks.carries(node, lease.id) and marks.find_holder(claim) == lease.id
    )


def _gone(host: str, node: Object | None, claim: Object) -> reservations.GoneError:
    return reservations.GoneError(
        marks.find_absence(host, node, claim)
        if claim or node is None
        else f"nothing on node {host} says that it is reserved",
        why="it was deleted, or given back by hand",
        todo="release this reservation, and reserve another host: `overnight reservations`",
    )


def _taken(host: str, held: Held) -> reservations.TakenError:
    return reservations.TakenError(
        f"{host} is reserved",
        why=f"it belongs to {marks.describe(held)}" if held.id else "its Lease object is gone",
        todo="choose another host, or release that reservation: `overnight reservations list`",
    )
