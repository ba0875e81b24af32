"""Seconds and API requests to reserve and release nodes of a real control plane, beside kubectl.

The peer puts the same taint, label and annotations on the same nodes, with one command for all of them: without claim,
owner or end. kubectl 1.20 sends at most 5 requests a second, so its seconds are those of its limit. Nodes have no
kubelet.
"""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import unittest.mock
from collections.abc import Callable

from benchmarks import Result

sys.path.append(str(pathlib.Path(__file__).parents[1] / "tests/support"))

import clusters

NODES = 50
ROUNDS = 3
KEY = "overnight.dev/lease"


def measure() -> list[Result]:
    if subprocess.run([clusters.SCRIPT, "path"], capture_output=True, check=False).returncode:
        sys.exit("no control plane to measure with: scripts/kubernetes build")
    with clusters.running() as cluster, tempfile.TemporaryDirectory() as folder:
        cluster.kubectl("create", "namespace", "overnight")
        cluster.kubectl("create", "namespace", "overnight-agents")
        names = [f"node-{n:02}" for n in range(NODES)]
        for name in names:
            cluster.create_node(name)
        clusters.wait_until(
            lambda: not any(node["spec"].get("taints") for node in cluster.get("nodes")),
            "nodes without the taint of new nodes",
        )
        rounds = [_reserve(cluster, names, pathlib.Path(folder)) for _ in range(ROUNDS)]
        peer = _mark_with_kubectl(cluster, names)
    # The fastest round: what disturbs one only adds to it.
    taken, released = (
        min(costs, key=lambda cost: cost.seconds) for costs in zip(*rounds, strict=True)
    )
    peer_taken, peer_released = peer
    return [
        Result("reserve a node, of 50 in turn", taken.seconds, "s", "", None, "kubectl taint, label, annotate", peer_taken.seconds),
        Result("API requests to reserve a node", taken.requests, "requests", "", None, "kubectl taint, label, annotate", peer_taken.requests),
        Result("release a node, of 50 in turn", released.seconds, "s", "", None, "kubectl, the same removed", peer_released.seconds),
        Result("API requests to release a node", released.requests, "requests", "", None, "kubectl, the same removed", peer_released.requests),
    ]  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Cost:
    """Of one node."""

    seconds: float
    requests: float


def _measure(cluster: clusters.Cluster, work: Callable[[], None]) -> Cost:
    before, begin = _count_requests(cluster), time.perf_counter()
    work()
    seconds = time.perf_counter() - begin
    return Cost(seconds / NODES, (_count_requests(cluster) - before) / NODES)


def _count_requests(cluster: clusters.Cluster) -> float:
    """Return the requests for nodes, Leases, pods and Secrets so far, without those that last (watches)."""
    lines = cluster.kubectl("get", "--raw", "/metrics").splitlines()
    return sum(
        float(line.rpartition(" ")[2])
        for line in lines
        if line.startswith("apiserver_request_total{") and 'verb="WATCH"' not in line
        and any(f'resource="{kind}"' in line for kind in ("nodes", "leases", "pods", "secrets"))
    )  # fmt: skip


def _reserve(cluster: clusters.Cluster, names: list[str], home: pathlib.Path) -> tuple[Cost, Cost]:
    from overnight import reservations
    from overnight.model.reservation import Lease, Order
    from overnight.reservations.providers import kubernetes

    with unittest.mock.patch.dict(os.environ, KUBECONFIG=str(cluster.kubeconfig)):
        provider = kubernetes.create(reservations.Settings(home=home))
        order, now = Order(provider="kubernetes"), time.time_ns() // 1000
        lease = Lease("r-0123456789ab", "bench", now + 3_600_000_000, now + 7_200_000_000)

        def take() -> None:
            for name in names:
                provider.claim(name, order, lease)
                provider.mark(name, order, lease)
                assert provider.empty(name, order, lease, print)

        def release() -> None:
            for name in names:
                provider.release(name, order, lease.id)

        provider.list_held(order)  # connects
        costs = _measure(cluster, take), _measure(cluster, release)
        assert not provider.list_held(order)
        provider.close()
    return costs


def _mark_with_kubectl(cluster: clusters.Cluster, names: list[str]) -> tuple[Cost, Cost]:
    record = json.dumps({"id": "r-0123456789ab", "owner": "bench"})
    annotations = {
        "overnight.dev/lease-record": record,
        "overnight.dev/lease-undo": record,
        "cluster-autoscaler.kubernetes.io/scale-down-disabled": "true",
        "karpenter.sh/do-not-disrupt": "true",
    }

    def run(*words: str) -> None:
        command = ["kubectl", *words]
        subprocess.run(command, env=cluster.environment, stdout=subprocess.DEVNULL, check=True)

    def take() -> None:
        run("taint", "nodes", *names, f"{KEY}=r-0123456789ab:NoSchedule")
        run("label", "nodes", *names, f"{KEY}=r-0123456789ab")
        run("annotate", "nodes", *names, *(f"{key}={value}" for key, value in annotations.items()))

    def release() -> None:
        run("taint", "nodes", *names, f"{KEY}-")
        run("label", "nodes", *names, f"{KEY}-")
        run("annotate", "nodes", *names, *(f"{key}-" for key in annotations))

    return _measure(cluster, take), _measure(cluster, release)
