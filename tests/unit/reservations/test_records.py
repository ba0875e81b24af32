"""Records on a platform are as anybody may have written them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from overnight.model.reservation import MAX_RECORD, MAX_TIME_US, Held, Lease
from overnight.reservations.providers import _kubernetes_marks as marks

LEASE = Lease("r-0123456789ab", "ana", 2_000_000_000, 3_000_000_000, "why")
OTHER = Lease("r-aaaaaaaaaaaa", "ben", 2_000_000_000, 3_000_000_000)
NOW_US = 1_000_000_000
DAY_US = 86_400_000_000
Object = dict[str, Any]


def record(**changes: object) -> str:
    return json.dumps({**vars(LEASE), **changes})


@pytest.mark.parametrize(
    "changes",
    [
        {"until_us": MAX_TIME_US + 1},
        {"cap_us": MAX_TIME_US + 1},
        {"until_us": -1},
        {"cap_us": -1},
        {"until_us": True},
        {"until_us": 1.5},
        {"cap_us": "1"},
        {"owner": "\ud800"},
        {"owner": "a\nb"},
        {"purpose": "\x1b[2J"},
        {"purpose": 7},
        {"id": "r-0123456789ab\n"},
        {"id": "r-0"},
        {"purpose": "x" * MAX_RECORD},
    ],
)
def test_a_record_that_overnight_would_not_write_is_not_a_lease(changes: dict[str, object]) -> None:
    assert Lease.parse(record(**changes)) is None


@pytest.mark.parametrize("changes", [{"until_us": 0}, {"cap_us": MAX_TIME_US}, {"owner": "Zoë"}, {"purpose": ""}])  # fmt: skip
def test_a_record_at_the_edge_is_a_lease(changes: dict[str, Any]) -> None:
    assert Lease.parse(record(**changes)) == Lease(**{**vars(LEASE), **changes})


def claim(lease: Lease, name: str = "", uid: str = "u", host: str = "n", **changes: Any) -> Object:
    made = marks.build_claim(host, "overnight", lease, NOW_US, uid)
    made["metadata"] |= {"creationTimestamp": "1970-01-01T00:00:07Z", **changes}
    if name:
        made["metadata"]["name"] = name
    return made


NODE: Object = {"metadata": {"name": "n", "uid": "u"}, "spec": {}}


def test_two_leases_on_a_host_are_two_marks() -> None:
    held = marks.find_held([NODE], [claim(LEASE), claim(OTHER, "copy")], [], NOW_US)
    assert [(h.id, h.lease) for h in held] == [(LEASE.id, LEASE), (OTHER.id, OTHER)]


@pytest.mark.parametrize("first", [True, False])
def test_of_two_objects_of_one_lease_the_one_with_its_name_counts(first: bool) -> None:
    later = Lease(LEASE.id, "ana", LEASE.until_us + 5, LEASE.cap_us)
    copy = claim(later, "copy", uid="other", creationTimestamp="1970-01-01T00:00:01Z")
    both = [claim(LEASE), copy] if first else [copy, claim(LEASE)]
    [held] = marks.find_held([NODE], both, [], NOW_US)
    assert held == Held("n", LEASE.id, later, since_us=7_000_000)


def test_a_record_that_no_reservation_may_have_does_not_hide_the_valid_one() -> None:
    for changes in ({"until_us": 15 * DAY_US}, {"cap_us": 15 * DAY_US}):
        wrong = Lease(**{**vars(LEASE), **changes})
        node = {"metadata": {"name": "n", "uid": "u", "annotations": {marks.RECORD: wrong.text()}}}
        [held] = marks.find_held([node], [claim(LEASE)], [], NOW_US)
        assert held.lease == LEASE
        [held] = marks.find_held([node], [claim(wrong)], [], NOW_US)
        assert held.lease is None
        assert not marks.is_expired(held.lease, 10**18)


def test_a_claim_is_for_one_node_and_not_for_its_name() -> None:
    def gone(node: Object | None, **changes: Any) -> str:
        [held] = marks.find_held([node] if node else [], [claim(LEASE, **changes)], [], NOW_US)
        return held.gone

    assert gone(NODE) == ""
    assert gone(None) == "node n does not exist"
    assert gone({"metadata": {"name": "n", "uid": "v"}}) == "node n was deleted and created again"
    assert gone(NODE, annotations={marks.RECORD: LEASE.text(), marks.NODE: "n"}).endswith("again")
    # A mark without a claim says nothing about it.
    [held] = marks.find_held([{"metadata": {**NODE["metadata"], "labels": {marks.KEY: LEASE.id}}}], [], [], NOW_US)  # fmt: skip
    assert (held.gone, held.claimed) == ("", False)


@pytest.mark.parametrize(
    ("name", "host"),
    [
        ("ip-10-0-0-7.ec2.internal", "ip-10-0-0-7.ec2.internal"),
        ("a" * 253, "a" * 253),
        ("a" * 254, "n"),
        *((name, "n") for name in ("", "..", "m/", "m/status", "../x", "%2e", "m\n", "M", "-m", "m.")),
    ],
)  # fmt: skip
def test_a_claim_is_for_a_name_that_a_node_can_have(name: str, host: str) -> None:
    item = {"metadata": {"name": "overnight-n", "annotations": {marks.NODE: name}}}
    assert marks.find_host(item) == host


@pytest.mark.parametrize(
    ("item", "ours"),
    [
        ({"metadata": {"name": "x"}, "spec": {"holderIdentity": LEASE.id}}, True),
        ({"metadata": {"name": "x", "annotations": {marks.RECORD: "{"}}, "spec": {}}, True),
        ({"metadata": {"name": "overnight-n"}, "spec": {"holderIdentity": "pod-1"}}, False),
        ({"metadata": {"name": "overnight-n", "annotations": {marks.NODE: "n"}}}, False),
    ],
)
def test_a_lease_object_is_ours_by_its_record_or_its_holder(item: Object, ours: bool) -> None:
    assert marks.is_claim(item) is ours


@pytest.mark.parametrize(
    "lease_id", ["\ud800", "r-0123456789ab\n", "x" * 100_000, 3, ["r-0123456789ab"]]
)
def test_an_undo_note_of_no_lease_is_damaged(lease_id: object) -> None:
    note = json.dumps({"id": lease_id, "annotations": [*marks.AUTOSCALERS]})
    annotations = {marks.UNDO: note, **dict.fromkeys(marks.AUTOSCALERS, "true")}
    node: Object = {"metadata": {"name": "n", "annotations": annotations}, "spec": {}}
    assert marks.find_ids(node) == {""}
    # It goes, and what it names stays: nothing says that it is ours.
    assert marks.strip(node, "") == {"metadata": {"labels": {}, "annotations": {marks.UNDO: None}}}


def test_the_cap_of_a_lease_ends_it_too() -> None:
    early = Lease(LEASE.id, "ana", NOW_US + DAY_US, NOW_US)
    assert marks.is_expired(early, NOW_US + marks.GRACE_US + 1)
    assert not marks.is_expired(early, NOW_US + marks.GRACE_US)
