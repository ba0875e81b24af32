"""Pods of a node: what stays, what goes, and what refuses; and the pod of an agent."""

from __future__ import annotations

import pathlib
from typing import Any

import pytest
import yaml

from overnight import reservations
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
        ({}, True),
        (None, False),
    ],
)
def test_budgets_select_pods_as_the_api_does(selector: Object | None, matches: bool) -> None:
    refusal = pods.find_refusal(pod("ReplicaSet"), [budget(selector)])
    assert bool(refusal) is matches


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
        ({"status": {"conditions": [{"type": "Ready", "status": "True"}, {"type": "DiskPressure", "status": "True"}]}}, "DiskPressure"),
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
