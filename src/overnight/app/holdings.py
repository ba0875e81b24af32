"""What an assistant already has, by what the audit log says that it created and claimed."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from overnight.app import guards

CREATED = ("pool.create", "cluster.create", "reservation.create", "investigation.create")


def count(where: guards.UseCases, by: guards.Caller) -> int:
    """Return how many hosts the caller has at most, with every token of its name.

    Hosts of pools and clusters that it created, until these are gone, and hosts reserved by it or its investigations.
    """
    created = list_created(by)
    pools = where.pools.list(archived=True)  # clusters are pools, too
    reserved = where.reservations.list()
    return sum(each.pool.max_size for each in pools if each.pool.name in created) + sum(
        len(each.open) for each in reserved if not created.isdisjoint((each.id, each.order.purpose))
    )


def list_created(by: guards.Caller) -> frozenset[str]:
    """Return the pools, clusters, reservations and investigations that the caller created."""
    return frozenset(target for _, target in by.rows.list_changes(by, CREATED))


def list_claims(by: guards.Caller) -> frozenset[str]:
    """Return the ids of the claims, and batches of claims, that the caller made."""
    made = by.rows.list_changes(by, ("pool.acquire",))
    return frozenset(word for _, target in made for word in target.split())
