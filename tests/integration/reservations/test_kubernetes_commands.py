"""`overnight reserve`, `release` and `janitor` as processes, with the rights of the manifests alone."""

from __future__ import annotations

import json
import os
import pathlib
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import kube_reservations as site
import nodes
import pytest

from overnight import kubernetes_api
from overnight.reservations.providers import _kubernetes_marks as marks

pytestmark = pytest.mark.needs_kubernetes


@pytest.fixture(scope="module")
def place(kubernetes_site: site.Site) -> Iterator[site.Site]:
    with kubernetes_site.with_nodes(node_p={"pool": "p"}, node_q={}) as place:
        yield place


class Home:
    """A data home, and the commands on it."""

    def __init__(self, place: site.Site, path: pathlib.Path) -> None:
        self.place = place
        self.path = path

    def start(self, *arguments: str, account: str = "overnight-reserver") -> Any:
        return subprocess.Popen(
            [sys.executable, "-m", "overnight", "--home", str(self.path), *arguments],
            env={**os.environ, "KUBECONFIG": str(self.place.folder / account)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *arguments: str, account: str = "overnight-reserver", code: int = 0) -> str:
        process = self.start(*arguments, account=account)
        output, problem = process.communicate(timeout=60)
        assert process.returncode == code, (arguments, output, problem)
        return str(problem if code > 1 else output)

    def reserve(self, *arguments: str, code: int = 1) -> str:
        """Reserve; 1: the check of the agent fails, as there is none."""
        return self.run("reserve", "--provider", "kubernetes", *arguments, code=code)


@pytest.fixture
def home(place: site.Site, tmp_path: pathlib.Path) -> Iterator[Home]:
    yield Home(place, tmp_path / "home")
    place.cluster.kubectl("delete", "--wait=false", "-n", "default", "deployments,pods", "--all")
    place.run_janitor()
    place.wait_for_nothing()
    nodes.wait_until(lambda: not place.pods(), "no pod is left")


def test_a_node_is_planned_reserved_and_given_back(place: site.Site, home: Home) -> None:
    before = {name: place.foreign(name) for name in ("node-p", "node-q")}
    place.apply(site.workload("Deployment", "web", replicas=1, nodeSelector={"pool": "p"}))
    (pod,) = place.wait_for_pods(1, app="web")
    name = f"default/{pod['metadata']['name']}"
    order = ("--where", "overnight-reserver", "--host", "node-p", "--for", "1h", "--evict")
    plan = home.reserve(*order, "--dry-run", code=0)
    assert f"ReplicaSet pod {name} is evicted" in plan
    assert place.ours() == []
    refusal = home.reserve(*order, code=2)
    assert f"evicts ReplicaSet pod {name} from node-p" in refusal
    assert place.ours() == []
    document = json.loads(home.reserve(*order, "--yes", "-O", "json"))
    assert document["state"] == "active"
    assert marks.carries(place.node("node-p"), document["id"])
    checks = {c["name"]: c["state"] for c in document["hosts"][0]["checks"]}
    assert checks["foreign-workload"] == checks["marks"] == "passed"
    assert "node-p: reserved by " in home.reserve(*order, code=3)
    # A valid lease is not the janitor's.
    home.run("janitor", "--provider", "kubernetes", account="overnight-janitor")
    assert marks.carries(place.node("node-p"), document["id"])
    home.run("release", document["id"])
    assert place.ours() == []
    assert {name: place.foreign(name) for name in before} == before


def test_the_janitor_alone_gives_back_what_a_killed_command_left(
    place: site.Site, home: Home
) -> None:
    before = place.foreign("node-p")
    place.apply(site.lone_pod("stuck", "node-p"))
    place.wait_for_pods(1, app="stuck")
    place.apply(
        {
            "apiVersion": "policy/v1beta1",
            "kind": "PodDisruptionBudget",
            "metadata": {"name": "stuck", "namespace": "default"},
            "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "stuck"}}},
        }
    )
    process = home.start(
        *("reserve", "--provider", "kubernetes", "--host", "node-p", "--evict", "--yes")
    )
    nodes.wait_until(lambda: marks.find_ids(place.node("node-p")), "the node is marked")
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    janitor = ("janitor", "--provider", "kubernetes")
    home.run(*janitor, account="overnight-janitor")
    assert place.ours() != []  # its lease has not ended
    record = marks.read_record(place.node("node-p"))
    assert record is not None
    ended = json.loads(record.text()) | {"until_us": (time.time_ns() // 1000) - 300_000_000}
    change = {"metadata": {"annotations": {marks.RECORD: json.dumps(ended)}}}
    place.admin.patch(kubernetes_api.NODES, "node-p", change)
    place.admin.patch(kubernetes_api.LEASES, marks.name_claim("node-p"), change, "overnight")
    assert "node-p" in home.run(*janitor, "--dry-run", account="overnight-janitor")
    assert place.ours() != []
    home.run(*janitor, account="overnight-janitor")
    assert place.ours() == []
    assert place.foreign("node-p") == before
    assert [pod["metadata"]["name"] for pod in place.pods()] == ["stuck"]
    place.cluster.kubectl("delete", "pdb", "stuck", "-n", "default")


def test_a_missing_right_and_an_unreachable_cluster_are_explained(
    place: site.Site, home: Home
) -> None:
    order = ("reserve", "--provider", "kubernetes", "--host", "node-q")
    text = home.run(*order, account="overnight-janitor", code=3)
    assert "cannot list poddisruptionbudgets" in text
    assert "kubectl --context overnight-janitor auth can-i list poddisruptionbudgets" in text
    text = home.reserve("--where", "nowhere", code=3)
    assert "context nowhere does not exist" in text
    closed = json.loads((place.folder / "overnight-janitor").read_text())
    closed["clusters"][0]["cluster"]["server"] = "https://127.0.0.1:9"
    (place.folder / "closed").write_text(json.dumps(closed))
    text = home.run("janitor", "--provider", "kubernetes", account="closed", code=3)
    assert "https://127.0.0.1:9 does not answer" in text
    assert place.ours() == []
