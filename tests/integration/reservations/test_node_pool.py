"""Pools of reserved nodes on a real control plane, with the rights of the reserver alone."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import pathlib
import re
import subprocess
import sys
import threading
from collections.abc import Iterator

import kube_reservations as site
import nodes
import pytest

from overnight import kubernetes_api, pools, reservations
from overnight.app import clusters, pool_serving
from overnight.app import pools as use_cases
from overnight.kubernetes_api import client as api
from overnight.model.cluster import ClusterOrder, ClusterState
from overnight.model.pool import MemberState, Reason, Request
from overnight.model.reservation import Lease, Order
from overnight.pools import pool_errors
from overnight.reservations import janitor, node_pool
from overnight.reservations.providers import _kubernetes_marks as marks

pytestmark = pytest.mark.needs_kubernetes
OWNER = "plane-1"
EVERYWHERE = {"tolerations": [{"key": "nothing", "operator": "Exists"}]}


@pytest.fixture(scope="module")
def place(kubernetes_site: site.Site) -> Iterator[site.Site]:
    gpu = {"gpu": "h100"}
    with kubernetes_site.with_nodes(gpu_a=gpu, gpu_b=gpu, plain={"disk": "ssd"}) as place:
        yield place


@pytest.fixture(autouse=True)
def nothing_is_left(place: site.Site, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("KUBECONFIG", str(place.folder / "overnight-reserver"))
    monkeypatch.setenv(reservations.IMAGE_VARIABLE, "python")
    yield
    place.cluster.kubectl(
        *("delete", "--wait=false", "-n", "default", "deployments,pods,pdb", "--all")
    )
    place.run_janitor()
    place.wait_for_nothing()
    nodes.wait_until(lambda: not place.pods(), "no pod is left")


def make_order(member: str = "m-1", **changes: object) -> pools.Order:
    order = pools.Order(
        owner=OWNER, member_id=member, pool="lab", template="gpu=h100",
        endpoint="http://127.0.0.1:9", token="one-use",
    )  # fmt: skip
    return dataclasses.replace(order, **changes)  # type: ignore[arg-type]


def create(place: site.Site, steps: object = lambda _: None) -> node_pool.ReservedNodes:
    own = node_pool.create(place.folder, steps)  # type: ignore[arg-type]
    account = os.environ["KUBECONFIG"]
    if account not in place.clients:  # closed with the site
        place.clients[account] = nodes.connect(pathlib.Path(account))
    own._nodes._clients[""] = place.clients[account]
    return own


@contextlib.contextmanager
def serving(home: pathlib.Path) -> Iterator[use_cases.Pools]:
    """Run a reaper for the pools of a home."""
    where, stop = use_cases.Pools(home), threading.Event()
    thread = threading.Thread(target=pool_serving.serve, args=(where, stop), kwargs={"interval": 1})
    thread.start()
    try:
        yield where
    finally:
        stop.set()
        thread.join(30)
        provider = where.plane.context.provider("kubernetes").provider
        assert isinstance(provider, node_pool.ReservedNodes)
        provider._nodes.close()
        where.plane.context.database.close()


def members(where: use_cases.Pools, state: MemberState) -> set[str]:
    shown = where.plane.show("lab").members
    return {m.address.partition("#")[0] for m in shown if m.state is state and m.address}


def test_a_pool_of_two_nodes_is_claimed_returned_and_deleted(
    place: site.Site, tmp_path: pathlib.Path
) -> None:
    before = {name: place.foreign(name) for name in ("gpu-a", "gpu-b")}
    with serving(tmp_path) as where:
        change = use_cases.PoolChange(template="gpu=h100", target_size=2, max_size=2)
        where.create("lab", "kubernetes", change)
        nodes.wait_until(
            lambda: members(where, MemberState.READY) == {"gpu-a", "gpu-b"}, "both are ready"
        )
        # The scheduler keeps foreign pods off.
        place.apply(site.workload("Deployment", "foreign", replicas=6, **EVERYWHERE))
        foreign = place.wait_for_pods(6, app="foreign")
        assert {pod["spec"]["nodeName"] for pod in foreign} == {"plain"}
        (grant,) = where.acquire("lab", Request(acquired_by="ana"))
        host, _, lease_id = (grant.member.address or "").partition("#")
        assert marks.carries(place.node(host), lease_id)
        assert grant.member.machine_id == f"{host}/{lease_id}"
        where.give_back(grant.claim.id)

        def is_replaced() -> bool:
            ready = members(where, MemberState.READY)
            taken = marks.labels_of(place.node(host)).get(marks.KEY)
            return ready == {"gpu-a", "gpu-b"} and taken not in (None, lease_id)

        nodes.wait_until(is_replaced, "a new member has the node")
        where.drain("lab", confirmed=True)
        nodes.wait_until(lambda: not where.plane.show("lab").members, "the pool is empty")
        where.delete("lab")
    place.wait_for_nothing()
    assert {name: place.foreign(name) for name in before} == before


def test_a_member_whose_node_was_created_again_is_not_ready(
    place: site.Site, tmp_path: pathlib.Path
) -> None:
    with serving(tmp_path) as where:
        change = use_cases.PoolChange(template="gpu=h100", target_size=1, max_size=1)
        where.create("lab", "kubernetes", change)
        nodes.wait_until(lambda: members(where, MemberState.READY), "a node is ready")
        (first,) = where.plane.show("lab").members
        host = members(where, MemberState.READY).pop()
        place.kubelets.remove(host)
        place.kubelets.add(host, {"gpu": "h100"})
        new = place.foreign(host)

        def is_replaced() -> bool:
            shown = where.plane.show("lab").members
            return [m.state for m in shown] == [MemberState.READY] and shown[0].id != first.id

        nodes.wait_until(is_replaced, "another member is ready")
        assert host not in members(where, MemberState.READY)
        assert place.foreign(host) == new
        (cleaned,) = [
            mark
            for mark in janitor.clean(
                create(place)._nodes, place.order, clock=site.now_us, sleep=lambda _: None
            )
            if mark.why
        ]
        assert cleaned.why == f"node {host} was deleted and created again"
        where.drain("lab", confirmed=True)
        nodes.wait_until(lambda: not where.plane.show("lab").members, "the pool is empty")
        where.delete("lab")
    place.wait_for_nothing()


def test_a_cluster_of_two_nodes_is_held_and_released(
    place: site.Site, tmp_path: pathlib.Path
) -> None:
    before = {name: place.foreign(name) for name in ("gpu-a", "gpu-b")}
    with serving(tmp_path) as where:
        use = clusters.Clusters(where)
        nodes.wait_until(lambda: where.plane.endpoint and where.plane.reaper_us, "a reaper runs")
        order = ClusterOrder(count=2, template="gpu=h100", provider="kubernetes")
        name = use.create(order, confirmed=True).cluster.id
        held = use.follow(name)
        assert held.cluster.state is ClusterState.HELD, held
        taken = dict((m.address or "").split("#") for m in held.details.members)
        assert set(taken) == set(before)
        assert all(marks.carries(place.node(host), lease_id) for host, lease_id in taken.items())
        use.release(name)
        nodes.wait_until(lambda: not use.list(), "the cluster is gone")
    place.wait_for_nothing()
    assert {name: place.foreign(name) for name in before} == before


def test_a_member_that_is_a_node_is_reserved_and_released(
    place: site.Site, tmp_path: pathlib.Path
) -> None:
    def run(*arguments: str, code: int) -> str:
        command = [sys.executable, "-m", "overnight", "--home", str(tmp_path), *arguments]
        process = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=60
        )  # fmt: skip
        assert process.returncode == code, process.stderr
        return process.stdout

    with serving(tmp_path) as where:
        change = use_cases.PoolChange(template="gpu=h100", target_size=1, max_size=1)
        where.create("lab", "kubernetes", change)
        nodes.wait_until(lambda: members(where, MemberState.READY), "a node is ready")
        # 1: the check of the agent fails, as the member has no recorder.
        order = ("reserve", "--provider", "pool", "--where", "lab", "--for", "1h")
        document = json.loads(run(*order, "-O", "json", code=1))
        assert document["state"] == "active"
        (host,) = members(where, MemberState.CLAIMED)
        lease_id = marks.labels_of(place.node(host))[marks.KEY]
        assert marks.carries(place.node(host), lease_id)
        run("release", document["id"], code=0)

        def is_replaced() -> bool:
            taken = marks.labels_of(place.node(next(iter(members(where, MemberState.READY)), host)))
            return taken.get(marks.KEY) not in (None, lease_id)

        nodes.wait_until(is_replaced, "a new member has a node")
        where.drain("lab", confirmed=True)
        nodes.wait_until(lambda: not where.plane.show("lab").members, "the pool is empty")
        where.delete("lab")
    place.wait_for_nothing()


def test_a_launch_is_idempotent_and_says_when_no_node_is_left(place: site.Site) -> None:
    provider = create(place)
    first = provider.launch(make_order())
    assert provider.launch(make_order()) == first
    # A member of another owner, and a reservation of a person.
    other = provider.launch(make_order("m-2", owner="plane-2"))
    assert {first.id.partition("/")[0], other.id.partition("/")[0]} == {"gpu-a", "gpu-b"}
    assert provider.inventory(OWNER) == [first]
    assert provider.inventory("plane-2") == [other]
    assert provider.inventory("nobody") == []
    with pytest.raises(pools.ProviderError, match="no node is free that matches gpu=h100") as none:
        provider.launch(make_order("m-3"))
    assert (none.value.reason, none.value.nothing_made) == (Reason.CAPACITY, True)
    with pytest.raises(pools.ProviderError, match="no node is free"):
        provider.launch(make_order("m-3", template="disk=ssd", instance_type="m7i.large"))
    provider.terminate(first.id)
    provider.terminate(first.id)
    assert provider.inventory(OWNER) == []
    provider.terminate(other.id)
    provider.terminate("gone-node/r-0123456789ab")
    with pytest.raises(pools.ProviderError, match="not a machine id"):
        provider.terminate("gpu-a")


def test_the_agent_of_a_member_gets_its_order_and_no_rights(place: site.Site) -> None:
    machine = create(place).launch(make_order())
    (pod,) = place.admin.list(kubernetes_api.PODS, "overnight-agents")
    spec = pod["spec"]
    (container,) = spec["containers"]
    assert not spec.get("hostPID")
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert not any("hostPath" in volume for volume in spec["volumes"])
    folder = place.folder / "pods" / pod["metadata"]["uid"]
    nodes.wait_until((folder / "data/credential").exists, "the agent runs")
    order = json.loads((folder / "data/order.json").read_text())
    assert (order["member_id"], order["token"]) == ("m-1", "one-use")
    assert "one-use" not in json.dumps(pod)
    create(place).terminate(machine.id)


def test_pods_are_evicted_only_if_the_template_allows_it(
    place: site.Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.apply(
        site.workload("Deployment", "busy", replicas=1, nodeSelector={"disk": "ssd"}),
        site.lone_pod("lone", "gpu-a"),
    )
    place.wait_for_pods(1, app="busy")
    place.wait_for_pods(1, app="lone")
    provider = create(place)
    with pytest.raises(pools.ProviderError, match="no node is free"):
        provider.launch(make_order(template="disk=ssd"))
    assert place.ours() == []
    machine = provider.launch(make_order(template="disk=ssd,evict"))
    assert machine.id.startswith("plain/")
    assert [p["spec"].get("nodeName") for p in place.pods(app="busy")] == [None]
    # A pod that nothing would start again is not evicted.
    second = provider.launch(make_order("m-2", template="gpu=h100,evict"))
    assert second.id.startswith("gpu-b/")
    with pytest.raises(pools.ProviderError, match="no node is free"):
        provider.launch(make_order("m-3", template="gpu=h100,evict"))
    assert len(place.pods(app="lone")) == 1


def test_a_node_that_cannot_be_emptied_is_given_back(
    place: site.Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node_pool, "EMPTY_SECONDS", 0.0)
    monkeypatch.setattr(node_pool, "POLL_SECONDS", 0.01)
    budget = {
        "apiVersion": "policy/v1beta1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "kept", "namespace": "default"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "kept"}}},
    }
    kept = site.workload("Deployment", "kept", replicas=1, nodeSelector={"disk": "ssd"})
    place.apply(budget, kept)
    (pod,) = place.wait_for_pods(1, app="kept")
    kind = kubernetes_api.Kind("policy/v1beta1", "poddisruptionbudgets")

    def is_counted() -> bool:
        found = place.admin.get(kind, "kept", "default")
        return bool(found.get("status", {}).get("currentHealthy") == 1)

    nodes.wait_until(is_counted, "the budget counts its pod")
    with pytest.raises(pools.ProviderError, match="plain is not empty: cannot evict pod") as caught:
        create(place).launch(make_order(template="disk=ssd,evict"))
    assert caught.value.nothing_made
    assert place.ours() == []
    assert [p["metadata"]["uid"] for p in place.pods(app="kept")] == [pod["metadata"]["uid"]]


class Killed(BaseException):
    """In place of kill -9: nothing catches it."""


def test_a_launch_that_is_killed_anywhere_is_repeated_or_ended(place: site.Site) -> None:
    seen: list[str] = []
    create(place, seen.append).launch(make_order())
    create(place).terminate(create(place).inventory(OWNER)[0].id)
    place.wait_for_nothing()
    assert len(seen) > 4
    for number in range(len(seen)):
        for repeated in (True, False):
            left = iter(range(number))

            def kill(_: str, left: Iterator[int] = left) -> None:
                if next(left, None) is None:
                    raise Killed

            with pytest.raises(Killed):
                create(place, kill).launch(make_order())
            provider = create(place)
            if repeated:
                machine = provider.launch(make_order())
                assert provider.inventory(OWNER) == [machine]
                (pod,) = place.admin.list(kubernetes_api.PODS, "overnight-agents")
                assert place.admin.get(kubernetes_api.SECRETS, pod["metadata"]["name"], "overnight-agents")  # fmt: skip
            # What a sweep does: everything of the owner ends, found by its mark.
            for machine in provider.inventory(OWNER):
                provider.terminate(machine.id)
            place.wait_for_nothing()


def read_lease(place: site.Site, host: str) -> Lease:
    lease = marks.read_record(place.node(host))
    assert lease is not None
    return lease


def test_leases_are_renewed_by_the_inventory_and_ended_by_the_janitor(
    place: site.Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    provider = create(place)
    monkeypatch.setattr(node_pool, "LEASE_US", 10_000_000)
    machine = provider.launch(make_order())
    host = machine.id.partition("/")[0]
    first = read_lease(place, host)
    provider.inventory(OWNER)
    assert read_lease(place, host) == first  # more than half of it is left
    monkeypatch.setattr(node_pool, "LEASE_US", 10**12)
    provider.inventory("plane-2")
    assert read_lease(place, host) == first
    provider.inventory(OWNER)
    renewed = read_lease(place, host)
    assert first.until_us < renewed.until_us <= renewed.cap_us == first.cap_us
    order = Order(provider="kubernetes")
    with place.account("overnight-janitor") as own:
        (kept,) = janitor.clean(own, order, clock=lambda: renewed.until_us)
        assert not kept.released
        (freed,) = janitor.clean(own, order, clock=lambda: renewed.until_us + 121_000_000)
        assert freed.released
    place.wait_for_nothing()
    assert provider.inventory(OWNER) == []


@pytest.mark.parametrize(
    "template", ["", "plain", "gpu", "evict", "gpu=h100,", "gpu=h100 disk=ssd", "gpu=h100,taken"]
)
def test_a_template_must_be_labels(place: site.Site, template: str) -> None:
    with pytest.raises(pool_errors.BadKnobError, match="template"):
        create(place).check(make_order(template=template))


def test_failures_have_reasons(
    place: site.Site, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(place.folder / "overnight-janitor"))
    with pytest.raises(pools.ProviderError, match="cannot list poddisruptionbudgets") as denied:
        create(place).launch(make_order())
    assert denied.value.reason is Reason.DENIED
    text = (place.folder / "overnight-reserver").read_text()
    away = tmp_path / "away"
    away.write_text(re.sub(r"https://[^\"]+", "https://127.0.0.1:9", text))
    monkeypatch.setenv("KUBECONFIG", str(away))
    monkeypatch.setattr(api, "ATTEMPTS", 1)
    with pytest.raises(pools.ProviderError, match="does not answer") as gone:
        create(place).inventory(OWNER)
    assert gone.value.reason is Reason.UNREACHABLE
    monkeypatch.delenv(reservations.IMAGE_VARIABLE)
    with pytest.raises(pools.ProviderError, match="no container image") as refused:
        create(place).launch(make_order())
    assert (refused.value.reason, refused.value.nothing_made) == (Reason.ORDER_REFUSED, True)
