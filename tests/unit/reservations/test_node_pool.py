"""Pool members that are nodes: which one is taken, what is given back, and until when a lease lasts. No cluster."""

from __future__ import annotations

import dataclasses
import pathlib
import time
from typing import Any

import pytest

from overnight import kubernetes_api, pools, reservations
from overnight.model import times
from overnight.model.pool import Reason
from overnight.model.reservation import (
    MAX_SECONDS,
    Candidate,
    Held,
    HostPlan,
    Lease,
    Order,
    Workload,
)
from overnight.pools import pool_errors
from overnight.reservations import node_pool

S = 1_000_000
HOUR_US = 3600 * S
NOW = 1_800_000_000 * S
ORDER = pools.Order(owner="centre", member_id="m-1", pool="ci", template="gpu=h100", endpoint="http://centre")  # fmt: skip
EVICTING = dataclasses.replace(ORDER, template="gpu=h100,evict")


class Nodes:
    """Nodes in the order of their names; `refuse` says which one cannot be claimed or emptied."""

    def __init__(self, **plans: HostPlan) -> None:
        self.plans = plans
        self.held: list[Held] = []
        self.refuse: dict[str, Exception] = {}
        self.calls: list[tuple[str, str]] = []
        self.looks = 0
        self.leases: list[Lease] = []
        self.pods: list[tuple[Any, dict[str, str]]] = []

    def list_hosts(self, order: Order) -> list[Candidate]:
        return [Candidate(name=name, labels={"gpu": "h100"}) for name in self.plans]

    def plan(self, host: Candidate, order: Order) -> HostPlan:
        return self.plans[host.name]

    def list_held(self, order: Order) -> list[Held]:
        return self.held

    def claim(self, host: str, order: Order, lease: Lease) -> None:
        self.calls.append(("claim", host))
        if host in self.refuse:
            raise self.refuse[host]
        self.leases.append(lease)

    def mark(self, host: str, order: Order, lease: Lease) -> None:
        self.calls.append(("mark", host))

    def empty(self, host: str, order: Order, lease: Lease, progress: Any) -> bool:
        self.looks += 1
        progress(f"pod ns/web is still there at look {self.looks}")
        return not any(work.name == "stuck" for work in self.plans[host].workloads)

    def release(self, host: str, order: Order, lease_id: str) -> None:
        self.calls.append(("release", host))

    def renew(self, host: str, order: Order, lease: Lease) -> bool:
        self.calls.append(("renew", host))
        self.leases.append(lease)
        return True

    def start_pod(self, order: Order, pod: Any, files: dict[str, str]) -> None:
        self.pods.append((pod, files))


def plan(name: str, *pods: str, **fields: Any) -> HostPlan:
    workloads = tuple(Workload(pod, "pod") for pod in pods)
    return HostPlan(host=Candidate(name=name), workloads=workloads, **fields)


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stop the clock; waiting for an empty node takes as long as it says."""
    waited = [0.0]
    monkeypatch.setattr(times, "now_us", lambda: NOW)
    monkeypatch.setattr(time, "monotonic", lambda: waited[0])
    monkeypatch.setattr(time, "sleep", lambda seconds: waited.__setitem__(0, waited[0] + seconds))


def provide(nodes: Nodes) -> node_pool.ReservedNodes:
    own: Any = nodes
    settings = reservations.Settings(home=pathlib.Path("/nonexistent"), image="image")
    return node_pool.ReservedNodes(own, settings)


def test_the_lease_of_a_member_names_it_and_is_renewed_for_14_days_at_most() -> None:
    nodes = Nodes(a=plan("a"))
    machine = provide(nodes).launch(ORDER)
    [lease] = nodes.leases
    assert (machine.id, machine.member_id) == (f"a/{lease.id}", "m-1")
    assert (lease.owner, lease.purpose) == ("centre", "pool ci member m-1")
    assert (lease.until_us, lease.cap_us) == (NOW + 6 * HOUR_US, NOW + MAX_SECONDS * S)
    [(pod, files)] = nodes.pods
    assert {"order.json", "agent.py"} == {*files}
    assert pod["metadata"]["annotations"] == {"overnight.dev/node": "a"}


def test_a_launch_that_was_interrupted_takes_the_same_node_with_the_same_lease() -> None:
    nodes = Nodes(a=plan("a"), b=plan("b"))
    [other] = [
        Held("a", other.id, other)
        for other in [Lease("r-aaaaaaaaaaaa", "centre", NOW, NOW, "pool ci member m-2")]
    ]
    first = node_pool._build_lease(ORDER)
    older = dataclasses.replace(first, until_us=first.until_us - HOUR_US)
    nodes.held = [other, Held("b", older.id, older)]
    assert provide(nodes).launch(ORDER).id == f"b/{older.id}"
    assert nodes.leases == [older]


def test_a_node_that_another_took_is_given_back_and_the_next_one_is_tried() -> None:
    nodes = Nodes(a=plan("a"), b=plan("b"))
    nodes.refuse["a"] = reservations.TakenError("a is reserved", why="", todo="")
    assert provide(nodes).launch(ORDER).id.startswith("b/")
    assert nodes.calls == [("claim", "a"), ("release", "a"), ("claim", "b"), ("mark", "b")]


def test_nodes_with_pods_are_left_out_or_emptied_the_least_busy_first() -> None:
    nodes = Nodes(
        a=plan("a", "web", "db"), b=plan("b", "web"), c=plan("c", disrupts=("deletes a pod for good",)),
    )  # fmt: skip
    with pytest.raises(pools.ProviderError) as caught:
        provide(nodes).launch(ORDER)
    assert (caught.value.reason, caught.value.nothing_made) == (Reason.CAPACITY, True)
    assert "all are taken or in use" in caught.value.message
    assert nodes.calls == []
    assert provide(nodes).launch(EVICTING).id.startswith("b/")


@pytest.mark.parametrize(("order", "pods"), [(ORDER, ()), (EVICTING, ("web",))])
def test_a_node_that_does_not_become_empty_is_given_back(
    order: pools.Order, pods: tuple[str, ...]
) -> None:
    stuck = Workload("stuck", stays="DaemonSet")  # it does not show in the plan as one that moves
    found = plan("a", *pods)
    nodes = Nodes(a=dataclasses.replace(found, workloads=(*found.workloads, stuck)))
    with pytest.raises(pools.ProviderError) as caught:
        provide(nodes).launch(order)
    last = f"a is not empty: pod ns/web is still there at look {nodes.looks}"
    assert caught.value.message.endswith(last)
    assert nodes.calls == [("claim", "a"), ("mark", "a"), ("release", "a")]
    waited = time.monotonic()
    assert (90 < waited < 92) if order is EVICTING else waited < 2
    assert nodes.pods == []


@pytest.mark.parametrize(
    ("until", "cap", "renewed"),
    [
        (3 * HOUR_US, 100 * HOUR_US, None),
        (3 * HOUR_US - 1, 100 * HOUR_US, 6 * HOUR_US),
        (-HOUR_US, 100 * HOUR_US, 6 * HOUR_US),
        (HOUR_US, 2 * HOUR_US, 2 * HOUR_US),
        (HOUR_US, HOUR_US, None),
    ],
)
def test_an_inventory_renews_the_second_half_of_a_lease_up_to_its_cap(
    until: int, cap: int, renewed: int | None
) -> None:
    nodes, lease = Nodes(), node_pool._build_lease(ORDER)
    lease = dataclasses.replace(lease, until_us=NOW + until, cap_us=NOW + cap)
    nodes.held = [Held("a", lease.id, lease)]
    [machine] = provide(nodes).inventory("centre")
    assert (machine.id, machine.member_id) == (f"a/{lease.id}", "m-1")
    assert machine.address == f"a#{lease.id}"
    assert [each.until_us - NOW for each in nodes.leases] == ([] if renewed is None else [renewed])


@pytest.mark.parametrize(
    "changes",
    [
        {"owner": "other"},
        {"held": {"gone": "node a was deleted and created again"}},
        {"held": {"lease": None}},
        {"purpose": "night 4"},
        {"purpose": "pool ci member m-2"},  # its id is that of another member
    ],
)
def test_an_inventory_lists_no_node_that_is_gone_or_not_a_member_of_the_owner(
    changes: dict[str, Any],
) -> None:
    nodes, lease = Nodes(), node_pool._build_lease(ORDER)
    lease = dataclasses.replace(lease, purpose=changes.get("purpose", lease.purpose), until_us=NOW)
    held = dataclasses.replace(Held("a", lease.id, lease), **changes.get("held", {}))
    nodes.held = [held]
    assert provide(nodes).inventory(changes.get("owner", "centre")) == []
    assert nodes.calls == []  # it is not renewed either: its lease ends


def test_a_machine_is_released_by_its_node_and_lease_and_nothing_else() -> None:
    nodes = Nodes()
    provide(nodes).terminate("a/r-aaaaaaaaaaaa")
    assert nodes.calls == [("release", "a")]
    for wrong in ("a", "/r-aaaaaaaaaaaa", "a/r-1", "a/r-aaaaaaaaaaaa/x", ""):
        with pytest.raises(pools.ProviderError, match="is not a machine id"):
            provide(nodes).terminate(wrong)
    assert len(nodes.calls) == 1


@pytest.mark.parametrize(
    ("code", "retry", "reason"),
    [
        (401, False, Reason.DENIED),
        (403, False, Reason.DENIED),
        (429, True, Reason.THROTTLED),
        (500, True, Reason.ERROR),
        (0, True, Reason.UNREACHABLE),
        (0, False, Reason.ERROR),
    ],
)
def test_a_failure_of_the_cluster_has_its_reason(code: int, retry: bool, reason: Reason) -> None:
    nodes = Nodes(a=plan("a"))
    cause = kubernetes_api.KubernetesError("refused", why="", todo="", code=code, retry=retry)
    error = reservations.PlatformError("refused", why="because", todo="look", retry=retry)
    error.__cause__ = cause
    nodes.refuse["a"] = error
    with pytest.raises(pools.ProviderError) as caught:
        provide(nodes).launch(ORDER)
    assert (caught.value.reason, caught.value.message) == (reason, "refused: because")
    assert caught.value.todo == "look"


@pytest.mark.parametrize(
    ("template", "labels", "evict"),
    [
        ("gpu=h100", {"gpu": "h100"}, False),
        ("gpu=h100,evict", {"gpu": "h100"}, True),
        ("example.com/tier=,disk=ssd", {"example.com/tier": "", "disk": "ssd"}, False),
    ],
)
def test_a_template_is_labels_and_whether_pods_may_be_evicted(
    template: str, labels: dict[str, str], evict: bool
) -> None:
    parsed = node_pool._parse_template(dataclasses.replace(ORDER, template=template, instance_type="m7"))  # fmt: skip
    assert (parsed.labels, parsed.evict, parsed.instance_type) == (labels, evict, "m7")


@pytest.mark.parametrize("template", ["", "evict", "gpu", "gpu=h100,", "gpu=h100,taken", "evict,evict"])  # fmt: skip
def test_a_template_that_is_not_labels_is_refused(template: str) -> None:
    with pytest.raises(pool_errors.BadKnobError, match="template"):
        node_pool._parse_template(dataclasses.replace(ORDER, template=template))
