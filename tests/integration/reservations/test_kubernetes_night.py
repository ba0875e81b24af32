"""An investigation on nodes of a real control plane, with real agents in their pods."""

from __future__ import annotations

import contextlib
import os
import pathlib
import subprocess
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

import nodes
import plannednights
import pytest
import serverprocesses

from overnight import kubernetes_api
from overnight.app import agent

if TYPE_CHECKING:
    import kube_reservations as site

pytestmark = pytest.mark.needs_kubernetes

# As a pod with hostNetwork, it has the host name of its node.
OVERNIGHT = f"""\
#!/bin/sh
export PYTHONPATH={os.environ.get("PYTHONPATH", "")}
exec unshare --uts /bin/sh -c 'echo "$NODE_NAME" > /proc/sys/kernel/hostname; exec "$0" -m overnight "$@"' \\
  {sys.executable} "$@"
"""
PLAN = """\
name: two arms on nodes
hosts: {provider: kubernetes, where: overnight-reserver, labels: {night: "yes"}}
arms:
  - {kind: cold, hosts: 1}
  - {kind: hot, hosts: 1}
load: {kind: cpu, duty: 10%, cores: "0"}
record: {segment: 5s, frequency: 19}
wait: {for: 30s, events: [job.failed]}
budget: {hours: 0.5}
"""


@pytest.fixture
def place(kubernetes_site: site.Site) -> Iterator[site.Site]:
    program = kubernetes_site.folder / "programs" / "overnight"
    before = program.read_text()
    program.write_text(OVERNIGHT)
    kubernetes_site.kubelets.seconds = 600.0
    with kubernetes_site.with_nodes(node_c={"night": "yes"}, node_h={"night": "yes"}) as place:
        yield place
        place.run_janitor()
        place.wait_for_nothing()
    program.write_text(before)
    kubernetes_site.kubelets.seconds = nodes.PROCESS_SECONDS


def find_home(place: site.Site, node: str) -> pathlib.Path:
    """Return the data home of the agent on a node."""
    [pod] = [
        pod
        for pod in place.admin.list(kubernetes_api.PODS, "overnight-agents")
        if pod["spec"].get("nodeName") == node
    ]
    return place.folder / "pods" / str(pod["metadata"]["uid"]) / "data"


@pytest.fixture
def night(place: site.Site, tmp_path: pathlib.Path) -> Iterator[plannednights.Night]:
    variables = {
        "KUBECONFIG": str(place.folder / "overnight-reserver"),
        "OVERNIGHT_AGENT_IMAGE": "overnight",
    }
    with contextlib.closing(plannednights.Night(tmp_path, **variables)) as made:
        yield made


@pytest.mark.long
@pytest.mark.needs_root
@pytest.mark.needs_perf
@pytest.mark.timeout(600)
def test_arms_on_nodes_go_on_with_another_server(
    place: site.Site, night: plannednights.Night
) -> None:
    assert not agent.CONFIG.exists()  # it would decide, not the plan
    before = {name: place.foreign(name) for name in ("node-c", "node-h")}
    made = night.ask_first("run", night.write_plan(PLAN), "--yes")
    night.wait_for(made, lambda now: [arm["state"] for arm in now["arms"]] == ["running"] * 2)
    assert {held for held in place.ours() if held.startswith("node ")} == {"node node-c", "node node-h"}  # fmt: skip
    home = find_home(place, "node-h")
    options = ("--kind", "job.failed", "--host", "node-h")
    subprocess.run([*serverprocesses.OVERNIGHT, "--home", home, "event", "add", *options], check=True)  # fmt: skip
    night.replace_server()
    ended = night.wait_for(made, lambda now: now["phase"] == "ended", 400)
    assert (ended["outcome"], ended["reason"]) == ("reproduced", "")
    cold, hot = ended["arms"]
    assert (cold["hosts"], hot["hosts"]) == (["node-c"], ["node-h"])
    # Nothing was asked twice: the hosts went on while no server ran.
    for arm in (cold, hot):
        states = [(task["kind"], task["state"]) for task in arm["tasks"] if task["kind"] != "age"]
        assert [kind for kind, _ in states] == ["record", "load"], states
        assert states[0] == ("record", "done")
    assert not cold["occurrences"]
    [seen] = hot["occurrences"]
    assert (seen["host"], seen["kind"]) == ("node-h", "job.failed")
    # The host was kept until the window of the event was there.
    assert seen["headline"], ended["notes"]
    assert "not diagnosed" not in seen["headline"]
    text = night.read(f"/investigations/{made}/report.txt").decode()
    assert "job.failed: 0 in the cold arm" in text
    assert night.read(f"/investigations/{made}/report.html").startswith(b"<!doctype html>")
    place.wait_for_nothing()
    assert {name: place.foreign(name) for name in before} == before
    nodes.wait_until(lambda: not plannednights.list_processes(str(home)), "its agent and tasks have ended")  # fmt: skip
