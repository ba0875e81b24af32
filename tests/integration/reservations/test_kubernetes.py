"""Reservations of nodes on a real control plane, with the rights of deploy/kubernetes/reservations alone."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import threading
from collections.abc import Iterator
from typing import Any

import kube_reservations as site
import nodes
import pytest
import yaml

from overnight import kubernetes_api, reservations
from overnight.kubernetes_api import client as api
from overnight.model.reservation import Candidate, Lease, Order
from overnight.reservations import preflight
from overnight.reservations.providers import _kubernetes_marks as marks
from overnight.reservations.providers import kubernetes as provider

pytestmark = pytest.mark.needs_kubernetes
SETUP = reservations.AgentSetup(server="http://127.0.0.1:9", token="one-use")
STATIC = "the kubelet runs it from a file"
EXPIRED_US = -300_000_000


@pytest.fixture(scope="module")
def place(kubernetes_site: site.Site) -> Iterator[site.Site]:
    zone, kind = {"topology.kubernetes.io/zone": "z1"}, {"node.kubernetes.io/instance-type": "m7i.large"}  # fmt: skip
    with kubernetes_site.with_nodes(node_a=zone, node_b=kind) as place:
        yield place


@pytest.fixture(autouse=True)
def nothing_is_left(place: site.Site) -> Iterator[None]:
    yield
    place.cluster.kubectl(
        *("delete", "--wait=false", "-n", "default", "deployments,daemonsets,pods,pdb", "--all")
    )
    place.run_janitor()
    place.wait_for_nothing()
    nodes.wait_until(lambda: not place.pods(), "no pod is left")


def candidate(own: Any, order: Order, name: str) -> Candidate:
    (found,) = [host for host in own.list_hosts(order) if host.name == name]
    assert isinstance(found, Candidate)
    return found


def take(own: Any, host: str, order: Order, lease: Lease) -> None:
    own.claim(host, order, lease)
    own.mark(host, order, lease)


def empty(own: Any, host: str, order: Order, lease: Lease) -> list[str]:
    reports: list[str] = []
    nodes.wait_until(lambda: own.empty(host, order, lease, reports.append), f"{host} is empty")
    return reports


def test_nodes_are_listed_with_place_health_and_facts(place: site.Site) -> None:
    place.cluster.kubectl("cordon", "node-b")
    with place.account() as own:
        a, b = own.list_hosts(place.order)
        place.cluster.kubectl("uncordon", "node-b")
    assert (a.name, a.zone, b.instance_type) == ("node-a", "z1", "m7i.large")
    assert (a.unhealthy, b.unhealthy, a.taken) == ("", "cordoned", "")
    assert a.facts["kernel"] == nodes.INFORMATION["kernelVersion"]
    assert a.booted_us is not None
    assert 0 <= site.now_us() - a.booted_us < 600_000_000


def test_the_scheduler_keeps_foreign_pods_off_and_puts_the_agent_on(place: site.Site) -> None:
    lease = site.make_lease()
    with place.account() as own:
        take(own, "node-a", place.order, lease)
        assert own.empty("node-a", place.order, lease, print)
        place.apply(site.workload("Deployment", "foreign", replicas=6))
        own.start_agent("node-a", place.order, lease, SETUP)
        own.start_agent("node-a", place.order, lease, SETUP)
        foreign = place.wait_for_pods(6, app="foreign")
        assert {pod["spec"]["nodeName"] for pod in foreign} == {"node-b"}

        def is_running() -> bool:
            (pod,) = place.admin.list(kubernetes_api.PODS, "overnight-agents")
            return (pod["status"].get("phase"), pod["spec"].get("nodeName")) == ("Running", "node-a")  # fmt: skip

        nodes.wait_until(is_running, "the agent runs on node-a")
        (pod,) = place.admin.list(kubernetes_api.PODS, "overnight-agents")
        seen = place.folder / "pods" / pod["metadata"]["uid"] / "seen"
        nodes.wait_until(
            lambda: seen.exists() and seen.read_text() == SETUP.token, "the agent has its token"
        )
        assert own.list_workloads("node-a", place.order, lease) == []
        assert len(own.list_workloads("node-b", place.order, lease)) == 6
        own.release("node-a", place.order, lease.id)
    place.wait_for_nothing()


def test_an_agent_that_failed_is_started_again(place: site.Site) -> None:
    lease = site.make_lease()

    def find_agent() -> dict[str, Any]:
        (pod,) = place.admin.list(kubernetes_api.PODS, "overnight-agents")
        return dict(pod)

    with place.account() as own:
        take(own, "node-a", place.order, lease)
        own.start_agent("node-a", place.order, lease, SETUP)
        nodes.wait_until(lambda: find_agent()["status"]["phase"] == "Running", "the agent runs")
        first = find_agent()
        place.kubelets._report(first, "Failed")
        own.start_agent("node-a", place.order, lease, SETUP)
        nodes.wait_until(lambda: find_agent()["status"]["phase"] == "Running", "it runs again")
        assert find_agent()["metadata"]["uid"] != first["metadata"]["uid"]
        own.stop_agent("node-a", place.order, lease.id)
        own.stop_agent("node-a", place.order, lease.id)
        nodes.wait_until(lambda: place.ours() == ["node node-a", "leases overnight-node-a"], "it is stopped")  # fmt: skip


def test_an_agent_of_the_daemon_set_is_used_and_stays(place: site.Site) -> None:
    lease = site.make_lease()
    agent = site.workload(
        "DaemonSet",
        "agent",
        tolerations=[{"key": marks.KEY, "operator": "Exists"}],
        nodeSelector={"topology.kubernetes.io/zone": "z1"},
    )
    agent["spec"]["template"]["metadata"]["labels"]["app.kubernetes.io/name"] = "overnight-agent"
    place.apply(agent)
    before = place.wait_for_pods(1, app="agent")
    order = dataclasses.replace(place.order, no_execute=True)
    with place.account() as own:
        take(own, "node-a", order, lease)
        assert own.empty("node-a", order, lease, print)
        own.start_agent("node-a", order, lease, SETUP)
        assert not place.admin.list(kubernetes_api.PODS, "overnight-agents")
        (agent_pod,) = own.list_workloads("node-a", order, lease)
        assert (agent_pod.kind, bool(agent_pod.stays)) == ("DaemonSet pod", True)
        own.release("node-a", order, lease.id)
    assert [p["metadata"]["uid"] for p in place.pods(app="agent")] == [before[0]["metadata"]["uid"]]


def test_a_budget_refuses_an_eviction_and_is_honoured(place: site.Site) -> None:
    here = {"topology.kubernetes.io/zone": "z1"}
    budget = {
        "apiVersion": "policy/v1beta1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "kept", "namespace": "default"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "kept"}}},
    }
    place.apply(
        site.workload("Deployment", "kept", replicas=1, nodeSelector=here),
        site.lone_pod("lone", "node-a"),
        site.lone_pod("static", "node-a", {"kubernetes.io/config.mirror": "1"}),
        budget,
    )
    (kept,) = place.wait_for_pods(1, app="kept")
    place.wait_for_pods(1, app="lone")
    name = f"default/{kept['metadata']['name']}"
    lease = site.make_lease()
    with place.account() as own:

        def blocked() -> dict[str, str]:
            plan = own.plan(candidate(own, place.order, "node-a"), place.order)
            return {w.name: w.blocked for w in plan.workloads}

        # The controller of budgets counts the pod some time after it is ready.
        expected = "PodDisruptionBudget kept allows no disruption"
        kind = kubernetes_api.Kind("policy/v1beta1", "poddisruptionbudgets")
        nodes.wait_until(
            lambda: (
                place.admin.get(kind, "kept", "default").get("status", {}).get("currentHealthy")
                == 1
            ),
            "the budget counts its pod",
        )
        assert blocked() == {name: expected, "default/lone": "", "default/static": ""}
        plan = own.plan(candidate(own, place.order, "node-a"), place.order)
        assert {w.name: (w.kind, w.stays) for w in plan.workloads} == {
            name: ("ReplicaSet pod", ""),
            "default/lone": ("pod", ""),
            "default/static": ("static pod", STATIC),
        }
        assert plan.disrupts == ("deletes pod default/lone for good: no controller replaces it",)
        take(own, "node-a", place.order, lease)
        reports: list[str] = []
        for _ in range(5):
            assert not own.empty("node-a", place.order, lease, reports.append)
        # Nothing is evicted in vain.
        assert set(reports) == {f"cannot evict pod {name}: {expected}"}
        assert len(place.pods(app="lone")) == 1
        found = {w.name: w.blocked for w in own.list_workloads("node-a", place.order, lease)}
        assert found == blocked()
        # Past that check, the API refuses.
        refusal = provider._evict(own._connect(place.order), kept, "policy/v1beta1")
        assert refusal.startswith(f"cannot evict pod {name}: ")
        assert "HTTP 429" in refusal
        (still,) = place.pods(app="kept")
        assert still["metadata"]["uid"] == kept["metadata"]["uid"]
        assert "deletionTimestamp" not in still["metadata"]
        place.cluster.kubectl("delete", "pdb", "kept", "-n", "default")
        done = empty(own, "node-a", place.order, lease)
        assert {f"evicted pod {name}", "evicted pod default/lone"} <= {*done}
        stays = own.list_workloads("node-a", place.order, lease)
        assert [(w.name, w.stays) for w in stays] == [("default/static", STATIC)]


def test_the_least_busy_node_is_taken_and_protected_pods_are_named(place: site.Site) -> None:
    asked = {"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"}
    here = {"topology.kubernetes.io/zone": "z1"}
    guarded = site.workload("Deployment", "guarded", replicas=1, nodeName="node-b")
    guarded["spec"]["template"]["metadata"]["annotations"] = asked
    place.apply(site.workload("Deployment", "busy", replicas=4, nodeSelector=here))
    place.wait_for_pods(4, app="busy")
    with place.account() as own:

        def choose(**changes: Any) -> list[str]:
            order = dataclasses.replace(place.order, **changes)
            plan = preflight.plan_hosts(own, order, site.now_us())
            return [each.host.name for each in plan.hosts if each.host.name in ("node-a", "node-b")]

        place.apply(site.workload("Deployment", "calm", replicas=1, nodeName="node-b"))
        place.wait_for_pods(1, app="calm")
        assert choose(count=2) == ["node-b", "node-a"]
        assert choose(count=1) == ["node-b"]
        # Fewer pods, but one whose owner asked to leave it alone.
        place.apply(guarded)
        (pod,) = place.wait_for_pods(1, app="guarded")
        assert choose(count=1) == ["node-a"]
        (text,) = own.plan(candidate(own, place.order, "node-b"), place.order).disrupts
        assert text.startswith(
            f"evicts pod default/{pod['metadata']['name']} against its annotation"
        )
        assert text.endswith("cluster-autoscaler.kubernetes.io/safe-to-evict=false")


def test_no_execute_comes_after_emptying_and_removes_what_does_not_tolerate_it(
    place: site.Site,
) -> None:
    place.apply(
        site.workload(
            "DaemonSet",
            "logs",
            nodeSelector={"topology.kubernetes.io/zone": "z1"},
            tolerations=[{"operator": "Exists", "effect": "NoSchedule"}],
        )
    )
    (before,) = place.wait_for_pods(1, app="logs")
    order = dataclasses.replace(place.order, no_execute=True)
    lease = site.make_lease()
    with place.account() as own:
        plan = own.plan(candidate(own, order, "node-a"), order)
        assert plan.disrupts == (
            f"the NoExecute taint deletes pod default/{before['metadata']['name']}, which does not tolerate {marks.KEY}",
        )
        assert not own.plan(candidate(own, place.order, "node-a"), place.order).disrupts
        take(own, "node-a", order, lease)
        assert {t["effect"] for t in marks.taints_of(place.node("node-a"))} == {"NoSchedule"}
        assert own.empty("node-a", order, lease, print)

        def is_gone() -> bool:
            uids = {p["metadata"]["uid"] for p in place.pods(app="logs")}
            return before["metadata"]["uid"] not in uids

        nodes.wait_until(is_gone, "the pod of the DaemonSet is deleted")
        # Past the scheduler, onto the node: the taint manager deletes it.
        place.apply(site.lone_pod("bound", "node-a"))
        nodes.wait_until(lambda: not place.pods(app="bound"), "the bound pod is deleted")
        events = place.admin.list(kubernetes_api.EVENTS, "default")
        reasons = {e["involvedObject"]["name"]: e["reason"] for e in events}
        assert reasons["bound"] == "TaintManagerEviction"
        assert own.renew("node-a", order, lease)
        # Repeated marks keep the second taint.
        own.mark("node-a", order, lease)
        effects = {t["effect"] for t in marks.taints_of(place.node("node-a"))}
        assert effects == {"NoSchedule", "NoExecute"}


def test_a_lost_no_execute_taint_is_noticed_and_restored_on_an_empty_node(
    place: site.Site,
) -> None:
    order, lease = dataclasses.replace(place.order, no_execute=True), site.make_lease()
    with place.account() as own:
        take(own, "node-a", order, lease)
        assert own.renew("node-a", order, lease)  # not yet empty: nothing is lost
        assert own.empty("node-a", order, lease, print)
        place.cluster.kubectl("taint", "node", "node-a", f"{marks.KEY}:NoExecute-")
        place.apply(site.lone_pod("bound", "node-a"))
        place.wait_for_pods(1, app="bound")
        assert not own.renew("node-a", order, lease)
        # The taint would delete the pod, and ignore its PodDisruptionBudget.
        with pytest.raises(reservations.PlatformError, match="NoExecute taint of node-a") as caught:
            own.mark("node-a", order, lease)
        assert "default/bound" in caught.value.why
        place.cluster.kubectl("delete", "pod", "bound", "-n", "default")
        assert not own.renew("node-a", order, lease)
        own.mark("node-a", order, lease)
        assert own.renew("node-a", order, lease)
        effects = {t["effect"] for t in marks.taints_of(place.node("node-a"))}
        assert effects == {"NoSchedule", "NoExecute"}
        own.release("node-a", order, lease.id)
    place.wait_for_nothing()


def test_two_reservers_race_and_one_wins(place: site.Site) -> None:
    for _ in range(10):
        leases = [site.make_lease() for _ in range(4)]
        results: dict[str, object] = {}
        barrier = threading.Barrier(len(leases))

        def reserve(lease: Lease, barrier: Any = barrier, results: Any = results) -> None:
            with place.account() as own:
                barrier.wait()
                try:
                    take(own, "node-a", place.order, lease)
                    results[lease.id] = True
                except reservations.TakenError as error:
                    results[lease.id] = error

        threads = [threading.Thread(target=reserve, args=(lease,)) for lease in leases]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        (winner,) = [key for key, result in results.items() if result is True]
        assert len(results) == len(leases)
        assert marks.carries(place.node("node-a"), winner)
        with place.account() as own:
            assert [(h.id, h.claimed) for h in own.list_held(place.order)] == [(winner, True)]
            own.release("node-a", place.order, winner)
        assert not place.ours()


def test_an_expired_lease_is_taken_over_by_one_reserver_with_its_marks(place: site.Site) -> None:
    before = place.foreign("node-a")
    for _ in range(5):
        old, leases = site.make_lease(EXPIRED_US), [site.make_lease() for _ in range(3)]
        with place.account() as own:
            take(own, "node-a", place.order, old)
            assert candidate(own, place.order, "node-a").taken == ""
        won: list[str] = []

        def reserve(lease: Lease, won: list[str] = won) -> None:
            with place.account() as own, contextlib.suppress(reservations.TakenError):
                take(own, "node-a", place.order, lease)
                won.append(lease.id)

        threads = [threading.Thread(target=reserve, args=(lease,)) for lease in leases]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(won) == 1
        assert marks.find_ids(place.node("node-a")) == set(won)
        with place.account() as own:
            assert own.renew("node-a", place.order, old) is False
            own.release("node-a", place.order, old.id)  # late, and without effect
            assert marks.carries(place.node("node-a"), won[0])
            own.release("node-a", place.order, won[0])
        assert place.foreign("node-a") == before


def test_a_host_that_was_lost_is_not_emptied(place: site.Site) -> None:
    lease = site.make_lease()
    place.apply(site.lone_pod("lone", "node-a"))
    place.wait_for_pods(1, app="lone")
    with place.account() as own:
        take(own, "node-a", place.order, lease)
        place.admin.patch(kubernetes_api.NODES, "node-a", {"spec": {"taints": None}})
        quiet = dataclasses.replace(place.order, evict=False)
        assert not own.empty("node-a", quiet, lease, print)
        assert marks.carries(place.node("node-a"), lease.id)
        place.cluster.kubectl("delete", "lease", "-n", "overnight", "--all")
        with pytest.raises(reservations.TakenError):
            own.empty("node-a", place.order, lease, print)
    place.wait_for_pods(1, app="lone")


def test_a_release_that_is_late_does_not_end_the_claim_of_another(place: site.Site) -> None:
    lease, other = site.make_lease(EXPIRED_US), site.make_lease()

    def steal(step: str) -> None:
        if step == "before the end of the claim":
            with place.account() as second:
                take(second, "node-a", place.order, other)

    with place.account() as own:
        take(own, "node-a", place.order, lease)
    with place.account(steps=steal) as own:
        own.release("node-a", place.order, lease.id)
        assert own.renew("node-a", place.order, other)


def test_a_valid_lease_without_its_lease_object_keeps_its_host(place: site.Site) -> None:
    lease, other = site.make_lease(), site.make_lease()
    with place.account() as own:
        take(own, "node-a", place.order, lease)
        place.cluster.kubectl("delete", "lease", "-n", "overnight", "--all")
        assert own.renew("node-a", place.order, lease) is False
        assert not place.admin.list(kubernetes_api.LEASES, "overnight")
        with pytest.raises(reservations.TakenError):
            own.claim("node-a", place.order, other)
        with pytest.raises(reservations.TakenError):
            own.mark("node-a", place.order, lease)
        assert [(h.id, h.claimed) for h in own.list_held(place.order)] == [(lease.id, False)]
        own.claim("node-a", place.order, lease)
        assert own.renew("node-a", place.order, lease)


def test_every_mark_alone_is_found_and_removed(place: site.Site) -> None:
    lease = site.make_lease()
    before = place.foreign("node-a")
    taint = {"key": marks.KEY, "value": lease.id, "effect": "NoExecute"}
    undo = json.dumps({"id": lease.id, "annotations": []})
    changes: list[tuple[dict[str, Any], bool]] = [
        ({"metadata": {"labels": {marks.KEY: lease.id}}}, False),
        ({"metadata": {"annotations": {marks.RECORD: lease.text()}}}, True),
        ({"metadata": {"annotations": {marks.UNDO: undo}}}, False),
        ({"spec": {"taints": [taint]}}, False),
        ({"metadata": {"annotations": {marks.RECORD: "{cut"}}}, False),
        ({"metadata": {"labels": {marks.KEY: "other"}, "annotations": {marks.RECORD: ""}}}, False),
    ]
    for change, readable in changes:
        place.admin.patch(kubernetes_api.NODES, "node-a", change)
        with place.account("overnight-janitor") as own:
            (held,) = own.list_held(place.order)
            assert (held.host, held.claimed, held.lease is not None) == ("node-a", False, readable)
            own.release("node-a", place.order, held.id)
        assert place.ours() == []
        assert place.foreign("node-a") == before
    with place.account() as own, place.account("overnight-janitor") as janitor:
        own.claim("node-a", place.order, lease)
        (held,) = janitor.list_held(place.order)
        assert (held.lease, held.claimed) == (lease, True)
        janitor.release("node-a", place.order, "r-000000000000")
        assert len(janitor.list_held(place.order)) == 1
        janitor.release("node-a", place.order, lease.id)


def test_a_node_that_is_gone_is_released(place: site.Site) -> None:
    lease = site.make_lease()
    place.kubelets.add("node-c")
    with place.account() as own:
        take(own, "node-c", place.order, lease)
        own.start_agent("node-c", place.order, lease, SETUP)
        place.kubelets.remove("node-c")
        with pytest.raises(reservations.GoneError, match="node node-c does not exist"):
            own.renew("node-c", place.order, lease)
        assert [held.host for held in own.list_held(place.order)] == ["node-c"]
        own.release("node-c", place.order, lease.id)
        own.release("node-c", place.order, lease.id)
        with pytest.raises(reservations.GoneError, match="node node-c does not exist"):
            own.claim("node-c", place.order, lease)
    place.wait_for_nothing()


def test_a_node_that_karpenter_will_replace_is_reported(place: site.Site) -> None:
    names = {"plural": "nodeclaims", "singular": "nodeclaim", "kind": "NodeClaim"}
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    place.apply(
        {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": "nodeclaims.karpenter.sh"},
            "spec": {
                "group": "karpenter.sh",
                "names": names,
                "scope": "Cluster",
                "versions": [version],
            },
        }
    )
    claim = {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodeClaim",
        "metadata": {"name": "claim"},
        "spec": {"expireAfter": "1h30m"},
    }
    kind = kubernetes_api.Kind("karpenter.sh/v1", "nodeclaims")
    made: dict[str, Any] = {}

    def is_created() -> bool:
        with kubernetes_api.accept(404):  # the server takes a while to serve a new kind
            made.update(place.admin.create(kind, claim))
        return bool(made)

    nodes.wait_until(is_created, "the server knows NodeClaims")
    owner = {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodeClaim",
        "name": "claim",
        "uid": made["metadata"]["uid"],
    }
    place.kubelets.add("node-k", owners=[owner])
    with place.account() as own:
        host = Candidate(name="node-k")
        (warning,) = own.plan(host, place.order).warnings
        assert warning.startswith("Karpenter replaces node-k at ")
        assert not own.plan(host, dataclasses.replace(place.order, seconds=3600)).warnings
    place.kubelets.remove("node-k")
    place.cluster.kubectl("delete", "crd", "nodeclaims.karpenter.sh")


def test_the_rights_are_those_that_are_used(
    place: site.Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    used: dict[str, set[tuple[str, str, str]]] = {}
    request = api.Client._request

    def record(
        self: api.Client, method: str, kind: Any, space: str, *rest: Any, **more: Any
    ) -> Any:
        if kind.plural:  # else the list of resources, which every account may read
            namespace = space if space.startswith("overnight") else ""
            resource = "/".join(filter(None, (kind.plural, more.get("part"))))
            verb = more.get("verb") or api.VERBS[method]
            used.setdefault(self.context, set()).add((namespace, resource, verb))
        return request(self, method, kind, space, *rest, **more)

    lease = site.make_lease()
    place.apply(site.workload("Deployment", "moved", replicas=1, nodeName="node-a"))
    place.wait_for_pods(1, app="moved")
    owner = {"apiVersion": "karpenter.sh/v1", "kind": "NodeClaim", "name": "gone", "uid": "1"}
    change = {"metadata": {"ownerReferences": [owner]}}
    place.admin.patch(kubernetes_api.NODES, "node-a", change)
    monkeypatch.setattr(api.Client, "_request", record)
    with place.account() as own:
        own.plan(candidate(own, place.order, "node-a"), place.order)
        take(own, "node-a", place.order, lease)
        own.empty("node-a", place.order, lease, print)
        own.start_agent("node-a", place.order, lease, SETUP)
        own.start_agent("node-a", place.order, lease, SETUP)
        assert own.renew("node-a", place.order, lease)
        own.release("node-a", place.order, lease.id)
        take(own, "node-a", place.order, lease)
    place.run_janitor()
    monkeypatch.undo()
    place.admin.patch(kubernetes_api.NODES, "node-a", {"metadata": {"ownerReferences": None}})
    allowed: dict[str, set[tuple[str, str, str]]] = {}
    for item in yaml.safe_load_all((site.DEPLOY / "reservations/rights.yaml").read_text()):
        if "rules" in item:
            allowed.setdefault(item["metadata"]["name"], set()).update(
                (item["metadata"].get("namespace", ""), resource, verb)
                for rule in item["rules"]
                for resource in rule["resources"]
                for verb in rule["verbs"]
            )
    # Listing pods of every namespace includes those of agents.
    used["overnight-reserver"].discard(("overnight-agents", "pods", "list"))
    assert {name: used[name] for name in allowed} == allowed


def test_a_missing_right_is_named(place: site.Site) -> None:
    lease = site.make_lease()
    with place.account("overnight-janitor") as own:
        for call, right in [
            (lambda: own.claim("node-a", place.order, lease), "create leases"),
            (lambda: own.plan(Candidate(name="node-a"), place.order), "list poddisruptionbudgets"),
            (lambda: own.list_workloads("node-a", place.order, lease), "list pods"),
        ]:
            with pytest.raises(reservations.PlatformError, match=f"cannot {right}") as caught:
                call()
            error = caught.value
            assert not error.retry
            assert "system:serviceaccount:overnight:overnight-janitor" in error.why
            verb, resource = right.split()
            assert f"--context overnight-janitor auth can-i {verb} {resource}" in error.todo


def test_a_token_that_is_not_valid_is_reported(place: site.Site) -> None:
    text = (place.folder / "overnight-reserver").read_text()
    path = place.folder / "expired"
    document = yaml.safe_load(text)
    document["users"][0]["user"]["token"] = "expired"
    path.write_text(yaml.safe_dump(document))
    with place.account("expired") as own:
        with pytest.raises(reservations.PlatformError, match="refused the credentials") as caught:
            own.list_held(place.order)
        assert caught.value.retry
        assert caught.value.todo.startswith("log in again")


def test_the_manifests_pass_a_server_side_dry_run(place: site.Site) -> None:
    text = place.cluster.kubectl("kustomize", site.DEPLOY / "reservations-v1beta1")
    output = place.cluster.kubectl("apply", "--dry-run=server", "-f", "-", text=text)
    assert len(output.splitlines()) == len(list(yaml.safe_load_all(text)))
    assert "cronjob.batch/overnight-janitor created (server dry run)" in output
    # 1.20 does not have batch/v1 of CronJobs: all else is the same.
    current = place.cluster.kubectl("kustomize", site.DEPLOY / "reservations")
    assert current.replace("apiVersion: batch/v1\n", "apiVersion: batch/v1beta1\n") == text
    assert current != text


def test_the_server_of_the_overlay_has_the_account_of_the_reserver(place: site.Site) -> None:
    # kubectl 1.20 does not know `patches` of kustomize; it applies the same patch to one object.
    overlay = site.DEPLOY / "reservations-server"
    base = yaml.safe_load_all(place.cluster.kubectl("kustomize", site.DEPLOY / "base"))
    (server,) = (item for item in base if item["kind"] == "Deployment")
    patched = place.cluster.kubectl(
        *("patch", "--local", "-f", "-", "-o", "yaml", "--type=strategic", "-p"),
        (overlay / "server.yaml").read_text(),
        text=yaml.safe_dump(server),
    )
    place.cluster.kubectl("apply", "--dry-run=server", "-f", "-", text=patched)
    place.cluster.kubectl("apply", "--dry-run=server", "-f", overlay / "network.yaml")
    pod = yaml.safe_load(patched)["spec"]["template"]["spec"]
    assert pod["serviceAccountName"] == "overnight-reserver"
    assert pod["automountServiceAccountToken"] is True
    (container,) = pod["containers"]
    before = server["spec"]["template"]["spec"]["containers"][0]
    variables = {variable["name"]: variable for variable in container["env"]}
    assert variables.pop(reservations.IMAGE_VARIABLE)["value"] == before["image"]
    assert list(variables.values()) == before["env"]
    assert {**container, "env": 0} == {**before, "env": 0}
    can = ("auth", "can-i", "--as", "system:serviceaccount:overnight:overnight-reserver")
    assert place.cluster.kubectl(*can, "patch", "nodes") == "yes\n"
