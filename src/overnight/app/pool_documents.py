"""JSON documents of pools; schemas/ describes them."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from overnight.app import pools
    from overnight.model import cluster, pool
    from overnight.model.pool_explanation import Explanation

COUNTED = ("ready", "warming", "claimed", "draining", "errored")
POLICY = (
    "miss", "min_size", "max_size", "warm_up_seconds", "measured_warm_up_seconds", "window_seconds",
    "cooldown_seconds", "zero_after_seconds", "openings", "changed_us",
)  # fmt: skip


def _pool_json(details: pool.PoolDetails) -> dict[str, Any]:
    values = dataclasses.asdict(details.pool)
    return {
        "metadata": values.pop("settings"),
        **values,
        **_counts_json(details.counts),
        "waiting": details.counts.waiting,
        "deficit": details.counts.deficit,
    }


def _counts_json(counts: pool.Counts) -> dict[str, int]:
    return {f"{state}_count": getattr(counts, state) for state in COUNTED}


def _member_json(member: pool.Member) -> dict[str, Any]:
    values = dataclasses.asdict(member)
    return {
        "member_id": values.pop("id"),
        "pool_state": values.pop("state"),
        **values,
        "task": member.task or None,
    }


def _claim_json(claim: pool.Claim) -> dict[str, Any]:
    values = dataclasses.asdict(claim)
    return {"claim_id": values.pop("id"), **values}


def _autoscale_json(policy: pool.Autoscale | None) -> dict[str, Any] | None:
    """Return the policy, and separately the last decision."""
    if policy is None:
        return None
    decision = {
        "at_us": policy.decided_us,
        "wanted_size": policy.wanted_size,
        "cause": policy.cause,
        "reason": policy.reason,
    }
    return {
        **{name: getattr(policy, name) for name in POLICY},
        "burst": {"mean": policy.burst_mean, "spread": policy.burst_spread},
        "last_decision": decision if policy.decided_us else None,
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
            "assumed": outlook.assumed,
        }
    return {
        "schema": "overnight.pool-autoscale/1",
        "pool": pool.name,
        "status": pool.status,
        "target_size": pool.target_size,
        "policy": _autoscale_json(report.policy),
        "would": would,
    }


def pool_document(report: pool.PoolReport) -> dict[str, Any]:
    """Return `overnight pool show -O json`."""
    details = report.details
    return {
        "schema": "overnight.pool/1",
        "pool": _pool_json(details),
        "autoscale": _autoscale_json(details.autoscale),
        "waiters": [dataclasses.asdict(waiter) for waiter in details.waiters],
        **_contents_json(details, report.problems),
    }


def _contents_json(details: pool.PoolDetails, problems: tuple[pool.Problem, ...]) -> dict[str, Any]:
    return {
        "members": [_member_json(member) for member in details.members],
        "claims": [_claim_json(claim) for claim in details.claims],
        "recent_events": [dataclasses.asdict(event) for event in details.events],
        "troubles": [dataclasses.asdict(problem) for problem in problems],
    }


def events_document(events: tuple[pool.PoolEvent, ...]) -> dict[str, Any]:
    """Return `overnight pool events -O json`; with --follow each event is a line."""
    return {"schema": "overnight.pool-events/1", "events": [dataclasses.asdict(e) for e in events]}


def explanation_document(explained: Explanation) -> dict[str, Any]:
    """Return `overnight pool explain -O json`."""
    return {"schema": "overnight.pool-explanation/1", **dataclasses.asdict(explained)}


def cluster_plan_document(plan: cluster.ClusterPlan) -> dict[str, Any]:
    """Return `overnight cluster create --dry-run -O json`."""
    order = plan.order
    names = ("count", "provider", "template", "wait_seconds", "lease_seconds")
    return {
        "schema": "overnight.cluster-plan/1",
        **{name: getattr(order, name) for name in names},
        "at_least": order.count if order.at_least is None else order.at_least,
        "host_hours": plan.host_hours,
        "cost": plan.cost,
    }


def _cluster_json(report: cluster.ClusterReport) -> dict[str, Any]:
    return {
        **dataclasses.asdict(report.cluster),
        "state": report.cluster.state,
        **_counts_json(report.details.counts),
    }


def cluster_document(report: cluster.ClusterReport) -> dict[str, Any]:
    """Return `overnight cluster show -O json`."""
    return {
        "schema": "overnight.cluster/1",
        "cluster": _cluster_json(report),
        **_contents_json(report.details, report.problems),
    }


def clusters_document(listed: tuple[cluster.ClusterReport, ...]) -> dict[str, Any]:
    """Return `overnight cluster list -O json`."""
    return {"schema": "overnight.clusters/1", "clusters": [_cluster_json(each) for each in listed]}


def pools_document(listed: tuple[pool.PoolDetails, ...]) -> dict[str, Any]:
    """Return `overnight pool list -O json`."""
    return {"schema": "overnight.pools/1", "pools": [_pool_json(details) for details in listed]}


def claims_document(grants: tuple[pool.Grant, ...]) -> dict[str, Any]:
    """Return `overnight pool acquire -O json`."""
    return {
        "schema": "overnight.pool-claims/1",
        "claims": [
            {**_claim_json(grant.claim), "member": _member_json(grant.member)} for grant in grants
        ],
    }


def member_document(member: pool.Member) -> dict[str, Any]:
    return {"schema": "overnight.pool-member/1", "member": _member_json(member)}


def member_details_document(details: pool.MemberDetails) -> dict[str, Any]:
    """Return `overnight pool member -O json`."""
    return {
        **member_document(details.member),
        "pool": details.pool,
        "claims": [_claim_json(claim) for claim in details.claims],
        "events": [dataclasses.asdict(event) for event in details.events],
    }


def operation_document(operation: str, pool: str, counts: dict[str, int]) -> dict[str, Any]:
    """Return the document of an operation that only counts, e.g. `overnight pool drain -O json`."""
    return {"schema": "overnight.pool-done/1", "operation": operation, "pool": pool, **counts}
