"""How many hosts an assistant already has, by what the audit log says that it created and claimed."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from overnight.app import guards

CLAIMED = "pool.acquire"
CREATED = ("pool.create", "cluster.create", "reservation.create", "investigation.create")


def count(where: guards.UseCases, by: guards.Caller) -> tuple[int, frozenset[str]]:
    """Return how many hosts the caller has at most, with every token of its name, and what it created.

    Hosts of pools and clusters that it created, until these are gone; its open claims in other pools; and hosts
    reserved by it or by its investigations.
    """
    changes = by.rows.list_changes(by, (*CREATED, CLAIMED))
    created = frozenset(target for action, target in changes if action != CLAIMED)
    claimed = {word for action, target in changes if action == CLAIMED for word in target.split()}
    hosts = 0
    for details in where.pools.list(archived=True):  # clusters are pools, too
        pool = details.pool
        if pool.name in created:
            hosts += pool.max_size
        elif not claimed.isdisjoint((pool.name, pool.id)):
            claims = where.pools.plane.reserved.list_open(pool.id)
            hosts += sum(not claimed.isdisjoint((claim.id, claim.batch_id)) for claim in claims)
    for each in where.reservations.list():
        if not created.isdisjoint((each.id, each.order.purpose)):
            hosts += len(each.open)
    return hosts, created
