"""Records of others on a real control plane: damaged, impossible, under another name, of a node that is gone."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator

import kube_reservations as site
import nodes
import pytest

from overnight import kubernetes_api, reservations
from overnight.model import times
from overnight.model.reservation import Lease
from overnight.reservations import janitor, preflight
from overnight.reservations.providers import _kubernetes_marks as marks

pytestmark = pytest.mark.needs_kubernetes
DAY_US = 86_400_000_000
YEAR_2100_US = 4_102_444_800_000_000
SPACE = "overnight"


@pytest.fixture(scope="module")
def place(kubernetes_site: site.Site) -> Iterator[site.Site]:
    with kubernetes_site.with_nodes(node_h={}, node_i={}) as place:
        yield place


@pytest.fixture(autouse=True)
def nothing_is_left(place: site.Site) -> Iterator[None]:
    yield
    place.run_janitor()
    place.wait_for_nothing()


def clean(place: site.Site, days: float = 0.0) -> list[janitor.Cleaned]:
    """Run the janitor with its own rights, so many days from now."""
    now = site.now_us() + round(days * DAY_US)
    with place.account("overnight-janitor") as own, pytest.MonkeyPatch.context() as patch:
        patch.setattr(times, "now_us", lambda: now)
        return list(janitor.clean(own, place.order, clock=lambda: now, sleep=lambda _: None))


def records(lease: Lease) -> list[str]:
    """Return records that no version of overnight writes."""
    fields = vars(lease)
    return [
        json.dumps({**fields, **changes})
        for changes in (
            {"until_us": 10**30, "cap_us": 10**30},
            {"until_us": 10**17, "cap_us": 10**18},
            {"until_us": -(10**30)},
            {"until_us": YEAR_2100_US, "cap_us": YEAR_2100_US},
            {"until_us": True},
            {"owner": "\ud800"},
            {"owner": "a\x1b[2J"},
            {"purpose": "x" * 100_000},
        )
    ]


def test_a_bad_record_keeps_its_own_node_alone_and_is_removed(place: site.Site) -> None:
    lease = site.make_lease()
    for record in records(lease):
        change = {"metadata": {"annotations": {marks.RECORD: record}}}
        place.admin.patch(kubernetes_api.NODES, "node-h", change)
        with place.account() as own:
            taken = {host.name: host.taken for host in own.list_hosts(place.order)}
            plan = preflight.plan_hosts(own, place.order, site.now_us())
            own.claim("node-i", place.order, lease)
            own.mark("node-i", place.order, lease)
            own.release("node-i", place.order, lease.id)
        assert taken["node-i"] == ""
        assert "whose record is not valid" in taken["node-h"], record[:200]
        assert [each.host.name for each in plan.hosts] == ["node-i"]
        assert taken["node-h"] in plan.left_out["node-h"]
        (cleaned,) = clean(place)  # nothing claims it
        assert (cleaned.held.host, cleaned.released) == ("node-h", True)
        assert place.ours() == []


def test_a_bad_lease_object_is_left_for_a_day_and_then_removed(place: site.Site) -> None:
    lease = site.make_lease()
    for record in records(lease):
        with place.account() as own:
            own.claim("node-h", place.order, lease)
            own.mark("node-h", place.order, lease)
        change = {"metadata": {"annotations": {marks.RECORD: record}}}
        place.admin.patch(kubernetes_api.NODES, "node-h", change)
        place.admin.patch(kubernetes_api.LEASES, "overnight-node-h", change, SPACE)
        with place.account() as own:
            taken = {host.name: host.taken for host in own.list_hosts(place.order)}
            with pytest.raises(reservations.TakenError, match="node-h is reserved"):
                own.claim("node-h", place.order, site.make_lease())
        assert "whose record is not valid" in taken["node-h"]
        assert [(c.why, c.released) for c in clean(place)] == [("", False)]
        (cleaned,) = clean(place, days=1.1)
        assert "its record is not valid, and it is older than a day" in cleaned.why
        assert place.ours() == []


def test_the_driver_of_a_live_lease_repairs_bad_records(place: site.Site) -> None:
    lease = site.make_lease()
    with place.account() as own:
        own.claim("node-h", place.order, lease)
        own.mark("node-h", place.order, lease)
        for record in records(lease):
            change = {"metadata": {"annotations": {marks.RECORD: record}}}
            place.admin.patch(kubernetes_api.NODES, "node-h", change)
            place.admin.patch(kubernetes_api.LEASES, "overnight-node-h", change, SPACE)
            if not own.renew("node-h", place.order, lease):
                own.mark("node-h", place.order, lease)
                assert own.renew("node-h", place.order, lease)
            assert [held.lease for held in own.list_held(place.order)] == [lease]
        own.release("node-h", place.order, lease.id)


def test_a_lease_that_is_renewed_for_ever_ends_after_14_days(place: site.Site) -> None:
    now = site.now_us()
    lease = Lease(site.make_lease().id, "ana", now + 13 * DAY_US, now + 14 * DAY_US)
    with place.account() as own:
        own.claim("node-h", place.order, lease)
        own.mark("node-h", place.order, lease)
    later = Lease(lease.id, "ana", now + 26 * DAY_US, now + 27 * DAY_US)
    change = {
        "metadata": {"annotations": {marks.RECORD: later.text()}},
        "spec": {"acquireTime": marks.format_time(now + 14 * DAY_US, marks.MICRO_TIME)},
    }
    place.admin.patch(kubernetes_api.LEASES, "overnight-node-h", change, SPACE)
    assert [c.why for c in clean(place, days=13.9)] == [""]
    (cleaned,) = clean(place, days=14.1)
    assert cleaned.why.startswith("expired 2 h")
    assert place.ours() == []


def test_lease_objects_under_another_name_are_removed(place: site.Site) -> None:
    lease, ended = site.make_lease(), site.make_lease(-300_000_000)
    bodies = []
    for name, holder, notes in [
        ("other-name", ended.id, {marks.RECORD: ended.text(), marks.NODE: "node-h"}),
        ("overnight-node-h-2", ended.id, {marks.RECORD: ended.text(), marks.NODE: "node-h"}),
        ("bare", ended.id, {marks.RECORD: ended.text()}),
        ("somebody", "pod-1", {marks.RECORD: ended.text(), marks.NODE: "node-h"}),
        ("nobody", "", {marks.RECORD: "{", marks.NODE: "node-h"}),
    ]:
        metadata = {"name": name, "annotations": notes}
        bodies.append({"metadata": metadata, "spec": {"holderIdentity": holder}})
    election = {"metadata": {"name": "overnight-election"}, "spec": {"holderIdentity": "pod-1"}}
    with place.account() as own:
        own.claim("node-h", place.order, lease)
        own.mark("node-h", place.order, lease)
    for body in [*bodies, election]:
        place.admin.create(kubernetes_api.LEASES, body, SPACE)
    clean(place)
    clean(place, days=1.1)
    left = {item["metadata"]["name"] for item in place.admin.list(kubernetes_api.LEASES, SPACE)}
    place.admin.delete(kubernetes_api.LEASES, "overnight-election", SPACE)
    assert left == {"overnight-election"}  # the live lease ended within the day
    assert place.ours() == []


def test_a_second_lease_object_does_not_end_the_live_one(place: site.Site) -> None:
    lease, ended = site.make_lease(), site.make_lease(-300_000_000)
    with place.account() as own:
        own.claim("node-h", place.order, lease)
        own.mark("node-h", place.order, lease)
    for name, record in (("copy", ended), ("same-id", Lease(lease.id, "x", 1, 2))):
        metadata = {
            "name": name,
            "annotations": {marks.RECORD: record.text(), marks.NODE: "node-h"},
        }
        body = {"metadata": metadata, "spec": {"holderIdentity": record.id}}
        place.admin.create(kubernetes_api.LEASES, body, SPACE)
    cleaned = {c.held.id: c.released for c in clean(place)}
    assert cleaned == {ended.id: True, lease.id: False}
    assert marks.carries(place.node("node-h"), lease.id)
    with place.account() as own:
        assert own.renew("node-h", place.order, lease)
        own.release("node-h", place.order, lease.id)
    assert place.ours() == []  # the copy with its id went with it


@pytest.mark.parametrize(
    "name",
    ["x" * 100_000, "..", "node-h/", "node-h/status", "../namespaces/default/pods/x", "%2e%2e", "a\nb", ""],
    ids=lambda name: ascii(name[:30]),
)  # fmt: skip
def test_a_lease_object_for_no_node_is_removed_and_the_live_lease_stays(
    place: site.Site, name: str
) -> None:
    """The API server takes `nodes/node-h/` for `nodes/node-h`, and a client `nodes/..` for the list of kinds."""
    live = site.make_lease()
    with place.account() as own:
        own.claim("node-h", place.order, live)
        own.mark("node-h", place.order, live)
    notes = {marks.RECORD: "{", marks.NODE: name}
    body = {
        "metadata": {"name": "copy", "annotations": notes},
        "spec": {"holderIdentity": live.id},
    }
    place.admin.create(kubernetes_api.LEASES, body, SPACE)
    cleaned = {c.held.host: c for c in clean(place)}
    assert {host: c.released for host, c in cleaned.items()} == {"node-h": False, "copy": True}
    assert cleaned["copy"].why == "node copy does not exist"
    assert marks.carries(place.node("node-h"), live.id)
    with place.account() as own:
        assert own.renew("node-h", place.order, live)
        own.release("node-h", place.order, live.id)
    assert place.ours() == []


def test_a_node_that_is_created_again_is_not_adopted(place: site.Site) -> None:
    lease = site.make_lease()
    place.kubelets.add("node-j")
    with place.account() as own:
        own.claim("node-j", place.order, lease)
        own.mark("node-j", place.order, lease)
        assert [held.gone for held in own.list_held(place.order)] == [""]
        place.kubelets.remove("node-j")
        calls: list[Callable[[], object]] = [
            lambda: own.renew("node-j", place.order, lease),
            lambda: own.claim("node-j", place.order, lease),
            lambda: own.mark("node-j", place.order, lease),
            lambda: own.empty("node-j", place.order, lease, print),
        ]
        for call in calls:
            with pytest.raises(reservations.GoneError, match="node node-j does not exist"):
                call()
        assert [held.gone for held in own.list_held(place.order)] == ["node node-j does not exist"]
        place.kubelets.add("node-j")
        before = place.foreign("node-j")
        for call in calls:
            with pytest.raises(
                reservations.GoneError, match="node-j was deleted and created again"
            ):
                call()
        (held,) = own.list_held(place.order)
        assert held.gone == "node node-j was deleted and created again"
        assert not marks.find_ids(place.node("node-j"))
        # Without its Lease object, too: nothing says that the new node was ever reserved.
        place.admin.delete(kubernetes_api.LEASES, "overnight-node-j", SPACE)
        with pytest.raises(reservations.GoneError, match="nothing on node node-j says"):
            own.renew("node-j", place.order, lease)
        assert place.foreign("node-j") == before
        own.release("node-j", place.order, lease.id)
    place.kubelets.remove("node-j")
    assert place.ours() == []


def test_the_claim_of_a_node_that_is_gone_is_removed_after_two_looks(place: site.Site) -> None:
    lease = site.make_lease()
    place.kubelets.add("node-j")
    with place.account() as own:
        own.claim("node-j", place.order, lease)
        own.mark("node-j", place.order, lease)
    place.kubelets.remove("node-j")
    place.kubelets.add("node-j")
    (cleaned,) = clean(place)
    assert (cleaned.why, cleaned.released) == ("node node-j was deleted and created again", True)
    with place.account() as own:
        own.claim("node-j", place.order, site.make_lease())
    place.kubelets.remove("node-j")


def test_the_documented_release_by_kubectl_leaves_nothing_and_keeps_what_others_set(
    place: site.Site,
) -> None:
    text = (site.REPOSITORY / "docs/reservations-kubernetes.md").read_text()
    _, _, after = text.partition("With `kubectl` alone")
    commands = after.split("```")[1].replace("\n$ ", "\n").replace("NODE", "node-h")
    for others in ({}, {marks.AUTOSCALERS[0]: "true"}, dict.fromkeys(marks.AUTOSCALERS, "true")):
        place.admin.patch(kubernetes_api.NODES, "node-h", {"metadata": {"annotations": others}})
        before = place.foreign("node-h")
        lease = site.make_lease()
        with place.account() as own:
            own.claim("node-h", place.order, lease)
            own.mark("node-h", place.order, lease)
            own.start_agent(
                "node-h", place.order, lease, reservations.AgentSetup(server="http://127.0.0.1:9")
            )
            nodes.wait_until(
                lambda: place.admin.list(kubernetes_api.PODS, "overnight-agents")[0]["spec"].get(
                    "nodeName"
                ),
                "the agent has its node",
            )
            assert set(marks.AUTOSCALERS) <= marks.annotations_of(place.node("node-h")).keys()
            done = subprocess.run(
                ["bash", "-euc", commands],
                env=place.cluster.environment,
                capture_output=True,
                text=True,
                check=False,
                timeout=60,
            )
            assert done.returncode == 0, done.stderr
            place.wait_for_nothing()
            assert place.foreign("node-h") == before
            with pytest.raises(reservations.GoneError, match="nothing on node node-h says"):
                own.renew("node-h", place.order, lease)
    clear = {"metadata": {"annotations": dict.fromkeys(marks.AUTOSCALERS)}}
    place.admin.patch(kubernetes_api.NODES, "node-h", clear)
