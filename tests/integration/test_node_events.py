"""`overnight node-events` on a real API server, with the rights of deploy/kubernetes/node-events alone."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import pathlib
import platform
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import hoststatus
import nodes
import pytest
import yaml

from overnight import kubernetes_api
from overnight.agent.outlets import npd
from overnight.app import node_events
from overnight.app.node_events import similar_events, writer
from overnight.model import clock
from overnight.store.ring import writer as rings

if TYPE_CHECKING:
    import clusters

    from overnight.kubernetes_api import client as api
    from overnight.model.event import Event

pytestmark = pytest.mark.needs_kubernetes
FOLDER = pathlib.Path(__file__).parents[2] / "deploy/kubernetes"
HOST = platform.node()
ZOMBIES, LOOP = "ZombieMemoryCgroups", "UnitCrashLoop"
# As node-problem-detector writes it, with a name that is also one of ours.
FOREIGN = {"type": "ReadonlyFilesystem", "status": "False", "reason": "FilesystemIsNotReadOnly"}
Object = dict[str, Any]


@dataclasses.dataclass
class Site:
    cluster: nodes.Cluster
    account: pathlib.Path
    admin: api.Client
    client: api.Client

    def conditions(self, node: str) -> dict[str, Object]:
        found = self.admin.get(kubernetes_api.NODES, node)["status"]["conditions"]
        return {condition["type"]: condition for condition in found}

    def events(self, node: str) -> list[Object]:
        selector = f"involvedObject.name={node},source=overnight"
        return self.admin.list(kubernetes_api.EVENTS, "default", fields=selector)


@pytest.fixture(scope="module")
def site(cluster: clusters.Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    path = tmp_path_factory.mktemp("account") / "overnight-node-events"
    cluster.kubectl("apply", "-f", FOLDER / "base/namespaces.yaml")
    cluster.kubectl("apply", "-f", FOLDER / "node-events/rights.yaml")
    nodes.write_kubeconfig(cluster, "overnight-node-events", path, "overnight-agents")
    admin, own = nodes.connect(cluster.kubeconfig), nodes.connect(path)
    with contextlib.closing(admin), contextlib.closing(own):
        yield Site(cluster, path, admin, own)


@pytest.fixture
def node(site: Site, request: pytest.FixtureRequest) -> Iterator[str]:
    name = f"n-{abs(hash(request.node.name)) % 10**8}"
    site.cluster.create_node(name)
    yield name
    site.admin.delete(kubernetes_api.NODES, name)


class Recorder:
    """The ring of a recorder; `see` records an event now."""

    def __init__(self, home: pathlib.Path) -> None:
        self.home = home
        self._ring = rings.Writer(
            home, HOST, "1a2b3c4d-0000", budget_bytes=1 << 30, age_seconds=86400
        )
        self.tick()

    def tick(self) -> None:
        now = clock.Clock(time.time_ns(), time.monotonic_ns())
        self._ring.numbers("cpu", ("user",), now, {"0": (time.monotonic_ns() // 10**9,)})
        self._ring.tick(now)

    def see(self, kind: str, id_: str = "1", ago: float = 0, **changes: Any) -> Event:
        now = time.time_ns() // 1000 - round(ago * 1e6)
        event = hoststatus.make_event(
            kind, time_us=now, until_us=now, id=f"{kind}-{id_}", host=HOST, **changes
        )
        self._ring.event(event)
        return event

    def close(self) -> None:
        self._ring.close()


@pytest.fixture
def recorder(tmp_path: pathlib.Path) -> Iterator[Recorder]:
    with contextlib.closing(Recorder(tmp_path / "home")) as recorder:
        yield recorder


class Follower:
    """The process, without its process; `log` has its messages."""

    def __init__(self, site: Any, node: str, home: pathlib.Path, **bucket: float) -> None:
        self.log: list[str] = []
        options = node_events.Options(home=home, node=node)
        limit = writer.Bucket(int(bucket.get("burst", 1000)), bucket.get("every", 1.0))
        self.writer = writer.NodeWriter(site.client, node, time.monotonic, limit)
        self._follower = node_events.Follower(options, self.writer, self.log.append)

    def set_clear_time(self, seconds: float) -> None:
        outlet = self._follower._outlet
        assert outlet is not None
        outlet._clear_us = round(seconds * 1e6)

    def poll(self, times: int = 1) -> None:
        for _ in range(times):
            self._follower._next = 0
            self._follower.poll()


@contextlib.contextmanager
def running(
    account: pathlib.Path, node: str, home: pathlib.Path
) -> Iterator[subprocess.Popen[str]]:
    environment = {**os.environ, "KUBECONFIG": str(account), "NODE_NAME": node}
    command = [sys.executable, "-m", "overnight", "--home", str(home), "node-events"]
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def test_a_heartbeat_shows_that_the_reporter_and_the_recorder_live(
    site: Site, node: str, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "CHECK_SECONDS", 0.5)
    follower = Follower(site, node, recorder.home)
    follower.poll(2)
    first = site.conditions(node)[ZOMBIES]
    foreign = site.conditions(node)["Ready"]
    assert first["lastHeartbeatTime"] >= first["lastTransitionTime"]
    time.sleep(2)
    recorder.tick()
    follower.poll(2)
    second = site.conditions(node)
    assert second[ZOMBIES]["lastHeartbeatTime"] > first["lastHeartbeatTime"]
    assert second[ZOMBIES]["lastTransitionTime"] == first["lastTransitionTime"]
    assert second["Ready"] == foreign
    # A recorder that is silent has nothing to confirm.
    monkeypatch.setattr(node_events, "SILENT_SECONDS", -1.0)
    follower.poll()
    third = site.conditions(node)[ZOMBIES]
    time.sleep(2)
    follower.poll(3)
    assert site.conditions(node)[ZOMBIES] == third


def test_an_event_becomes_a_node_event_and_a_condition_and_survives_a_kill(
    site: Site, node: str, recorder: Recorder
) -> None:
    before = site.conditions(node)
    event = recorder.see("memory.zombie_cgroups")
    files = set(recorder.home.rglob("*"))
    for attempt in range(2):
        with running(site.account, node, recorder.home) as process:
            nodes.wait_until(
                lambda: site.conditions(node).get(ZOMBIES, {}).get("status") == "True",
                "the condition is true",
            )
            nodes.wait_until(lambda: site.events(node), "the event is there")
            if attempt:
                recorder.see("cpu.core_pinned")  # written after what the process replays
                nodes.wait_until(lambda: len(site.events(node)) == 2, "the second event is there")
                process.send_signal(signal.SIGTERM)
                assert process.wait(20) == 0
    assert set(recorder.home.rglob("*")) == files  # its volume is read-only
    [stored] = [e for e in site.events(node) if e["reason"] == "MemoryZombieCgroups"]
    assert (stored["count"], stored["message"], stored["type"]) == (3, event.text, "Warning")
    conditions = site.conditions(node)
    assert conditions["Ready"] == before["Ready"]
    assert set(conditions) == {"Ready", *npd.CONDITIONS.values()}
    assert {conditions[t]["status"] for t in npd.CONDITIONS.values()} == {"True", "Unknown"}
    described = site.cluster.kubectl("describe", "node", node)
    assert "MemoryZombieCgroups" in described.partition("Events:")[2]


def test_a_condition_clears_and_returns(site: Site, node: str, recorder: Recorder) -> None:
    recorder.see("unit.crash_loop", ago=200)
    follower = Follower(site, node, recorder.home)
    follower.poll()
    assert site.conditions(node)[LOOP]["status"] == "True"
    assert site.conditions(node)[ZOMBIES]["reason"] == "NotYetLooked"
    follower.set_clear_time(100)
    follower.poll()
    cleared = site.conditions(node)[LOOP]
    assert (cleared["status"], cleared["reason"]) == ("False", "Clear")
    recorder.see("unit.crash_loop", "2")
    follower.poll()
    assert site.conditions(node)[LOOP]["status"] == "True"
    assert follower.log == []


def test_a_silent_recorder_clears_nothing(
    site: Site, node: str, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorder.see("unit.crash_loop", ago=200)
    follower = Follower(site, node, recorder.home)
    follower.poll()
    follower.set_clear_time(100)
    monkeypatch.setattr(node_events, "SILENT_SECONDS", -1)
    follower.poll(2)
    assert site.conditions(node)[LOOP]["status"] == "True"
    assert len(follower.log) == 1
    assert "has written nothing" in follower.log[0]
    monkeypatch.undo()
    follower.poll(2)
    assert follower.log[1:] == [f"the recorder of {HOST} writes again"]
    # It had no time yet to see the problem again.
    assert site.conditions(node)[LOOP]["status"] == "True"
    follower.set_clear_time(0)
    follower.poll()
    assert site.conditions(node)[LOOP]["status"] == "False"


def test_conditions_of_others_are_untouched_and_those_of_old_rules_removed(
    site: Site, node: str, recorder: Recorder
) -> None:
    status = {"status": {"conditions": [FOREIGN, {**FOREIGN, "type": "KernelDeadlock"}]}}
    site.admin.patch_status(kubernetes_api.NODES, node, status, manager="npd")
    old = {"status": {"conditions": [{**FOREIGN, "type": "OldRule"}]}}
    site.admin.patch_status(kubernetes_api.NODES, node, old, manager=writer.MANAGER)
    before = site.conditions(node)
    recorder.see("storage.readonly")
    follower = Follower(site, node, recorder.home)
    follower.poll()
    follower.set_clear_time(0)
    # A kubelet writes its own meanwhile.
    ready = {"status": {"conditions": [{"type": "Ready", "status": "True", "reason": "Kubelet"}]}}
    site.admin.patch_status(kubernetes_api.NODES, node, ready, manager="kubelet")
    follower.poll()
    after = site.conditions(node)
    assert after["ReadonlyFilesystem"] == before["ReadonlyFilesystem"]
    assert after["KernelDeadlock"] == before["KernelDeadlock"]
    assert after["Ready"]["reason"] == "Kubelet"
    assert "OldRule" not in after
    assert [e["reason"] for e in site.events(node)] == ["FilesystemIsReadOnly"]
    assert follower.log == ["condition ReadonlyFilesystem belongs to another program and is left alone"]  # fmt: skip


def test_a_storm_is_limited_and_counted(site: Site, node: str, recorder: Recorder) -> None:
    began = time.monotonic()
    path = recorder._ring.folder / f"events-{time.strftime('%Y%m', time.gmtime())}.jsonl"
    now = time.time_ns() // 1000
    storm = [
        hoststatus.make_event(
            f"net.kind{number % 5}", text=f"line {number}", id=f"net.k-{number}",
            time_us=now, until_us=now, count=1,
        ).as_json()
        for number in range(10_000)
    ]  # fmt: skip
    path.write_text("".join(json.dumps(event) + "\n" for event in storm))
    recorder.see("unit.crash_loop")
    follower = Follower(site, node, recorder.home, burst=8, every=1000)
    follower.poll(30)
    assert time.monotonic() - began < 30
    assert len(site.events(node)) == 7
    assert site.conditions(node)[LOOP]["status"] == "True"  # before all events
    follower.writer._bucket = writer.Bucket(1000, 1)
    follower.poll(2)
    stored = site.events(node)
    # Ten texts of each kind, and one object for all the others.
    assert len(stored) == 5 * (similar_events.MAX_SIMILAR + 1) + 1
    assert sum(e["count"] for e in stored if e["reason"].startswith("NetKind")) == 10_000
    versions = {e["metadata"]["resourceVersion"] for e in stored}
    recorder.see("net.kind0", "more", text="line more", count=5)
    follower.poll(3)  # an object is not updated every second
    assert {e["metadata"]["resourceVersion"] for e in site.events(node)} == versions


class Away:
    """A client whose server is away for a while."""

    def __init__(self, client: api.Client) -> None:
        self.away = True
        self._client = client

    def __getattr__(self, name: str) -> Any:
        if self.away:
            raise kubernetes_api.KubernetesError("no answer", why="away", todo="wait", retry=True)
        return getattr(self._client, name)


def test_nothing_is_lost_while_the_server_is_away(
    site: Site, node: str, recorder: Recorder
) -> None:
    away = Away(site.client)
    follower = Follower(dataclasses.replace(site, client=away), node, recorder.home)
    recorder.see("memory.zombie_cgroups")
    follower.poll(3)
    away.away = False
    follower.poll()
    assert site.conditions(node)[ZOMBIES]["status"] == "True"
    away.away = True
    for number in range(50):
        recorder.see("unit.crash_loop", str(number))
        follower.poll()
    away.away = False
    follower.poll()
    assert site.conditions(node)[LOOP]["status"] == "True"
    [loop] = [e for e in site.events(node) if e["reason"] == "UnitCrashLoop"]
    assert loop["count"] == 150
    assert (
        follower.log
        == [
            line
            for line in (
                "no answer: away; trying again. Next: wait",
                "the API server answers again",
            )
            for line in [line]
        ]
        * 2
    )


def test_a_node_that_lost_its_conditions_and_events_gets_them_again(
    site: Site, node: str, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorder.see("unit.crash_loop")
    follower = Follower(site, node, recorder.home)
    follower.poll()
    site.admin.delete(kubernetes_api.NODES, node)
    site.cluster.create_node(node)
    [event] = site.events(node)
    site.admin.delete(kubernetes_api.EVENTS, event["metadata"]["name"], "default")
    monkeypatch.setattr(writer, "CHECK_SECONDS", 0)
    monkeypatch.setattr(similar_events, "UPDATE_SECONDS", 0)
    recorder.see("unit.crash_loop", count=4)
    follower.poll()
    assert site.conditions(node)[LOOP]["status"] == "True"
    assert [e["count"] for e in site.events(node)] == [4]
    assert follower.log == []


def test_missing_rights_and_a_server_that_is_away_are_named(
    site: Site, node: str, recorder: Recorder, tmp_path: pathlib.Path
) -> None:
    nodes.wait_until(lambda: site.admin.find(nodes.ACCOUNTS, "default", "overnight-agents"), "account")  # fmt: skip
    other = nodes.write_kubeconfig(site.cluster, "default", tmp_path / "other", "overnight-agents")
    document = yaml.safe_load(site.account.read_text())
    document["clusters"][0]["cluster"]["server"] = "https://127.0.0.1:9"
    gone = tmp_path / "gone"
    gone.write_text(json.dumps(document))
    for account, messages in (
        (other, (f"cannot get nodes {node}: ", "forbidden", node_events.RIGHTS)),
        (gone, ("https://127.0.0.1:9 does not answer", "refused", "kubectl")),
    ):
        with running(account, node, recorder.home) as process:
            assert process.stderr is not None
            line = process.stderr.readline()
            assert all(message in line for message in messages), line
            assert process.poll() is None  # it tries again
    with running(site.account, "no-such-node", recorder.home) as process:
        assert process.wait(30) == 3
        assert process.stderr is not None
        assert "no-such-node" in process.stderr.read()


def test_the_account_has_no_other_rights(site: Site, node: str) -> None:
    account = "--as=system:serviceaccount:overnight-agents:overnight-node-events"
    for words in (
        ("patch", "nodes"), ("update", "nodes/status"), ("list", "nodes"), ("list", "pods", "-A"),
        ("get", "secrets", "-A"), ("create", "events", "-n", "kube-system"), ("delete", "events"),
    ):  # fmt: skip
        assert site.cluster.try_kubectl("auth", "can-i", *words, account).stdout == "no\n", words
    with pytest.raises(kubernetes_api.KubernetesError, match="cannot patch nodes"):
        site.client.patch(kubernetes_api.NODES, node, {"metadata": {"labels": {"a": "b"}}})


def test_the_overlay_passes_a_server_side_dry_run(site: Site) -> None:
    # kubectl 1.20 does not know `patches` of kustomize; it applies the same patch to one object.
    base = yaml.safe_load_all(site.cluster.kubectl("kustomize", FOLDER / "base"))
    (agent,) = (m for m in base if m["kind"] == "DaemonSet")
    patched = site.cluster.kubectl(
        *("patch", "--local", "-f", "-", "-o", "yaml", "--type=strategic", "-p"),
        (FOLDER / "node-events/agent.yaml").read_text(),
        text=yaml.safe_dump(agent),
    )
    site.cluster.kubectl("apply", "--dry-run=server", "-f", "-", text=patched)
    pod = yaml.safe_load(patched)["spec"]["template"]["spec"]
    assert {c["name"] for c in pod["containers"]} == {"agent", "node-events"}
    assert pod["serviceAccountName"] == "overnight-node-events"
    assert pod["automountServiceAccountToken"] is False
    mounts = {c["name"]: {m["name"]: m for m in c["volumeMounts"]} for c in pod["containers"]}
    assert "account" not in mounts["agent"]
    assert {name: m["readOnly"] for name, m in mounts["node-events"].items()} == {
        "data": True,
        "account": True,
    }
    assert {v["name"] for v in pod["volumes"]} == {*mounts["agent"], "account"}


def test_what_happened_long_ago_is_not_written(site: Site, node: str, recorder: Recorder) -> None:
    recorder.see("net.driver_reset", "old", ago=similar_events.KEEP_SECONDS + 60)
    recorder.see("unit.crash_loop", "earlier", ago=1800)
    follower = Follower(site, node, recorder.home)
    follower.poll()
    assert [e["reason"] for e in site.events(node)] == ["UnitCrashLoop"]
    assert site.conditions(node)[LOOP]["status"] == "False"
