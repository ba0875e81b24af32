from __future__ import annotations

import dataclasses

import pytest

from overnight import errors
from overnight.model.reservation import (
    MAX_SECONDS,
    Candidate,
    HostPlan,
    Lease,
    Order,
    Preflight,
    Workload,
)
from overnight.reservations import selection

S = 1_000_000
DAY = 86_400
NOW = 100 * DAY * S
ORDER = Order(provider="played", owner="ops@desk")


def host(name: str = "a", **fields: object) -> Candidate:
    return Candidate(name=name, **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("order", "candidate", "why"),
    [
        ({}, host(), ""),
        ({}, host(taken="ops"), "reserved by ops"),
        ({}, host(unhealthy="NotReady"), "unhealthy: NotReady"),
        ({"allow_unhealthy": True}, host(unhealthy="NotReady"), ""),
        ({"labels": {"tier": "gold"}}, host(), "no label tier"),
        ({"labels": {"tier": "gold"}}, host(labels={"tier": "tin"}), "label tier is tin"),
        ({"labels": {"tier": "gold"}}, host(labels={"tier": "gold"}), ""),
        ({"zone": "1a"}, host(zone="1b"), "in zone 1b"),
        ({"zone": "1a"}, host(), "in zone (unknown)"),
        ({"instance_type": "m5"}, host(instance_type="c5"), "of type c5"),
        ({"min_uptime_seconds": 5 * DAY}, host(), "its uptime is unknown"),
        ({"min_uptime_seconds": 5 * DAY}, host(booted_us=96 * DAY * S), "up for 4 d only"),
        ({"min_uptime_seconds": 5 * DAY}, host(booted_us=95 * DAY * S), ""),
        ({"max_uptime_seconds": 5 * DAY}, host(), "its uptime is unknown"),
        ({"max_uptime_seconds": 5 * DAY}, host(booted_us=94 * DAY * S), "up for 6 d"),
        ({"max_uptime_seconds": 5 * DAY}, host(booted_us=95 * DAY * S), ""),
        ({"max_uptime_seconds": 5 * DAY}, host(booted_us=101 * DAY * S), ""),
        ({"reference": "a"}, host(), "the reference host"),
    ],
)
def test_a_host_fits_or_the_reason_is_given(
    order: dict[str, object], candidate: Candidate, why: str
) -> None:
    chosen = dataclasses.replace(ORDER, **order)  # type: ignore[arg-type]
    fit, left_out = selection.rank(chosen, [candidate], NOW)
    assert left_out.get("a", "") == why
    assert [each.name for each in fit] == ([] if why else ["a"])


def test_hosts_are_in_the_order_of_their_names_or_as_they_were_named() -> None:
    listed = [host("c"), host("a"), host("b")]
    assert [h.name for h in selection.rank(ORDER, listed, NOW)[0]] == ["a", "b", "c"]
    named = dataclasses.replace(ORDER, hosts=("b", "x", "a"))
    fit, left_out = selection.rank(named, listed, NOW)
    assert [h.name for h in fit] == ["b", "a"]
    assert left_out == {"x": "no such host"}


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"count": 0}, "invalid --count 0"),
        ({"hosts": ("a", "a")}, "invalid --host a, a"),
        ({"seconds": 59}, "invalid --for 59 s"),
        ({"seconds": MAX_SECONDS + 1}, "invalid --for 14 d 1 s"),
        ({"seconds": 120, "renew": True}, "invalid --for 2 min"),
        ({"seconds": 600, "max_seconds": 500, "renew": True}, "invalid --at-most 8 min 20 s"),
        ({"max_seconds": MAX_SECONDS + 1, "renew": True}, "invalid --at-most 14 d 1 s"),
        ({"seconds": 299, "renew": True}, "invalid --for 4 min 59 s"),
        ({"prepare_seconds": 0}, "invalid --wait 0"),
        ({"purpose": "x" * 200}, "invalid --purpose"),
        ({"purpose": "\x1b[2J"}, "invalid --purpose"),
        ({"detach": True}, "provider played does not take --detach"),
        ({"hosts": ("a",)}, "provider played does not take --host"),
        ({"labels": {"a": "b"}}, "provider played does not take --label"),
        ({"instance_type": "m5"}, "provider played does not take --type"),
    ],
)
def test_an_order_that_makes_no_sense_is_refused(changes: dict[str, object], text: str) -> None:
    order = dataclasses.replace(ORDER, **changes)  # type: ignore[arg-type]
    ignored = frozenset({"detach", "labels", "instance_type"} | ({"hosts"} & set(changes) if "a, a" not in text else set()))  # fmt: skip
    with pytest.raises(errors.UsageError) as caught:
        selection.check_order(order, ignored)
    assert caught.value.what.startswith(text)


@pytest.mark.parametrize(
    "changes",
    [
        {"seconds": 60},
        {"seconds": MAX_SECONDS},
        {"seconds": 300, "max_seconds": 300, "renew": True},
        {"prepare_seconds": 1},
        {"count": 1},
    ],
)
def test_an_order_at_the_limits_is_taken(changes: dict[str, object]) -> None:
    selection.check_order(dataclasses.replace(ORDER, **changes), frozenset())  # type: ignore[arg-type]


def test_the_lease_of_the_longest_order_fits_into_a_tag() -> None:
    order = dataclasses.replace(ORDER, owner="o" * 60, purpose="p" * 80)
    selection.check_order(order, frozenset())
    lease = Lease("r-0123456789ab", order.owner, 1 << 51, 1 << 51, order.purpose)
    assert len(lease.text()) <= 256
    assert Lease.parse(lease.text()) == lease


def test_differences_are_only_of_what_both_hosts_show() -> None:
    production = host("prod-1", facts={"kernel": "6.1", "image": "x", "bios": "9"})
    reserved = host(facts={"kernel": "6.8", "image": "x", "flags": "y"})
    assert selection.compare_facts(reserved, production) == ("kernel is 6.8, prod-1 has 6.1",)
    hostile = host(facts={"kernel": "6.1, evicts nothing"})
    assert selection.compare_facts(hostile, production) == (
        'kernel is "6.1, evicts nothing" (text from elsewhere), prod-1 has 6.1',
    )


def test_too_few_hosts_are_an_error_that_names_the_obstacles() -> None:
    left_out = {f"h{n}": "unhealthy: NotReady" for n in range(9)}
    with pytest.raises(errors.CannotError, match="no host can be reserved") as caught:
        selection.check_enough(Preflight(dataclasses.replace(ORDER, count=2), (), left_out))
    assert caught.value.why.endswith("h4: unhealthy: NotReady; 4 more")
    found = (HostPlan(host=host("h9")),)
    with pytest.raises(errors.CannotError, match="only 1 of 2 hosts can be reserved") as caught:
        selection.check_enough(Preflight(dataclasses.replace(ORDER, count=2), found, {"h0": "x"}))
    assert caught.value.why == "h0: x"
    nothing = Preflight(dataclasses.replace(ORDER, where="prod"), (), {})
    with pytest.raises(errors.CannotError) as caught:
        selection.check_enough(nothing)
    assert caught.value.why == "played lists no host in prod"


@pytest.mark.parametrize(
    ("plan", "evict", "why"),
    [
        ({"blockers": ("it is going", "no room")}, True, "it is going; no room"),
        ({"workloads": (Workload("log", stays="DaemonSet"),)}, False, ""),
        ({"workloads": (Workload("web"),)}, True, ""),
        ({"workloads": (Workload("web"),)}, False, "runs web; --evict would move it away"),
        ({"workloads": (Workload("web"), Workload("log", stays="x"), Workload("db"), Workload("q"))}, False, "runs web and 2 more; --evict would move them away"),
    ],
)  # fmt: skip
def test_why_a_host_cannot_be_reserved_by_its_plan(
    plan: dict[str, object], evict: bool, why: str
) -> None:
    order = dataclasses.replace(ORDER, evict=evict)
    assert selection.unfit(HostPlan(host=host(), **plan), order) == why  # type: ignore[arg-type]


def test_a_blocked_eviction_disturbs_most_then_what_else_is_disrupted_then_the_number() -> None:
    pods = (Workload("web"), Workload("db"), Workload("log", stays="DaemonSet"))
    plans = {
        "idle": HostPlan(host=host(), workloads=pods[2:]),
        "busy": HostPlan(host=host(), workloads=pods),
        "disrupts": HostPlan(host=host(), workloads=pods[:1], disrupts=("loses a pod",)),
        "blocked": HostPlan(host=host(), workloads=(Workload("web", blocked="budget"),)),
    }
    assert sorted(plans, key=lambda name: selection.disturbance(plans[name])) == [*plans]
    assert selection.disturbance(plans["idle"]) == (0, 0, 0)


@pytest.mark.parametrize(
    ("plan", "needs"),
    [
        (HostPlan(host=host()), False),
        (HostPlan(host=host(), workloads=(Workload("log", stays="DaemonSet"),)), False),
        (HostPlan(host=host(), workloads=(Workload("web"),)), True),
        (HostPlan(host=host(), disrupts=("launches a replacement",)), True),
        (HostPlan(host=host(), differences=("kernel is 6.8",)), True),
        (HostPlan(host=host(), warnings=("busy",)), False),
    ],
)
def test_what_disturbs_others_or_differs_needs_consent(plan: HostPlan, needs: bool) -> None:
    assert selection.needs_consent(plan) is needs
