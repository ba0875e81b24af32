"""What an assistant already has, by what the audit log says that it created, claimed and raised."""

from __future__ import annotations

import collections
from typing import TYPE_CHECKING, Any

from overnight.model.control_plane import Change
from overnight.model.pool import WINDS_DOWN

if TYPE_CHECKING:
    from collections.abc import Mapping

    from overnight.app import guards, operations
    from overnight.model.control_plane import Principal
    from overnight.model.pool import Pool

CREATED = ("pool.create", "cluster.create", "reservation.create", "investigation.create")
RAISED = ("pool.update", "pool.set_autoscale")
COUNTED = (*CREATED, *RAISED)


def count(call: guards.Call) -> int:
    """Return how many hosts the caller has at most, with every token of its name.

    Hosts of pools and clusters that it created, until these are gone; those by which it raised other pools; and hosts
    reserved by it, and of its investigations, also those that these have not reserved yet.
    """
    created, where = list_created(call), call.where
    raised: collections.Counter[str] = collections.Counter()
    for _, change in call.rows.list_changes(call.by, RAISED):
        # What it lowered does not make room elsewhere.
        raised[change.target_id] = max(0, raised[change.target_id] + change.hosts)
    pools = [each.pool for each in where.pools.list(archived=True)]  # clusters are pools, too
    planned = {each.id: each.plan.host_count for each in where.investigations.list()}
    reserved: collections.Counter[str] = collections.Counter()
    for each in where.reservations.list():
        reserved[each.order.purpose if each.order.purpose in created else each.id] += len(each.open)
    return sum(
        pool.max_size if pool.id in created else min(raised[pool.id], pool.max_size)
        for pool in pools
    ) + sum(max(planned.get(name, 0), reserved[name]) for name in created)


def list_created(call: guards.Call) -> frozenset[str]:
    """Return the ids of pools, clusters, reservations and investigations that the caller created."""
    return list_own(call, *CREATED)


def list_own(call: guards.Call, *actions: str) -> frozenset[str]:
    """Return the ids of what the caller did this to: of claims, and batches of claims, for `pool.acquire`."""
    return frozenset(change.target_id for _, change in call.rows.list_changes(call.by, actions))


def find_change(
    operation: operations.Operation,
    given: Mapping[str, Any],
    result: Any,
    by: Principal,
    raised: int,
) -> Change | None:
    """Return what a call changed, for what `count` and the others answer; None for a person's."""
    if not by.assistant:
        return None
    if operation.name == "acquire":
        claim = result[0].claim
        return Change(by.name, "claim", claim.batch_id or claim.id)
    if details := getattr(result, "details", None) if operation.area == "pools" else None:
        return Change(by.name, "pool", details.pool.id, raised)
    if operation.name == "set_cordoned":
        return Change(by.name, "member", result.id)
    names = [str(given[name]) for name in operation.path_names]
    named = names[-1] if names else getattr(result, operation.noun).id
    return Change(by.name, operation.noun, named)


def find_raise(
    where: guards.UseCases, operation: operations.Operation, given: Mapping[str, Any]
) -> int:
    """Return by how many hosts a call would raise the limit or the size of a pool; less than 0: lower the limit."""
    if operation.action not in RAISED:
        return 0
    pool = where.pools.show(given["name"]).details.pool
    after = find_sizes(where, pool, given["change"])
    before = (pool.max_size, 0 if pool.winds_down else pool.target_size)
    limit, size = (new - old for new, old in zip(after, before, strict=True))
    return max(limit, size) if size > 0 else limit


def find_sizes(where: guards.UseCases, pool: Pool, change: Any) -> tuple[int, int]:
    """Return the limit of a pool and the size that it would have after a change of it, or of its policy."""
    if not hasattr(change, "status"):  # of the policy
        outlook = where.pools.outlook(pool.id, change)
        least = outlook.policy.min_size or 0
        return pool.max_size, max(least, outlook.decision.size)
    after = vars(pool) | {name: to for name, to in vars(change).items() if to is not None}
    most = after["max_size"]
    size = min(max(after["target_size"], after["min_size"]), most)
    return most, 0 if after["status"] in WINDS_DOWN else size
