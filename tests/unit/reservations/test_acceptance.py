"""Acceptance of a reserved host."""

from __future__ import annotations

import pytest

from overnight.model.reservation import (
    Candidate,
    Check,
    CheckState,
    HostPlan,
    HostState,
    Order,
    Preflight,
    ReservedHost,
    Unseen,
    Workload,
)
from overnight.reservations import Heard, acceptance

S = 1_000_000
NOW = 1_800_000_000 * S
PASSED, FAILED, UNKNOWN = CheckState.PASSED, CheckState.FAILED, CheckState.UNKNOWN


def test_a_platform_that_sees_no_processes_proves_nothing() -> None:
    check = acceptance.check_workloads(Unseen("a queue feeds it"))
    assert (check.state, check.detail) == (CheckState.UNKNOWN, "a queue feeds it")
    assert check.advice


def test_only_foreign_workloads_fail() -> None:
    own = Workload("node-exporter", "pod", stays="DaemonSet")
    passed = acceptance.check_workloads([own])
    assert (passed.state, passed.detail) == (PASSED, "1 belong to the host")
    failed = acceptance.check_workloads([own, Workload("batch-7", "pod")])
    assert (failed.state, failed.detail) == (CheckState.FAILED, "pod batch-7")


def test_of_many_foreign_workloads_five_are_named_and_the_others_counted() -> None:
    found = [Workload(f"web-{n}", "pod") for n in range(7)]
    named = ", ".join(f"pod web-{n}" for n in range(5))
    assert acceptance.check_workloads(found).detail == f"{named} and 2 more"
    assert acceptance.check_workloads(found[:5]).detail == named


@pytest.mark.parametrize(
    ("silent", "state", "detail"),
    [
        (None, FAILED, "no agent reports from this host"),
        (0, PASSED, ""),
        (120, PASSED, ""),
        (121, FAILED, "silent for 2 min 1 s"),
    ],
)
def test_an_agent_counts_as_attached_for_two_minutes_after_it_was_heard(
    silent: int | None, state: CheckState, detail: str
) -> None:
    heard = Heard(None if silent is None else NOW - silent * S)
    check = acceptance.check_agent(heard, NOW)
    assert (check.state, check.detail) == (state, detail)


@pytest.mark.parametrize(
    ("skew_us", "state", "detail"),
    [
        (None, UNKNOWN, "no agent reported it, or it is not synchronized"),
        (S, PASSED, "+1.000 s"),
        (-S, PASSED, "-1.000 s"),
        (S + 1000, FAILED, "+1.001 s"),
        (-S - 1000, FAILED, "-1.001 s"),
    ],
)
def test_a_clock_may_be_a_second_early_or_late_and_no_more(
    skew_us: int | None, state: CheckState, detail: str
) -> None:
    check = acceptance.check_clock(Heard(NOW, skew_us))
    assert (check.state, check.detail) == (state, detail)


@pytest.mark.parametrize(
    ("check", "is_new"),
    [
        (Check("foreign-workload", FAILED, "pod web-1"), False),
        (Check("foreign-workload", FAILED, "pod web-2"), True),  # another one came
        (Check("foreign-workload", UNKNOWN, "pod web-2"), False),
        (Check("marks", FAILED, "pod web-1"), True),
        (Check("agent", FAILED, "silent"), True),  # it passed before
    ],
)
def test_a_failure_is_news_unless_the_last_check_said_the_same(check: Check, is_new: bool) -> None:
    before = (Check("foreign-workload", FAILED, "pod web-1"), Check("agent", PASSED, "silent"))
    host = ReservedHost(name="a", state=HostState.HELD, checks=before)
    assert acceptance.newly_failed(host, check) is is_new


def test_what_happens_to_a_group_is_reported_once() -> None:
    plans = tuple(
        HostPlan(host=Candidate(name=name), disrupts=("AWS launches a replacement",))
        for name in ("a", "b")
    )
    plan = Preflight(Order(provider="ec2", count=2), plans, {})
    assert plan.disruptive == ("AWS launches a replacement",)
