"""Pods of a node: which ones stay, which ones an eviction or a NoExecute taint removes, and what refuses it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from overnight.model.reservation import Workload
from overnight.reservations.providers import _kubernetes_marks as marks

Object = dict[str, Any]

MIRROR = "kubernetes.io/config.mirror"
# Annotations by which owners ask autoscalers not to evict a pod. The Eviction API does not know them.
PROTECTED = {
    "cluster-autoscaler.kubernetes.io/safe-to-evict": "false",
    "karpenter.sh/do-not-disrupt": "true",
    "karpenter.sh/do-not-evict": "true",
}


def name(pod: Object) -> str:
    return f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"


def is_foreign(pod: Object, lease_id: str = "") -> bool:
    """Return whether a pod uses the node and does not belong to this lease."""
    finished = pod.get("status", {}).get("phase") in ("Succeeded", "Failed")
    return not finished and not (lease_id and marks.labels_of(pod).get(marks.KEY) == lease_id)


def find_controller(pod: Object) -> str:
    """Return the kind of the object that would replace a pod; '' if nothing would."""
    owners = pod["metadata"].get("ownerReferences") or []
    return next((str(owner["kind"]) for owner in owners if owner.get("controller")), "")


def find_reason_to_stay(pod: Object) -> str:
    """Return why a pod is not evicted; '' for one that is."""
    if MIRROR in marks.annotations_of(pod):
        return "the kubelet runs it from a file"  # the API has a copy alone
    return "its DaemonSet would start another" if find_controller(pod) == "DaemonSet" else ""


def describe(pod: Object, budgets: Iterable[Object] = ()) -> Workload:
    origin = "static" if MIRROR in marks.annotations_of(pod) else find_controller(pod)
    stays = find_reason_to_stay(pod)
    blocked = "" if stays else find_refusal(pod, budgets)
    return Workload(name(pod), f"{origin} pod".lstrip(), stays, blocked)


def find_refusal(pod: Object, budgets: Iterable[Object]) -> str:
    """Return why the Eviction API would refuse a pod now; '' if it would not, or if it was evicted."""
    if pod["metadata"].get("deletionTimestamp"):
        return ""
    own = [
        budget
        for budget in budgets
        if budget["metadata"]["namespace"] == pod["metadata"]["namespace"]
        and _selects(budget, marks.labels_of(pod))
    ]
    names = " and ".join(budget["metadata"]["name"] for budget in own)
    if len(own) > 1:
        return f"PodDisruptionBudgets {names} select it, and the API evicts no pod of two"
    # A pod that is not ready may be evicted whatever its budget says.
    if own and _is_ready(pod) and not own[0].get("status", {}).get("disruptionsAllowed"):
        return f"PodDisruptionBudget {names} allows no disruption"
    return ""


def _is_ready(pod: Object) -> bool:
    conditions = pod.get("status", {}).get("conditions") or []
    return any((c["type"], c["status"]) == ("Ready", "True") for c in conditions)


def _selects(budget: Object, labels: Mapping[str, str]) -> bool:
    selector = budget["spec"].get("selector")
    if not selector:
        # Empty: every pod in policy/v1, and none in v1beta1. Null: none.
        return selector is not None and budget.get("apiVersion") == "policy/v1"
    wanted = selector.get("matchLabels") or {}
    rules = selector.get("matchExpressions") or []
    return wanted.items() <= labels.items() and all(_matches(rule, labels) for rule in rules)


def _matches(rule: Object, labels: Mapping[str, str]) -> bool:
    value, values = labels.get(rule["key"]), rule.get("values") or []
    match rule["operator"]:
        case "In":
            return value in values
        case "NotIn":
            return value not in values
        case "Exists":
            return value is not None
        case _:
            return value is None


def tolerates(pod: Object, effect: str) -> bool:
    """Return whether a pod stays for good on a node with our taint, whatever the value of the taint."""
    tolerations: Sequence[Object] = pod["spec"].get("tolerations") or []
    return any(
        t.get("operator") == "Exists"
        and t.get("key", "") in ("", marks.KEY)
        and t.get("effect", "") in ("", effect)
        and t.get("tolerationSeconds") is None
        for t in tolerations
    )


def find_losses(pods: Iterable[Object]) -> list[str]:
    """Return what evictions destroy for good."""
    return [
        f"deletes pod {name(pod)} for good: no controller replaces it"
        for pod in pods
        if not find_reason_to_stay(pod) and not find_controller(pod)
    ]


def find_protected(pods: Iterable[Object]) -> list[str]:
    """Return which evictions the owners of pods asked autoscalers not to make."""
    return [
        f"evicts pod {name(pod)} against its annotation {key}={value}"
        for pod in pods
        for key, value in PROTECTED.items()
        if not find_reason_to_stay(pod) and marks.annotations_of(pod).get(key) == value
    ]


def find_lost_data(pods: Iterable[Object]) -> list[str]:
    return [
        f"pod {name(pod)} loses the data in its emptyDir volumes"
        for pod in pods
        if not find_reason_to_stay(pod)
        and any("emptyDir" in volume for volume in pod["spec"].get("volumes") or [])
    ]


def find_deleted(pods: Iterable[Object]) -> list[str]:
    """Return which of the pods that are not evicted a NoExecute taint deletes."""
    return [
        f"the NoExecute taint deletes pod {name(pod)}, which does not tolerate {marks.KEY}"
        for pod in pods
        if find_reason_to_stay(pod) and not tolerates(pod, "NoExecute")
    ]
