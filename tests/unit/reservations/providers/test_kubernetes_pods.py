"""Pods of a node: what stays, what goes, and what refuses; and the pod of an agent."""

from __future__ import annotations

import pathlib
from typing import Any

import pytest
import yaml

from overnight import kubernetes_api, reservations
from overnight.model.reservation import MAX_SECONDS, AgentTasks, Lease
from overnight.reservations.providers import _kubernetes_agent as agents
from overnight.reservations.providers import _kubernetes_marks as marks
from overnight.reservations.providers import _kubernetes_nodes as nodes
from overnight.reservations.providers import _kubernetes_pods as pods

AGENT = pathlib.Path(__file__).parents[4] / "deploy/kubernetes/base/agent.yaml"
LEASE = Lease("r-0123456789ab", "ana", 2_000_000_000, 3_000_000_000)
Object = dict[str, Any]


def pod(owner: str = "", ready: bool = True, **more: Any) -> Object:
    owners = [{"kind": "Other"}, {"kind": owner, "controller": True}] if owner else []
    return {
        "metadata": {
            "name": "p",
            "namespace": "ns",
            "labels": {"app": "a", "tier": "web"},
            "ownerReferences": owners,
            **more,
        },
        "spec": {},
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": str(ready)}]},
    }


def budget(selector: Object | None, allowed: int = 0, version: str = "policy/v1", **more: Any) -> Object:  # fmt: skip
    return {
        "apiVersion": version,
        "metadata": {"name": "b", "namespace": "ns", **more},
        "spec": {"selector": selector},
        "status": {"disruptionsAllowed": allowed},
    }


def expression(operator: str, *values: str) -> Object:
    rule = {"key": "tier", "operator": operator, "values": list(values)}
    return {"matchExpressions": [rule], "matchLabels": {"app": "a"}}


@pytest.mark.parametrize(
    ("selector", "matches"),
    [
        ({"matchLabels": {"app": "a"}}, True),
        ({"matchLabels": {"app": "b"}}, False),
        (expression("In", "web", "x"), True),
        (expression("In", "x"), False),
        (expression("NotIn", "x"), True),
        (expression("NotIn", "web"), False),
        (expression("Exists"), True),
        (expression("DoesNotExist"), False),
        ({"matchExpressions": [{"key": "x", "operator": "NotIn", "values": ["web"]}]}, True),
        ({"matchExpressions": [{"key": "x", "operator": "In", "values": ["web"]}]}, False),
        ({"matchExpressions": [{"key": "x", "operator": "Exists"}]}, False),
        ({"matchExpressions": [{"key": "x", "operator": "DoesNotExist"}]}, True),
        ({"matchExpressions": [{"key": "tier", "operator": "Exists"}, {"key": "x", "operator": "Exists"}]}, False),
        ({}, True),
        (None, False),
    ],
)  # fmt: skip
def test_budgets_select_pods_as_the_api_does(selector: Object | None, matches: bool) -> None:
    refusal = pods.find_refusal(pod("ReplicaSet"), [budget(selector)])
    assert bool(refusal) is matches


def test_what_blocks_an_eviction_is_said_of_the_pods_that_would_be_evicted() -> None:
    blocked = pods.describe(pod("ReplicaSet"), [budget({})]).blocked
    assert blocked == "PodDisruptionBudget b allows no disruption"
    assert pods.describe(pod("DaemonSet"), [budget({})]).blocked == ""


@pytest.mark.parametrize(
    ("phase", "is_foreign"),
    [("Pending", True), ("Running", True), ("Unknown", True), ("Succeeded", False), ("Failed", False)],
)  # fmt: skip
def test_a_pod_that_has_ended_does_not_use_its_node(phase: str, is_foreign: bool) -> None:
    assert pods.is_foreign({**pod(), "status": {"phase": phase}}, LEASE.id) is is_foreign


def test_what_evictions_and_the_no_execute_taint_destroy_is_said() -> None:
    volumes: Object = {"volumes": [{"configMap": {}}, {"emptyDir": {}}]}
    moved, daemon = ({**pod(kind), "spec": volumes} for kind in ("ReplicaSet", "DaemonSet"))
    lost = ["pod ns/p loses the data in its emptyDir volumes"]
    assert pods.find_lost_data([moved, daemon, pod("ReplicaSet")]) == lost
    tolerant = {**pod("DaemonSet"), "spec": {"tolerations": [{"operator": "Exists", "effect": "NoExecute"}]}}  # fmt: skip
    deleted = ["the NoExecute taint deletes pod ns/p, which does not tolerate overnight.dev/lease"]
    assert pods.find_deleted([daemon]) == deleted
    assert not pods.find_deleted([tolerant, moved])


def test_only_a_budget_that_is_used_up_refuses_and_only_a_ready_pod() -> None:
    selector = {"matchLabels": {"app": "a"}}
    assert not pods.find_refusal(pod(), [budget(selector, allowed=1)])
    assert not pods.find_refusal(pod(ready=False), [budget(selector)])
    assert not pods.find_refusal(pod(), [budget(selector, namespace="other")])
    assert not pods.find_refusal(pod(), [budget({}, version="policy/v1beta1")])
    assert pods.find_refusal(pod(), [budget(selector)])
    assert not pods.find_refusal(pod(deletionTimestamp="now"), [budget(selector)])
    two = pods.find_refusal(pod(), [budget(selector, allowed=9), budget(selector, allowed=9)])
    assert two.startswith("PodDisruptionBudgets b and b select it")


@pytest.mark.parametrize(("key", "value"), [*pods.PROTECTED.items()])
def test_annotations_against_evictions_are_reported(key: str, value: str) -> None:
    other = "false" if value == "true" else "true"
    assert pods.find_protected([pod("ReplicaSet", annotations={key: value})]) == [
        f"evicts pod ns/p against its annotation {key}={value}"
    ]
    assert not pods.find_protected([pod("ReplicaSet", annotations={key: other}), pod()])
    assert not pods.find_protected([pod("DaemonSet", annotations={key: value})])


def test_kinds_of_pods() -> None:
    mirror = pod(annotations={pods.MIRROR: "1"})
    seen = [pods.describe(p) for p in (pod(), pod("ReplicaSet"), pod("DaemonSet"), mirror)]
    assert [(w.kind, w.stays) for w in seen] == [
        ("pod", ""),
        ("ReplicaSet pod", ""),
        ("DaemonSet pod", "its DaemonSet would start another"),
        ("static pod", "the kubelet runs it from a file"),
    ]
    assert pods.find_losses([pod()])
    assert not pods.find_losses([pod("ReplicaSet"), pod("DaemonSet"), mirror])
    ours = pod(labels={marks.KEY: LEASE.id})
    assert pods.is_foreign(ours)
    assert not pods.is_foreign(ours, LEASE.id)
    assert pods.is_foreign(ours, "r-aaaaaaaaaaaa")
    assert not pods.is_foreign({**pod(), "status": {"phase": "Succeeded"}})


@pytest.mark.parametrize(
    ("toleration", "stays"),
    [
        ({"operator": "Exists"}, True),
        ({"operator": "Exists", "key": marks.KEY}, True),
        ({"operator": "Exists", "effect": "NoExecute"}, True),
        ({"operator": "Exists", "effect": "NoSchedule"}, False),
        ({"operator": "Exists", "key": "other"}, False),
        ({"operator": "Exists", "tolerationSeconds": 300}, False),
        ({"key": marks.KEY, "value": "x"}, False),
    ],
)
def test_tolerations(toleration: Object, stays: bool) -> None:
    assert pods.tolerates({"spec": {"tolerations": [toleration]}}, "NoExecute") is stays


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("720h", 2_592_000), ("1h30m", 5400), ("45s", 45), ("Never", None), ("", None)],
)
def test_the_expiry_of_a_node_claim(text: str, seconds: int | None) -> None:
    made = {"creationTimestamp": "1970-01-01T00:00:10Z"}
    expected = None if seconds is None else (10 + seconds) * 1_000_000
    assert nodes.find_expiry({"metadata": made, "spec": {"expireAfter": text}}) == expected
    assert nodes.find_expiry({}) is None


@pytest.mark.parametrize(
    ("change", "illness"),
    [
        ({}, ""),
        ({"spec": {"taints": [{"key": "DeletionCandidateOfClusterAutoscaler", "effect": "PreferNoSchedule"}]}}, ""),
        ({"status": {"conditions": []}}, "not ready: no status"),
        ({"status": {"conditions": [{"type": "Ready", "status": "Unknown", "message": "gone"}]}}, "not ready: gone"),
        ({"spec": {"unschedulable": True}}, "cordoned"),
        ({"spec": {"taints": [{"key": "karpenter.sh/disrupted", "effect": "NoSchedule"}]}}, "an autoscaler is about to delete it (taint karpenter.sh/disrupted)"),
        ({"spec": {"taints": [{"key": "karpenter.sh/disruption", "effect": "NoSchedule"}]}}, "an autoscaler is about to delete it (taint karpenter.sh/disruption)"),
        ({"spec": {"taints": [{"key": "ToBeDeletedByClusterAutoscaler", "effect": "NoSchedule"}]}}, "an autoscaler is about to delete it (taint ToBeDeletedByClusterAutoscaler)"),
        ({"metadata": {"name": "n", "deletionTimestamp": "2026-11-03T00:00:00Z"}}, "it is being deleted"),
        ({"status": {"conditions": [{"type": "Ready", "status": "False", "reason": "KubeletNotReady"}]}}, "not ready: KubeletNotReady"),
        *(
            ({"status": {"conditions": [{"type": "Ready", "status": "True"}, {"type": name, "status": status}]}}, name if status == "True" else "")
            for name in ("MemoryPressure", "DiskPressure", "PIDPressure", "NetworkUnavailable")
            for status in ("True", "False")
        ),
    ],
)  # fmt: skip
def test_health_of_nodes(change: Object, illness: str) -> None:
    node: Object = {
        "metadata": {"name": "n", "creationTimestamp": "2026-11-01T00:00:00Z"},
        "spec": {},
        "status": {"conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "2026-11-02T00:00:00Z"}]},
    }  # fmt: skip
    host = nodes.describe({**node, **change}, "")
    assert host.unhealthy == illness
    if not change:
        # A reboot makes a node not ready for a while, and keeps its creation.
        assert host.booted_us == marks.read_time("2026-11-02T00:00:00Z")


@pytest.mark.parametrize(
    ("labels", "zone", "kind"),
    [
        ({}, "", ""),
        ({"failure-domain.beta.kubernetes.io/zone": "z2", "beta.kubernetes.io/instance-type": "m5"}, "z2", "m5"),
        ({"failure-domain.beta.kubernetes.io/zone": "z2", "topology.kubernetes.io/zone": "z1"}, "z1", ""),
        ({"beta.kubernetes.io/instance-type": "m5", "node.kubernetes.io/instance-type": "m7"}, "", "m7"),
    ],
)  # fmt: skip
def test_place_and_facts_of_nodes(labels: dict[str, str], zone: str, kind: str) -> None:
    information = {
        "kernelVersion": "6.1", "osImage": "Debian", "containerRuntimeVersion": "containerd://2",
        "kubeletVersion": "v1.33", "architecture": "", "machineID": "x",
    }  # fmt: skip
    node: Object = {
        "metadata": {"name": "n", "labels": labels, "creationTimestamp": "2026-11-03T00:00:00Z"},
        "status": {
            "nodeInfo": information,
            "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "2026-11-02T00:00:00Z"}],
        },
    }  # fmt: skip
    host = nodes.describe(node, "ana")
    assert (host.name, host.zone, host.instance_type, host.taken) == ("n", zone, kind, "ana")
    assert host.facts == {
        "kernel": "6.1", "image": "Debian", "runtime": "containerd://2", "kubelet": "v1.33",
    }  # fmt: skip
    assert host.booted_us == marks.read_time("2026-11-03T00:00:00Z")


class Cluster:
    """Has one node, and answers a request for its NodeClaim as configured."""

    def __init__(self, owner: str, claim: Object | None = None, code: int = 0) -> None:
        owners = [{"kind": "Other", "name": "x"}, {"kind": owner, "name": "claim-1"}]
        self._node: Object = {"metadata": {"name": "n", "ownerReferences": owners}}
        self._claim, self._code = claim, code

    def get(self, kind: object, name: str) -> Object:
        return self._node

    def find(self, kind: object, name: str) -> Object | None:
        assert (kind, name) == (nodes.KARPENTER, "claim-1")
        if self._code:
            raise kubernetes_api.KubernetesError("not allowed", why="", todo="", code=self._code)
        return self._claim


def test_a_node_that_karpenter_replaces_before_the_lease_ends_is_reported() -> None:
    claim = {"metadata": {"creationTimestamp": "1970-01-01T00:00:10Z"}, "spec": {"expireAfter": "1h"}}  # fmt: skip
    end_us = 3_610_000_000

    def warn(cluster: Any, until_us: int = end_us + 1) -> list[str]:
        return nodes.find_karpenter_warnings(cluster, "n", until_us)

    assert warn(Cluster("NodeClaim", claim)) == [
        "Karpenter replaces n at 1970-01-01 01:00 UTC, before the lease ends (NodeClaim claim-1)"
    ]
    assert warn(Cluster("NodeClaim", claim), end_us) == []
    assert warn(Cluster("NodeClaim")) == warn(Cluster("Machine", claim)) == []
    assert warn(Cluster("NodeClaim", code=403)) == ["Karpenter may replace n: not allowed"]
    with pytest.raises(kubernetes_api.KubernetesError):
        warn(Cluster("NodeClaim", code=500))


@pytest.mark.parametrize(
    ("change", "is_agent"),
    [
        ({}, True),
        ({"labels": {"app.kubernetes.io/name": "overnight-reserved-agent"}}, False),
        ({"ownerReferences": [{"kind": "ReplicaSet", "controller": True}]}, False),
        ({"deletionTimestamp": "now"}, False),
        ({"status": "Pending"}, False),
    ],
)
def test_only_a_running_pod_of_the_daemon_set_is_its_agent(change: Object, is_agent: bool) -> None:
    given: Object = {"labels": {"app.kubernetes.io/name": "overnight-agent"}, **change}
    found = pod("DaemonSet", **given)
    found["status"]["phase"] = change.get("status", "Running")
    assert agents.is_of_daemon_set(found) is is_agent


def test_the_secret_of_an_agent_goes_with_its_pod() -> None:
    made = build()
    made["metadata"]["uid"] = "uid-of-the-pod"
    secret = agents.build_secret(made, {"token": "t"})
    [owner] = secret["metadata"]["ownerReferences"]
    assert owner == {"apiVersion": "v1", "kind": "Pod", "name": made["metadata"]["name"], "uid": "uid-of-the-pod"}  # fmt: skip
    for key in ("name", "namespace", "labels"):
        assert secret["metadata"][key] == made["metadata"][key]
    assert secret["stringData"] == {"token": "t"}
    # A janitor finds pod and Secret by the lease, and the node by the annotation.
    assert made["metadata"]["labels"][marks.KEY] == LEASE.id
    assert made["metadata"]["annotations"] == {marks.NODE: "n" * 200}


def build(server: str = "https://server:8416") -> Object:
    setup = reservations.AgentSetup(server=server, token="t")
    return agents.build_pod("n" * 200, "overnight-agents", "image", LEASE, setup)


def test_the_agent_is_that_of_the_manifest_and_leaves_nothing() -> None:
    (manifest,) = [m for m in yaml.safe_load_all(AGENT.read_text()) if m["kind"] == "DaemonSet"]
    wanted, own = manifest["spec"]["template"]["spec"], build()["spec"]
    (theirs,), (ours,) = wanted["containers"], own["containers"]
    for key in ("securityContext", "resources"):
        assert ours[key] == theirs[key]
    for key in ("hostPID", "hostNetwork", "dnsPolicy", "securityContext", "automountServiceAccountToken", "enableServiceLinks", "terminationGracePeriodSeconds"):  # fmt: skip
        assert own[key] == wanted[key]
    assert [v["name"] for v in ours["env"]] == [v["name"] for v in theirs["env"]]
    assert ours["volumeMounts"] == theirs["volumeMounts"]
    assert ours["command"][:-1] == theirs["command"][:-1]
    by_name = {volume["name"]: volume for volume in own["volumes"]}
    assert "emptyDir" in by_name["data"]
    assert by_name["tokens"]["secret"]["secretName"] == build()["metadata"]["name"]
    assert "t" not in ours["command"]


def test_the_agent_of_a_plan_takes_its_tasks_and_may_use_all_cores() -> None:
    tasks = AgentTasks(kinds=("record", "load"), max_seconds=600)
    setup = reservations.AgentSetup(server="http://server", token="t", tasks=tasks)
    pod = agents.build_pod("n", "overnight-agents", "image", LEASE, setup)
    (container,) = pod["spec"]["containers"]
    assert container["command"][-2:] == ["--signals-only", "--default-config=/etc/overnight/lease.toml"]  # fmt: skip
    # A file of its own: those of a whole Secret are links.
    mount = {"name": "tokens", "mountPath": "/etc/overnight/lease.toml", "subPath": "lease.toml", "readOnly": True}  # fmt: skip
    assert mount in container["volumeMounts"]
    assert container["resources"]["limits"] == {"memory": "2Gi"}
    assert agents.list_files(setup) == {"token": "t", "lease.toml": tasks.format()}
    assert agents.list_files(reservations.AgentSetup(server="", token="t")) == {"token": "t"}


def test_the_agent_lands_on_its_host_and_only_there() -> None:
    own = build()
    (term,) = own["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]  # fmt: skip
    assert term["matchFields"][0]["values"] == ["n" * 200]
    assert term["matchExpressions"][0]["values"] == [LEASE.id]
    assert own["spec"]["tolerations"] == [{"key": marks.KEY, "operator": "Equal", "value": LEASE.id}]  # fmt: skip
    assert own["spec"]["activeDeadlineSeconds"] == MAX_SECONDS
    (manifest,) = [m for m in yaml.safe_load_all(AGENT.read_text()) if m["kind"] == "DaemonSet"]
    selector = manifest["spec"]["selector"]["matchLabels"]
    assert not selector.items() <= own["metadata"]["labels"].items()
    assert len(own["metadata"]["name"]) <= 63
    assert agents.build_name("n", "../x").startswith("overnight-agent-unknown-")


def test_an_agent_without_tls_needs_no_authority() -> None:
    own = build("http://127.0.0.1:1")["spec"]
    assert "ca" not in {volume["name"] for volume in own["volumes"]}
    assert "SSL_CERT_FILE" not in {v["name"] for v in own["containers"][0]["env"]}
