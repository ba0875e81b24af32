"""Acceptance of a reserved host."""

from __future__ import annotations

from overnight.model.reservation import (
    Candidate,
    CheckState,
    HostPlan,
    Order,
    Preflight,
    Unseen,
    Workload,
)
from overnight.reservations import acceptance


def test_a_platform_that_sees_no_processes_proves_nothing() -> None:
    check = acceptance.check_workloads(Unseen("a queue feeds it"))
    assert (check.state, check.detail) == (CheckState.UNKNOWN, "a queue feeds it")
    assert check.advice


def test_only_foreign_workloads_fail() -> None:
    own = Workload("node-exporter", "pod", stays="DaemonSet")
    assert acceptance.check_workloads([own]).state is CheckState.PASSED
    failed = acceptance.check_workloads([own, Workload("batch-7", "pod")])
    assert (failed.state, failed.detail) == (CheckState.FAILED, "pod batch-7")


def test_what_happens_to_a_group_is_reported_once() -> None:
    plans = tuple(
        HostPlan(host=Candidate(name=name), disrupts=("AWS launches a replacement",))
        for name in ("a", "b")
    )
    plan = Preflight(Order(provider="ec2", count=2), plans, {})
    assert plan.disruptive == ("AWS launches a replacement",)
