"""What an assistant already has, by what the audit log says that it created, claimed and raised."""

from __future__ import annotations

import collections
from typing import TYPE_CHECKING, Any, NamedTuple

from overnight.model.control_plane import Change
from overnight.model.pool import WINDS_DOWN

if TYPE_CHECKING:
    from collections.abc import Mapping

    from overnight.app import guards, operations
    from overnight.model.control_plane import Principal
    from overnight.model.pool import AutoscalePolicy, Pool, PoolDetails

CREATED = ("pool.create", "cluster.create", "reservation.create", "investigation.create")
RAISED = ("pool.update", "pool.set_autoscale")
COUNTED = (*CREATED, *RAISED)
RAISED_PARTS = LIMIT, SIZE = "limit of a pool", "size of a pool"  # in the audit log


def count(call: guards.Call) -> int:
    """Return how many hosts the caller has at most, with every token of its name.

    Hosts of pools and clusters that it created, until these are gone; those by which it raised other pools; and hosts
    reserved by it, and of its investigations, also those that these have not reserved yet.
    """
    created, where = list_created(call), call.where
    raised: collections.Counter[tuple[str, str]] = collections.Counter()
    for _, change in call.rows.list_changes(call.by, RAISED):
        # A lower limit does not make room elsewhere, or for members that the pool keeps.
        pool_part = (change.target_kind, change.target_id)
        raised[pool_part] = max(0, raised[pool_part] + change.hosts)
    pools = [each.pool for each in where.pools.list(archived=True)]  # clusters are pools, too
    planned = {each.id: each.plan.host_count for each in where.investigations.list()}
    reserved: collections.Counter[str] = collections.Counter()
    for each in where.reservations.list():
        reserved[each.order.purpose if each.order.purpose in created else each.id] += len(each.open)
    return sum(
        pool.max_size
        if pool.id in created
        else min(sum(raised[part, pool.id] for part in RAISED_PARTS), pool.max_size)
        for pool in pools
    ) + sum(max(planned.get(name, 0), reserved[name]) for name in created)


def list_created(call: guards.Call) -> frozenset[str]:
    """Return the ids of pools, clusters, reservations and investigations that the caller created."""
    return list_own(call, *CREATED)


def list_own(call: guards.Call, *actions: str) -> frozenset[str]:
    """Return the ids of what the caller did this to: of claims, and batches of claims, for `pool.acquire`."""
    return frozenset(change.target_id for _, change in call.rows.list_changes(call.by, actions))


class Before(NamedTuple):
    """What a call finds: the time, and by how many hosts it will raise which part of a pool (less than 0: lower)."""

    now_us: int = 0
    part: str = "pool"
    hosts: int = 0


def look(call: guards.Call, operation: operations.Operation) -> Before:
    now_us = call.where.pools.plane.context.clock()
    if operation.action not in RAISED:
        return Before(now_us)
    details = call.where.pools.show(call.given["name"]).details
    limit, _, size = find_sizes(call.where, details.pool, call.given["change"])
    limit, size = limit - details.pool.max_size, size - find_size(details)
    return Before(now_us, SIZE, max(limit, size)) if size > 0 else Before(now_us, LIMIT, limit)


def find_change(
    operation: operations.Operation,
    given: Mapping[str, Any],
    result: Any,
    by: Principal,
    before: Before,
) -> Change | None:
    """Return what a call changed, for what `count` and the others answer; None for a person's.

    Neither has a caller made what another one did: it repeated a call with the same key.
    """
    if not by.assistant:
        return None
    if operation.name == "acquire":
        claim = result[0].claim
        is_new = claim.acquired_us >= before.now_us
        return Change(by.name, "claim", claim.batch_id or claim.id) if is_new else None
    if details := getattr(result, "details", None) if operation.area == "pools" else None:
        return Change(by.name, before.part, details.pool.id, before.hosts)
    if operation.name == "set_cordoned":
        return Change(by.name, "member", result.id)
    if names := operation.path_names:
        return Change(by.name, operation.noun, str(given[names[-1]]))
    made = getattr(result, operation.noun)
    made_us = made.created_us if operation.area == "clusters" else made.made_us
    return Change(by.name, operation.noun, made.id) if made_us >= before.now_us else None


def find_size(details: PoolDetails) -> int:
    """Return the size that a pool has now, or will have by its policy."""
    policy = details.autoscale
    most = max(details.pool.target_size, _find_planned(policy) if policy else 0)
    return 0 if details.pool.winds_down else most


def _find_planned(policy: AutoscalePolicy) -> int:
    """Return the most hosts that a policy keeps, whatever the demand: at some time of the week."""
    from overnight.pools import schedules

    openings = (schedules.parse(text).size for text in policy.openings)
    return max(policy.min_size or 0, *openings, 0)


def find_sizes(where: guards.UseCases, pool: Pool, change: Any) -> tuple[int, int, int]:
    """Return the limit of a pool, its size now, and its largest, after a change of it, or of its policy."""
    if not hasattr(change, "status"):  # of the policy
        outlook = where.pools.outlook(pool.id, change)
        now = max(outlook.policy.min_size or 0, outlook.decision.size)
        return pool.max_size, now, max(now, _find_planned(outlook.policy))
    after = vars(pool) | {name: to for name, to in vars(change).items() if to is not None}
    most = after["max_size"]
    size = min(max(after["target_size"], after["min_size"]), most)
    now = 0 if after["status"] in WINDS_DOWN else size
    return most, now, now
