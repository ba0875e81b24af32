"""JSON documents of pools; schemas/ describes them."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from overnight.app import pools
    from overnight.model.pool import (
        Autoscale,
        Claim,
        Grant,
        Member,
        MemberDetails,
        PoolDetails,
        PoolReport,
    )

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
        "recent_events": [dataclasses.asdict(event) for event in details.events],
        "troubles": [dataclasses.asdict(problem) for problem in report.problems],
    }


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
        document["events"] = [dataclasses.asdict(event) for event in details.events]
    return document


def operation_document(operation: str, pool: str, counts: dict[str, int]) -> dict[str, Any]:
    """Return the document of an operation that only counts, e.g. `overnight pool drain -O json`."""
    return {"schema": "overnight.pool-done/1", "operation": operation, "pool": pool, **counts}
