"""Marks of reservations on Nodes and Lease objects: pure functions from an object to its merge patch.

A Node carries the id of its lease as label and taint, the lease as annotation, and in a second annotation which
of the annotations for autoscalers are ours. Nothing here changes what is not ours, and `strip` keeps the marks of
other leases.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from overnight.model.reservation import LEASE_ID, Held, Lease
from overnight.model.times import SECOND_US
from overnight.reservations import decisions

Object = dict[str, Any]

KEY = "overnight.dev/lease"  # label and taint
RECORD = "overnight.dev/lease-record"
UNDO = "overnight.dev/lease-undo"
NODE = "overnight.dev/node"  # annotation of a Lease object or pod: the node that it is for
UID = "overnight.dev/node-uid"  # annotation of a Lease object: a node may be created again under its name
PART_OF = {"app.kubernetes.io/part-of": "overnight"}
AUTOSCALERS = (
    "cluster-autoscaler.kubernetes.io/scale-down-disabled",
    "karpenter.sh/do-not-disrupt",
)
GRACE_US = decisions.GRACE_SECONDS * SECOND_US
MAX_NAME = 253
# As the API accepts.
NODE_NAME = re.compile(rf"(?=.{{1,{MAX_NAME}}}\Z)[a-z0-9]+(?:[.-]+[a-z0-9]+)*")
MICRO_TIME = "%Y-%m-%dT%H:%M:%S.%fZ"  # of Lease objects


def is_expired(lease: Lease | None, now_us: int) -> bool:
    """Return whether others may take the host; never for a record that is not valid."""
    return lease is not None and min(lease.until_us, lease.cap_us) + GRACE_US < now_us


def labels_of(item: Object) -> dict[str, str]:
    return item["metadata"].get("labels") or {}


def annotations_of(item: Object) -> dict[str, str]:
    return item["metadata"].get("annotations") or {}


def taints_of(node: Object) -> list[dict[str, str]]:
    return node.get("spec", {}).get("taints") or []


@dataclasses.dataclass(frozen=True)
class _Undo:
    id: str
    annotations: tuple[str, ...] = ()
    no_execute: bool = False  # whether the node must have that taint, too

    def text(self) -> str:
        return json.dumps(dataclasses.asdict(self))


def _read_undo(node: Object) -> _Undo | None:
    try:
        given = json.loads(annotations_of(node).get(UNDO, ""))
        known = tuple(name for name in AUTOSCALERS if name in given["annotations"])
        valid = LEASE_ID.fullmatch(given["id"])
        return _Undo(valid[0], known, given.get("no_execute") is True) if valid else None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


def _own_undo(node: Object, lease_id: str) -> _Undo:
    undo = _read_undo(node)
    return undo if undo is not None and undo.id == lease_id else _Undo(lease_id)


def read_record(item: Object) -> Lease | None:
    return Lease.parse(annotations_of(item).get(RECORD, ""))


def find_ids(node: Object) -> set[str]:
    """Return the ids of all leases whose marks a node carries; '' for a mark that does not say whose it is."""
    ids = {taint.get("value", "") for taint in taints_of(node) if taint["key"] == KEY}
    if (label := labels_of(node).get(KEY)) is not None:
        ids.add(label)
    ids |= {read.id for read in (read_record(node), _read_undo(node)) if read is not None}
    if not ids and {RECORD, UNDO} & annotations_of(node).keys():
        ids.add("")
    return ids


def carries(node: Object, lease_id: str) -> bool:
    """Return whether a node has every mark that keeps others off: label, record and taints."""
    effects = ["NoSchedule"] + ["NoExecute"] * _own_undo(node, lease_id).no_execute
    record = read_record(node)
    return (
        labels_of(node).get(KEY) == lease_id
        and record is not None
        and record.id == lease_id
        and all(_add_taint(node, lease_id, effect) is None for effect in effects)
    )


def mark(node: Object, lease: Lease) -> Object | None:
    """Return the patch that puts all marks but NoExecute on a node; None if it has them."""
    undo, present = _own_undo(node, lease.id), annotations_of(node)
    before = undo.annotations
    # One that somebody else set, also since, stays what it is.
    ours = tuple(
        name
        for name in AUTOSCALERS
        if name not in present or (name in before and present[name] == "true")
    )
    annotations = {
        RECORD: lease.text(),
        UNDO: dataclasses.replace(undo, annotations=ours).text(),
        **dict.fromkeys(ours, "true"),
    }
    tainted = _add_taint(node, lease.id, "NoSchedule")
    if tainted is None and labels_of(node).get(KEY) == lease.id and annotations.items() <= present.items():  # fmt: skip
        return None
    return {"metadata": {"labels": {KEY: lease.id}, "annotations": annotations}, **(tainted or {})}


def add_no_execute(node: Object, lease_id: str) -> Object | None:
    """Return the patch that adds the NoExecute taint to a node of this lease; None for any other."""
    if labels_of(node).get(KEY) != lease_id or _add_taint(node, lease_id, "NoSchedule"):
        return None
    undo = dataclasses.replace(_own_undo(node, lease_id), no_execute=True).text()
    tainted = _add_taint(node, lease_id, "NoExecute")
    if tainted is None and annotations_of(node).get(UNDO) == undo:
        return None
    return {"metadata": {"annotations": {UNDO: undo}}, **(tainted or {})}


def _add_taint(node: Object, lease_id: str, effect: str) -> Object | None:
    wanted = {"key": KEY, "value": lease_id, "effect": effect}
    taints = taints_of(node)
    if any(wanted.items() <= taint.items() for taint in taints):
        return None
    # A list of taints is unique by key and effect: another lease's taint would make the patch invalid.
    others = [t for t in taints if (t["key"], t["effect"]) != (KEY, effect)]
    return {"spec": {"taints": [*others, wanted]}}


def write_record(node: Object, lease: Lease) -> Object | None:
    """Return the patch that renews the record of a node that carries this lease; None for any other."""
    if not carries(node, lease.id) or read_record(node) == lease:
        return None
    return {"metadata": {"annotations": {RECORD: lease.text()}}}


def strip(node: Object, lease_id: str) -> Object | None:
    """Return the patch that removes every mark of this lease and no other; None if there is none."""
    present, undo, record = annotations_of(node), _read_undo(node), read_record(node)
    # A damaged mark belongs to the only lease that the node names.
    alone = find_ids(node) <= {lease_id}
    annotations: dict[str, None] = {}
    if RECORD in present and (alone if record is None else record.id == lease_id):
        annotations[RECORD] = None
    if UNDO in present and (alone if undo is None else undo.id == lease_id):
        annotations[UNDO] = None
        ours = undo.annotations if undo is not None else ()
        annotations.update((name, None) for name in ours if present.get(name) == "true")
    labels = {KEY: None} if labels_of(node).get(KEY) == lease_id else {}
    taints = taints_of(node)
    others = [t for t in taints if (t["key"], t.get("value", "")) != (KEY, lease_id)]
    patch: Object = {}
    if labels or annotations:
        patch["metadata"] = {"labels": labels, "annotations": annotations}
    if len(others) < len(taints):
        patch["spec"] = {"taints": others or None}
    return patch or None


def name_claim(host: str) -> str:
    """Return the name of the Lease object of a node."""
    name = f"overnight-{host}"
    if len(name) <= MAX_NAME:
        return name
    return f"{name[: MAX_NAME - 13].rstrip('.-')}-{hashlib.sha256(host.encode()).hexdigest()[:12]}"


def build_claim(host: str, namespace: str, lease: Lease, now_us: int, uid: str = "") -> Object:
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {
            "name": name_claim(host),
            "namespace": namespace,
            "labels": {**PART_OF, KEY: lease.id},
            "annotations": {RECORD: lease.text(), NODE: host, UID: uid},
        },
        "spec": {
            "holderIdentity": lease.id,
            "leaseDurationSeconds": max(1, (lease.until_us - now_us) // 1_000_000),
            "acquireTime": format_time(now_us, MICRO_TIME),
            "renewTime": format_time(now_us, MICRO_TIME),
        },
    }


def renew_claim(claim: Object, lease: Lease, now_us: int) -> Object | None:
    """Return the patch that renews a Lease object of this lease; None for any other."""
    if find_holder(claim) != lease.id:
        return None
    new = build_claim("", "", lease, now_us)
    del new["spec"]["acquireTime"]
    return {"metadata": {"annotations": {RECORD: lease.text()}}, "spec": new["spec"]}


def find_holder(claim: Object) -> str:
    return (claim.get("spec") or {}).get("holderIdentity") or ""


def is_claim(item: Object) -> bool:
    """Return whether a Lease object is ours, whatever its name; the namespace may have others."""
    return RECORD in annotations_of(item) or bool(LEASE_ID.fullmatch(find_holder(item)))


def find_host(item: Object) -> str:
    """Return the node that a Lease object or pod of ours is for; never a text that is another path of the API."""
    named = NODE_NAME.fullmatch(annotations_of(item).get(NODE, ""))
    return named[0] if named else item["metadata"]["name"].removeprefix("overnight-")


def find_held(
    nodes: Iterable[Object], claims: Iterable[Object], pods: Iterable[Object], now_us: int
) -> list[Held]:
    """Return every lease of which any mark is left on any host: each mark alone is enough."""
    present: dict[str, Object] = {node["metadata"]["name"]: node for node in nodes}
    claimed: dict[tuple[str, str], Object] = {}
    records: dict[tuple[str, str], list[Lease | None]] = {}
    for claim in claims:
        key = (find_host(claim), find_holder(claim))
        records.setdefault(key, []).append(read_record(claim))
        # Somebody may have written another one for the same lease.
        if key not in claimed or claim["metadata"]["name"] == name_claim(key[0]):
            claimed[key] = claim
    for host, node in present.items():
        for lease_id in find_ids(node):
            records.setdefault((host, lease_id), []).append(read_record(node))
    for pod in pods:
        if "deletionTimestamp" not in pod["metadata"]:  # else it ends, and nothing is left to do
            records.setdefault((find_host(pod), labels_of(pod).get(KEY, "")), [])
    return [
        _merge(host, lease_id, found, claimed.get((host, lease_id)), present.get(host), now_us)
        for (host, lease_id), found in sorted(records.items())
    ]


def find_absence(host: str, node: Object | None, claim: Object) -> str:
    """Return why a node is not the one that a Lease object is for; '' if it is."""
    if node is None:
        return f"node {host} does not exist"
    same = annotations_of(claim).get(UID) == node["metadata"].get("uid")
    return "" if same else f"node {host} was deleted and created again"


def _merge(
    host: str,
    lease_id: str,
    found: Iterable[Lease | None],
    claim: Object | None,
    node: Object | None,
    now_us: int,
) -> Held:
    own = [r for r in found if r and r.id == lease_id and decisions.is_valid(r, now_us)]
    # A renewal that was killed wrote one of the two records.
    lease = max(own, key=lambda record: record.until_us, default=None)
    if claim is None:
        return Held(host, lease_id, lease, claimed=False)
    # The time of the server: those in `spec` are as others wrote them.
    since_us = read_time(claim["metadata"].get("creationTimestamp"))
    return Held(host, lease_id, lease, since_us=since_us, gone=find_absence(host, node, claim))


def describe(held: Held) -> str:
    if held.lease is None:
        name = held.id if LEASE_ID.fullmatch(held.id) else "without id"
        return f"lease {name}, whose record is not valid"
    return f"{held.lease.owner or 'somebody'} until {format_time(held.lease.until_us)} (lease {held.id})"


def find_taken(held: Iterable[Held], now_us: int) -> Mapping[str, str]:
    """Return the holder of each host; expired leases hold nothing."""
    return {h.host: describe(h) for h in held if not is_expired(h.lease, now_us)}


def read_time(text: str | None) -> int | None:
    """Return the time of an API object in µs since 1970."""
    with contextlib.suppress(ValueError):
        return int(datetime.datetime.fromisoformat(text or "").timestamp() * 1_000_000)
    return None


def format_time(time_us: int, form: str = "%Y-%m-%d %H:%M UTC") -> str:
    return datetime.datetime.fromtimestamp(time_us / 1_000_000, datetime.UTC).strftime(form)
