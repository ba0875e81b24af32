"""The runbook's names of fields and ours: one table, used in both directions.

Times of the runbook (`_at`) are ISO texts, ours (`_us`) µs since 1970; `values.Instant` translates them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from overnight.model.cluster import Cluster
from overnight.model.pool import (
    Claim,
    Counts,
    Member,
    MemberState,
    Pool,
    PoolDetails,
    PoolEvent,
    PoolSettings,
)

POOL = {
    "id": "id",
    "name": "name",
    "status": "status",
    "template_id": "template",
    "target_size": "target_size",
    "min_size": "min_size",
    "max_size": "max_size",
    "lifecycle_class": "lifecycle_class",
    "provider": "provider",
    "provider_region_id": "region",
    "provider_instance_type_id": "instance_type",
    "preferred_regions": "preferred_regions",
    "metadata": "settings",
    "created_at": "created_us",
    "updated_at": "updated_us",
}
COUNTS = {
    "ready_count": "ready",
    "warming_count": "warming",
    "claimed_count": "claimed",
    "errored_count": "errored",
    "draining_count": "draining",
    "waiting_count": "waiting",
    "deficit": "deficit",
}
INSTANCE = {
    "id": "id",
    "instance_pool_id": "pool_id",
    "pool_state": "state",
    "host_address": "address",
    "provider": "provider",
    "provider_region_id": "region",
    "provider_instance_id": "machine_id",
    "task_id": "task",
    "reason": "reason",
    "pool_warming_started_at": "warming_started_us",
    "pool_ready_at": "ready_us",
    "pool_acquired_at": "acquired_us",
    "terminated_at": "gone_us",
}
MEMBER = {
    "instance_id": "id",
    **{name: INSTANCE[name] for name in (
        "pool_state", "host_address", "task_id", "reason", "pool_warming_started_at", "pool_ready_at", "pool_acquired_at",
    )},
}  # fmt: skip
CLAIM = {
    "claim_id": "id",
    "instance_id": "member_id",
    "acquired_by": "acquired_by",
    "acquired_for": "acquired_for",
    "acquired_at": "acquired_us",
    "lease_until": "lease_until_us",
}
EVENT = {
    "id": "id",
    "at": "at_us",
    "kind": "kind",
    "pool": "pool",
    "instance_id": "member_id",
    "claim_id": "claim_id",
    "reason": "reason",
    "detail": "detail",
}
CLUSTER = {
    "id": "id",  # also of the pool that holds its members
    "template_id": "template",
    "provider": "provider",
    "count": "count",
    "at_least": "at_least",
    "lease_seconds": "lease_seconds",
    "reason": "reason",
    "created_at": "created_us",
    "held_at": "held_us",
    "ended_at": "ended_us",
}
DEMAND = {"warm_up_seconds": "warm_up_s", "hold_seconds": "hold_s", "pool_id": "pool"}
# What a member of a pool is as an instance: the runbook's `status`.
STATUSES = {
    MemberState.WARMING: "provisioning",
    MemberState.READY: "running",
    MemberState.CLAIMED: "running",
    MemberState.DRAINING: "terminating",
    MemberState.ERRORED: "failed",
}
TERMINATED = "terminated"
# Keys of metadata are the settings of a pool, by the same names.
DEFAULTS = dataclasses.asdict(PoolSettings())


TABLES: Mapping[type, Mapping[str, str]] = {
    Pool: POOL,
    Counts: COUNTS,
    Member: INSTANCE,
    Claim: CLAIM,
    PoolEvent: EVENT,
    Cluster: CLUSTER,
}


def to_runbook(value: Any) -> dict[str, Any]:
    """Return a value with the runbook's names."""
    return {theirs: getattr(value, ours) for theirs, ours in TABLES[type(value)].items()}


def to_ours(table: Mapping[str, str], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return given fields with our names; others keep theirs."""
    return {table.get(theirs, theirs): value for theirs, value in given.items()}


def describe(value: Any) -> dict[str, Any]:
    """Return a value as answers show it."""
    if isinstance(value, PoolDetails):
        settings = dataclasses.asdict(value.pool.settings)
        changed = {name: given for name, given in settings.items() if given != DEFAULTS[name]}
        return {**to_runbook(value.pool), **to_runbook(value.counts), "metadata": changed}
    if isinstance(value, Member):
        status = TERMINATED if value.gone_us is not None else STATUSES[value.state]
        return {**to_runbook(value), "instance_id": value.id, "status": status}
    return to_runbook(value)
