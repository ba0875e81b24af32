"""A Node as a candidate: place, health, and the facts that must equal production."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from overnight import kubernetes_api
from overnight.model import times
from overnight.model.reservation import Candidate
from overnight.reservations.providers import _kubernetes_marks as marks

if TYPE_CHECKING:
    from overnight.kubernetes_api import client as api

Object = dict[str, Any]

KARPENTER = kubernetes_api.Kind("karpenter.sh/v1", "nodeclaims")
ZONES = ("topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone")
TYPES = ("node.kubernetes.io/instance-type", "beta.kubernetes.io/instance-type")
PRESSURES = ("MemoryPressure", "DiskPressure", "PIDPressure", "NetworkUnavailable")
# Taints of autoscalers that delete the node. Not that of a mere candidate: an idle node is the best one to take, and
# our annotation keeps it.
DOOMED = ("ToBeDeletedByClusterAutoscaler", "karpenter.sh/disrupted", "karpenter.sh/disruption")
FACTS = {
    "kernel": "kernelVersion",
    "image": "osImage",
    "runtime": "containerRuntimeVersion",
    "kubelet": "kubeletVersion",
    "architecture": "architecture",
}


def describe(node: Object, taken: str) -> Candidate:
    labels = marks.labels_of(node)
    status = node.get("status", {})
    conditions = {c["type"]: c for c in status.get("conditions") or []}
    information = status.get("nodeInfo") or {}
    # The API does not know the boot: a node that reboots is not ready until then, and stays the same object.
    created = node["metadata"].get("creationTimestamp")
    since = map(marks.read_time, (created, conditions.get("Ready", {}).get("lastTransitionTime")))
    return Candidate(
        name=node["metadata"]["name"],
        labels=labels,
        zone=next((labels[key] for key in ZONES if key in labels), ""),
        instance_type=next((labels[key] for key in TYPES if key in labels), ""),
        booted_us=max((time for time in since if time is not None), default=None),
        unhealthy=_find_illness(node, conditions),
        taken=taken,
        facts={key: information[name] for key, name in FACTS.items() if information.get(name)},
    )


def _find_illness(node: Object, conditions: dict[str, Object]) -> str:
    ready = conditions.get("Ready", {})
    if ready.get("status") != "True":
        return f"not ready: {ready.get('message') or ready.get('reason') or 'no status'}"
    if node["metadata"].get("deletionTimestamp"):
        return "it is being deleted"
    for taint in marks.taints_of(node):
        if taint["key"] in DOOMED:
            return f"an autoscaler is about to delete it (taint {taint['key']})"
    for name in PRESSURES:
        if conditions.get(name, {}).get("status") == "True":
            return name
    return "cordoned" if node.get("spec", {}).get("unschedulable") else ""


def find_karpenter_warnings(client: api.Client, host: str, until_us: int) -> list[str]:
    """Warn if Karpenter replaces the node before that time: do-not-disrupt does not prevent an expiry."""
    node = client.get(kubernetes_api.NODES, host)
    owners = node["metadata"].get("ownerReferences") or []
    name = next((owner["name"] for owner in owners if owner["kind"] == "NodeClaim"), None)
    if name is None:
        return []
    try:
        claim = client.find(KARPENTER, name)
    except kubernetes_api.KubernetesError as error:
        if error.code != 403:
            raise
        return [f"Karpenter may replace {host}: {error.what}"]
    end_us = find_expiry(claim or {})
    if end_us is None or end_us >= until_us:
        return []
    return [
        f"Karpenter replaces {host} at {marks.format_time(end_us)}, before the lease ends (NodeClaim {name})"
    ]


def find_expiry(claim: Object) -> int | None:
    """Return when Karpenter replaces the node of a NodeClaim; None if it does not."""
    after = claim.get("spec", {}).get("expireAfter") or "Never"
    made_us = marks.read_time(claim.get("metadata", {}).get("creationTimestamp"))
    if after == "Never" or made_us is None:
        return None
    return made_us + int(times.parse_duration(after) * times.SECOND_US)
