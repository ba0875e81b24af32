"""A cluster with stand-in nodes and the rights of deploy/kubernetes/reservations, for tests of reservations."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import pathlib
import random
import time
from collections.abc import Callable, Iterator
from typing import Any

import nodes

from overnight import kubernetes_api, reservations
from overnight.model.reservation import Lease, Order
from overnight.reservations.providers import _kubernetes_marks as marks
from overnight.reservations.providers import kubernetes as provider

Object = dict[str, Any]
REPOSITORY = pathlib.Path(__file__).parents[2]
DEPLOY = REPOSITORY / "deploy/kubernetes"
HOUR_US = 3_600_000_000


def now_us() -> int:
    return time.time_ns() // 1000


def make_lease(end_us: int = HOUR_US, owner: str = "ana") -> Lease:
    until_us = now_us() + end_us
    return Lease(f"r-{random.getrandbits(48):012x}", owner, until_us, until_us + HOUR_US, "test")


@dataclasses.dataclass
class Site:
    cluster: nodes.Cluster
    kubelets: nodes.Kubelets
    folder: pathlib.Path
    order: Order
    clients: dict[str, Any] = dataclasses.field(default_factory=dict)

    @property
    def admin(self) -> Any:
        return self.kubelets.admin

    @contextlib.contextmanager
    def account(
        self, name: str = "overnight-reserver", steps: Callable[[str], None] = lambda _: None
    ) -> Iterator[provider.Nodes]:
        """Return the provider with the rights of an account."""
        settings = reservations.Settings(home=self.folder, image="overnight", steps=steps)
        own = provider.create(settings)
        if name not in self.clients:  # a connection takes longer than all requests of a test
            self.clients[name] = nodes.connect(self.folder / name)
        own._clients[""] = self.clients[name]
        yield own

    @contextlib.contextmanager
    def with_nodes(self, **labels: dict[str, str]) -> Iterator[Site]:
        """Add nodes, and remove them at the end; underscores in names are hyphens."""
        names = {name.replace("_", "-"): own for name, own in labels.items()}
        for name, own in names.items():
            self.kubelets.add(name, own)
        yield self
        for name in names:
            self.kubelets.remove(name)

    def run_janitor(self) -> None:
        """Do what a janitor does with leases that are over, with nothing but its account."""
        with self.account("overnight-janitor") as own:
            for held in own.list_held(self.order):
                own.release(held.host, self.order, held.id)

    def node(self, name: str) -> Object:
        found: Object = self.admin.get(kubernetes_api.NODES, name)
        return found

    def foreign(self, name: str) -> Object:
        """Return what others wrote on a node."""
        node = self.node(name)
        ours = (marks.KEY, marks.RECORD, marks.UNDO)
        return {
            "labels": {k: v for k, v in marks.labels_of(node).items() if k not in ours},
            "annotations": {k: v for k, v in marks.annotations_of(node).items() if k not in ours},
            "taints": sorted(
                (t["key"], t.get("value", ""), t["effect"])
                for t in marks.taints_of(node)
                if t["key"] != marks.KEY
            ),
        }

    def ours(self) -> list[str]:
        """Return every trace of a reservation in the cluster, found without the code under test."""
        traces = [
            f"node {node['metadata']['name']}"
            for node in self.admin.list(kubernetes_api.NODES)
            if "overnight.dev" in json.dumps({**node, "metadata": {**node["metadata"], "managedFields": 0}})
        ]  # fmt: skip
        for kind, namespace in (
            (kubernetes_api.LEASES, "overnight"),
            (kubernetes_api.PODS, "overnight-agents"),
        ):
            found = self.admin.list(kind, namespace)
            traces += [f"{kind.plural} {item['metadata']['name']}" for item in found]
        secrets = self.admin.list(kubernetes_api.SECRETS, "overnight-agents")
        traces += [s["metadata"]["name"] for s in secrets if s["type"] == "Opaque"]
        return traces

    def wait_for_nothing(self) -> None:
        nodes.wait_until(lambda: not self.ours(), "no trace of a reservation is left")

    def apply(self, *objects: Object) -> None:
        text = json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})
        self.cluster.kubectl("apply", "-f", "-", text=text)

    def pods(self, **labels: str) -> list[Object]:
        selector = ",".join(f"{key}={value}" for key, value in labels.items())
        found: list[Object] = self.admin.list(kubernetes_api.PODS, "default", labels=selector)
        return found

    def wait_for_pods(self, count: int, **labels: str) -> list[Object]:
        """Wait until that many pods run, and none besides."""

        def run() -> bool:
            return [p["status"].get("phase") for p in self.pods(**labels)] == ["Running"] * count

        nodes.wait_until(run, f"{count} pods of {labels} run")
        return self.pods(**labels)


def template(app: str, **spec: Any) -> Object:
    return {
        "metadata": {"labels": {"app": app}},
        "spec": {
            "containers": [{"name": "c", "image": "i"}],
            "terminationGracePeriodSeconds": 1,
            **spec,
        },
    }


def workload(kind: str, app: str, *, replicas: int | None = None, **spec: Any) -> Object:
    counted = {} if replicas is None else {"replicas": replicas}
    selector = {"matchLabels": {"app": app}}
    return {
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": {"name": app, "namespace": "default"},
        "spec": {**counted, "selector": selector, "template": template(app, **spec)},
    }


def lone_pod(app: str, node: str, annotations: dict[str, str] | None = None) -> Object:
    body = template(app, nodeName=node)
    metadata = {"name": app, "namespace": "default", "annotations": annotations or {}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {**body["metadata"], **metadata},
        "spec": body["spec"],
    }


@contextlib.contextmanager
def running(cluster: nodes.Cluster, folder: pathlib.Path) -> Iterator[Site]:
    """Create the accounts, and start a stand-in for kubelets."""
    programs = folder / "programs"
    programs.mkdir()
    # In place of the agent: proves what the pod of an agent gets, then runs until it is stopped.
    stub = programs / "overnight"
    stub.write_text(
        '#!/bin/sh\nfor a; do case $a in --token-file=*) cat "${a#*=}" > seen;; esac; done\n'
        'printf "%s\\n" "$*" > arguments\nexec sleep 60\n'
    )
    stub.chmod(0o755)
    cluster.kubectl("apply", "-f", DEPLOY / "base/namespaces.yaml")
    cluster.kubectl("apply", "-f", DEPLOY / "reservations/rights.yaml")
    for account in ("overnight-reserver", "overnight-janitor"):
        nodes.write_kubeconfig(cluster, account, folder / account)
    with nodes.running(cluster, folder / "pods", programs) as kubelets:
        for account in ("overnight", "overnight-agents"):
            nodes.wait_until(
                lambda ns=account: kubelets.admin.find(nodes.ACCOUNTS, "default", ns),  # type: ignore[misc]
                "the default account exists",
            )
        place = Site(cluster, kubelets, folder, Order(provider="kubernetes", evict=True))
        yield place
        for client in place.clients.values():
            client.close()
