"""Marks on nodes as pure functions: whatever a node carries, nothing of others changes."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from overnight.model.reservation import Held, Lease
from overnight.reservations.providers import _kubernetes_marks as marks

LEASE = Lease("r-0123456789ab", "ana", 2_000_000_000, 3_000_000_000, "why")
OTHER = Lease("r-aaaaaaaaaaaa", "ben", 2_000_000_000, 3_000_000_000)
NOW_US = 1_000_000_000
UNDO = '{"id": "%s", "annotations": ["karpenter.sh/do-not-disrupt"]}'
Object = dict[str, Any]


def apply(item: Object, patch: Object | None) -> Object:
    """Apply a JSON merge patch, as the API server does."""
    result = copy.deepcopy(item)
    for key, value in (patch or {}).items():
        if value is None:
            result.pop(key, None)
        elif isinstance(value, dict):
            below = result.get(key)
            result[key] = apply(below if isinstance(below, dict) else {}, value)
        else:
            result[key] = value
    return result


def foreign(node: Object) -> Object:
    ours = (marks.KEY, marks.RECORD, marks.UNDO)
    return {
        "labels": {k: v for k, v in marks.labels_of(node).items() if k not in ours},
        "annotations": {k: v for k, v in marks.annotations_of(node).items() if k not in ours},
        "taints": [taint for taint in marks.taints_of(node) if taint["key"] != marks.KEY],
        "rest": node["spec"].get("unschedulable"),
    }


ids = st.sampled_from([LEASE.id, OTHER.id, "garbage", ""])
records = st.sampled_from([LEASE.text(), OTHER.text(), "", "{", "null"])
undos = st.sampled_from([UNDO % LEASE.id, UNDO % OTHER.id, "", "[]", '{"id": 3}'])


def optional(**choices: st.SearchStrategy[str]) -> st.SearchStrategy[dict[str, str]]:
    return st.fixed_dictionaries({}, optional=choices)


nodes = st.builds(
    lambda labels, annotations, taints, cordoned: {
        "metadata": {"name": "n", "labels": labels, "annotations": annotations},
        "spec": {"taints": taints, **({"unschedulable": True} if cordoned else {})},
    },
    optional(**{marks.KEY: ids, "other": st.just("1")}),
    optional(
        **{marks.RECORD: records, marks.UNDO: undos, "other": st.just("1")},
        **dict.fromkeys(marks.AUTOSCALERS, st.sampled_from(["true", "false"])),
    ),
    st.lists(
        st.fixed_dictionaries(
            {
                "key": st.sampled_from([marks.KEY, "other"]),
                "value": ids,
                "effect": st.sampled_from(["NoSchedule", "NoExecute"]),
            }
        ),
        unique_by=lambda taint: (taint["key"], taint["effect"]),
    ),
    st.booleans(),
)


@given(nodes, st.sampled_from([LEASE.id, OTHER.id, "garbage", ""]))
def test_strip_removes_all_of_one_lease_and_nothing_else(node: Object, lease_id: str) -> None:
    before = marks.find_ids(node)
    after = apply(node, marks.strip(node, lease_id))
    assert lease_id not in marks.find_ids(after)
    assert before - {lease_id} <= marks.find_ids(after)
    assert marks.strip(after, lease_id) is None
    lost = foreign(node)["annotations"].items() - foreign(after)["annotations"].items()
    # Only what the undo record of this very lease names, and only while it is as we wrote it.
    assert lost <= {("karpenter.sh/do-not-disrupt", "true")}
    if lost:
        assert lease_id in node["metadata"]["annotations"][marks.UNDO]
    for key in ("labels", "taints", "rest"):
        assert foreign(after)[key] == foreign(node)[key]


@given(nodes)
def test_all_ids_that_are_found_can_be_stripped(node: Object) -> None:
    for _ in range(5):
        for lease_id in marks.find_ids(node):
            node = apply(node, marks.strip(node, lease_id))
    assert marks.find_ids(node) == set()
    assert not {marks.RECORD, marks.UNDO} & marks.annotations_of(node).keys()


@given(nodes.filter(lambda node: marks.find_ids(node) <= {LEASE.id}))
def test_mark_and_strip_leave_a_node_as_it_was(node: Object) -> None:
    clean = apply(node, marks.strip(node, LEASE.id))
    marked = apply(node, marks.mark(node, LEASE))
    assert marks.carries(marked, LEASE.id)
    assert marks.mark(marked, LEASE) is None
    assert marked["metadata"]["annotations"].keys() >= set(marks.AUTOSCALERS)
    again = apply(marked, marks.strip(marked, LEASE.id))
    assert foreign(again) == foreign(clean)
    assert marks.find_ids(again) == set()


def test_what_others_set_meanwhile_stays() -> None:
    node: Object = {"metadata": {"name": "n"}, "spec": {}}
    marked = apply(node, marks.mark(node, LEASE))
    first, second = marks.AUTOSCALERS
    marked["metadata"]["annotations"][first] = "false"
    marked = apply(marked, marks.mark(marked, LEASE))
    assert marked["metadata"]["annotations"][first] == "false"
    stripped = apply(marked, marks.strip(marked, LEASE.id))
    assert stripped["metadata"]["annotations"] == {first: "false"}
    assert second not in stripped["metadata"]["annotations"]


def test_a_lease_that_cannot_be_read_never_expires() -> None:
    assert not marks.is_expired(None, 10**18)
    assert marks.is_expired(LEASE, LEASE.until_us + marks.GRACE_US + 1)
    assert not marks.is_expired(LEASE, LEASE.until_us + marks.GRACE_US)


def test_renewal_writes_only_onto_a_node_with_all_marks() -> None:
    node: Object = {"metadata": {"name": "n"}, "spec": {}}
    marked = apply(node, marks.mark(node, LEASE))
    later = Lease(LEASE.id, "ana", LEASE.until_us + 5, LEASE.cap_us, "why")
    assert marks.write_record(marked, later) == {
        "metadata": {"annotations": {marks.RECORD: later.text()}}
    }
    for lost in ("labels", "annotations", "taints"):
        broken = copy.deepcopy(marked)
        broken["spec" if lost == "taints" else "metadata"].pop(lost)
        assert not marks.carries(broken, LEASE.id)
        assert marks.write_record(broken, later) is None
    assert marks.write_record(marked, OTHER) is None


def test_a_lost_no_execute_taint_is_seen_and_no_other_lease_gets_one() -> None:
    node: Object = {"metadata": {"name": "n"}, "spec": {}}
    assert marks.add_no_execute(node, LEASE.id) is None
    marked = apply(node, marks.mark(node, LEASE))
    assert marks.add_no_execute(marked, OTHER.id) is None
    both = apply(marked, marks.add_no_execute(marked, LEASE.id))
    assert marks.carries(both, LEASE.id)
    assert marks.add_no_execute(both, LEASE.id) is None
    lost = apply(both, {"spec": {"taints": marks.taints_of(marked)}})
    assert not marks.carries(lost, LEASE.id)
    assert marks.mark(lost, LEASE) is None  # only on an empty node
    assert apply(lost, marks.add_no_execute(lost, LEASE.id)) == both
    assert marks.find_ids(apply(both, marks.strip(both, LEASE.id))) == set()


def test_the_claim_of_another_lease_is_not_renewed() -> None:
    claim = marks.build_claim("n", "overnight", LEASE, 1_000_000_000)
    assert claim["spec"]["leaseDurationSeconds"] == 1000
    assert claim["spec"]["renewTime"] == "1970-01-01T00:16:40.000000Z"
    assert marks.renew_claim(claim, OTHER, 0) is None
    patch = marks.renew_claim(claim, LEASE, 1_500_000_000)
    assert patch is not None
    assert "acquireTime" not in patch["spec"]
    assert apply(claim, patch)["metadata"] == claim["metadata"]


@pytest.mark.parametrize("host", ["n", "ip-10-0-0-1.eu-west-1.compute.internal", "x" * 240 + ".y." + "z" * 10])  # fmt: skip
def test_claims_of_hosts_have_valid_names_of_their_own(host: str) -> None:
    name = marks.name_claim(host)
    assert len(name) <= 253
    assert name != marks.name_claim(host + "2")
    claim = marks.build_claim(host, "overnight", LEASE, 0)
    assert marks.is_claim(claim)
    assert marks.find_host(claim) == host


def test_held_merges_what_node_claim_and_pod_say() -> None:
    later = Lease(LEASE.id, "ana", LEASE.until_us + 5, LEASE.cap_us)
    node: Object = {"metadata": {"name": "n", "uid": "u"}, "spec": {}}
    node = apply(node, marks.mark(node, LEASE))
    claim = marks.build_claim("n", "overnight", later, 7_000_000, "u")
    pod = {"metadata": {"name": "p", "labels": {marks.KEY: OTHER.id}, "annotations": {marks.NODE: "m"}}}  # fmt: skip
    ended = {"metadata": {**pod["metadata"], "deletionTimestamp": "now"}}
    claim["metadata"]["creationTimestamp"] = "1970-01-01T00:00:07Z"
    assert marks.find_held([node], [claim], [pod], NOW_US) == [
        Held("m", OTHER.id, None, claimed=False),
        Held("n", LEASE.id, later, claimed=True, since_us=7_000_000),
    ]
    assert marks.find_held([], [], [ended], NOW_US) == []
    held = marks.find_held([node], [claim], [], NOW_US)
    taken = marks.find_taken(held, LEASE.until_us)
    assert taken == {"n": "ana until 1970-01-01 00:33 UTC (lease r-0123456789ab)"}
    assert not marks.find_taken(held, later.until_us + marks.GRACE_US + 1)


@pytest.mark.parametrize(
    ("held", "text"),
    [
        (Held("n", LEASE.id, LEASE), "ana until 1970-01-01 00:33 UTC (lease r-0123456789ab)"),
        (Held("n", LEASE.id, Lease(LEASE.id, "", LEASE.until_us, LEASE.cap_us)), "somebody until 1970-01-01 00:33 UTC (lease r-0123456789ab)"),
        (Held("n", LEASE.id, None), "lease r-0123456789ab, whose record is not valid"),
        (Held("n", "ana until tomorrow", None), "lease without id, whose record is not valid"),
    ],
)  # fmt: skip
def test_the_holder_of_a_host_is_described_and_no_text_of_others_is_repeated(
    held: Held, text: str
) -> None:
    assert marks.describe(held) == text
    assert marks.find_taken([held], 10**18 if held.lease is None else NOW_US) == {"n": text}


def test_a_lease_object_has_a_duration_that_the_api_accepts() -> None:
    claim = marks.build_claim("n", "overnight", LEASE, LEASE.until_us + 5)
    assert claim["spec"]["leaseDurationSeconds"] == 1


def test_a_renewal_of_a_lease_object_writes_the_new_record_and_the_time() -> None:
    later = Lease(LEASE.id, "ana", LEASE.until_us + 7_000_000, LEASE.cap_us)
    claim = marks.build_claim("n", "overnight", LEASE, NOW_US)
    renewed = apply(claim, marks.renew_claim(claim, later, NOW_US + 5_000_000))
    assert marks.read_record(renewed) == later
    assert renewed["metadata"]["annotations"][marks.NODE] == "n"
    assert renewed["spec"] == {
        "holderIdentity": LEASE.id, "leaseDurationSeconds": 1002,
        "acquireTime": "1970-01-01T00:16:40.000000Z", "renewTime": "1970-01-01T00:16:45.000000Z",
    }  # fmt: skip


def test_lease_objects_of_others_are_not_ours() -> None:
    other = {"metadata": {"name": "overnight-election"}, "spec": {"holderIdentity": "pod-1"}}
    assert not marks.is_claim(other)
    # The holder alone says that it is ours, whatever its name.
    assert marks.is_claim({**marks.build_claim("n", "o", LEASE, 0), "metadata": {"name": "x"}})
