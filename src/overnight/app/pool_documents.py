"""JSON documents of pools; schemas/ describes them."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from overnight.app import pools
    from overnight.model.cluster import ClusterPlan, ClusterReport
    from overnight.model.pool import (
        Autoscale,
        Claim,
        Grant,
        Member,
        MemberDetails,
        PoolDetails,
        PoolEvent,
        PoolReport,
        Problem,
    )
    from overnight.model.pool_explanation import Explanation

COUNTED = ("ready", "warming", "claimed", "draining", "errored")
POLICY = (
    "miss", "min_size", "max_size", "warm_up_seconds", "measured_warm_up_seconds", "window_seconds",
    "cooldown_seconds", "zero_after_seconds", "changed_us",
)  # fmt: skip


def _pool_json(details: PoolDetails) -> dict[str, Any]:
    pool = dataclasses.asdict(details.pool)
    return {
        **{name: value for name, value in pool.items() if name not in ("settings", "labels")},
        "preferred_regions": list(details.pool.preferred_regions),
        "labels": dict(details.pool.labels),
        "metadata": pool["settings"],
        **{f"{state}_count": getattr(details.counts, state) for state in COUNTED},
        "waiting": details.counts.waiting,
        "deficit": details.counts.deficit,
    }


def _member_json(member: Member) -> dict[str, Any]:
    values = dataclasses.asdict(member)
    return {
        "member_id": values.pop("id"),
        "pool_state": str(values.pop("state")),
        **values,
        "task": member.task or None,
    }


def _claim_json(claim: Claim) -> dict[str, Any]:
    values = dataclasses.asdict(claim)
    return {"claim_id": values.pop("id"), **values}


def _autoscale_json(policy: Autoscale | None) -> dict[str, Any] | None:
    """Return the policy, and separately the last decision."""
    if policy is None:
        return None
    return {
        **{name: getattr(policy, name) for name in POLICY},
        "burst": {"mean": policy.burst_mean, "spread": policy.burst_spread},
        "openings": list(policy.openings),
        "last_decision": None
        if not policy.decided_us
        else {
            "at_us": policy.decided_us,
            "wanted_size": policy.wanted_size,
            "cause": policy.cause,
            "reason": policy.reason,
        },
    }


def autoscale_document(report: pools.AutoscaleReport) -> dict[str, Any]:
    """Return `overnight pool autoscale -O json`."""
    pool, outlook = report.details.pool, report.outlook
    would = None
    if outlook is not None:
        decision = outlook.decision
        would = {
            "size": decision.size,
            "wanted_size": decision.wanted,
            "cause": decision.cause,
            "reason": decision.reason,
            "warm_up_seconds": outlook.warm_up_s,
            "assumed": list(outlook.assumed),
        }
    return {
        "schema": "overnight.pool-autoscale/1",
        "pool": pool.name,
        "status": str(pool.status),
        "target_size": pool.target_size,
        "policy": _autoscale_json(report.policy),
        "would": would,
    }


def pool_document(report: PoolReport) -> dict[str, Any]:
    """Return `overnight pool show -O json`."""
    details = report.details
    return {
        "schema": "overnight.pool/1",
        "pool": _pool_json(details),
        "autoscale": _autoscale_json(details.autoscale),
        "members": [_member_json(member) for member in details.members],
        "claims": [_claim_json(claim) for claim in details.claims],
        "waiters": [dataclasses.asdict(waiter) for waiter in details.waiters],
        **_records_json(details, report.problems),
    }


def _records_json(details: PoolDetails, problems: tuple[Problem, ...]) -> dict[str, Any]:
    return {
        "recent_events": [event_json(event) for event in details.events],
        "troubles": [dataclasses.asdict(problem) for problem in problems],
    }


def event_json(event: PoolEvent) -> dict[str, Any]:
    return dataclasses.asdict(event)


def events_document(events: tuple[PoolEvent, ...]) -> dict[str, Any]:
    """Return `overnight pool events -O json`; with --follow each event is a line."""
    return {"schema": "overnight.pool-events/1", "events": [event_json(event) for event in events]}


def explanation_document(explained: Explanation) -> dict[str, Any]:
    """Return `overnight pool explain -O json`."""
    return {"schema": "overnight.pool-explanation/1", **dataclasses.asdict(explained)}


def cluster_plan_document(plan: ClusterPlan) -> dict[str, Any]:
    """Return `overnight cluster create --dry-run -O json`."""
    order = plan.order
    return {
        "schema": "overnight.cluster-plan/1",
        "count": order.count,
        "at_least": order.count if order.at_least is None else order.at_least,
        "provider": order.provider,
        "template": order.template,
        "wait_seconds": order.wait_seconds,
        "lease_seconds": order.lease_seconds,
        "host_hours": plan.host_hours,
        "cost": plan.cost,
    }


def _cluster_json(report: ClusterReport) -> dict[str, Any]:
    counts = report.details.counts
    return {
        **dataclasses.asdict(report.cluster),
        "state": str(report.cluster.state),
        **{f"{state}_count": getattr(counts, state) for state in COUNTED},
    }


def cluster_document(report: ClusterReport) -> dict[str, Any]:
    """Return `overnight cluster show -O json`."""
    details = report.details
    return {
        "schema": "overnight.cluster/1",
        "cluster": _cluster_json(report),
        "members": [_member_json(member) for member in details.members],
        "claims": [_claim_json(claim) for claim in details.claims],
        **_records_json(details, report.problems),
    }


def clusters_document(listed: tuple[ClusterReport, ...]) -> dict[str, Any]:
    """Return `overnight cluster list -O json`."""
    return {"schema": "overnight.clusters/1", "clusters": [_cluster_json(each) for each in listed]}


def pools_document(listed: tuple[PoolDetails, ...]) -> dict[str, Any]:
    """Return `overnight pool list -O json`."""
    return {"schema": "overnight.pools/1", "pools": [_pool_json(details) for details in listed]}


def claims_document(grants: tuple[Grant, ...]) -> dict[str, Any]:
    """Return `overnight pool acquire -O json`."""
    return {
        "schema": "overnight.pool-claims/1",
        "claims": [
            {**_claim_json(grant.claim), "member": _member_json(grant.member)} for grant in grants
        ],
    }


def member_document(member: Member, details: MemberDetails | None = None) -> dict[str, Any]:
    """Return a member, with its claims and events if `details` are given."""
    document: dict[str, Any] = {
        "schema": "overnight.pool-member/1",
        "member": _member_json(member),
    }
    if details is not None:
        document["pool"] = details.pool
        document["claims"] = [_claim_json(claim) for claim in details.claims]
        document["events"] = [event_json(event) for event in details.events]
    return document


def operation_document(operation: str, pool: str, counts: dict[str, int]) -> dict[str, Any]:
    """Return the document of an operation that only counts, e.g. `overnight pool drain -O json`."""
    return {"schema": "overnight.pool-done/1", "operation": operation, "pool": pool, **counts}
