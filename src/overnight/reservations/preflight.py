"""What an order would do, host by host. Reads the platform, changes nothing."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Sequence

from overnight import errors, reservations
from overnight.model.reservation import Candidate, HostPlan, Order, Preflight
from overnight.reservations import selection


def plan_hosts(
    provider: reservations.Provider,
    order: Order,
    now_us: int,
    *,
    wanted: int | None = None,
    without: Collection[str] = (),
    undisturbed: bool = False,
) -> Preflight:
    """Choose hosts for an order, by default as many as it wants, and plan each.

    With evictions those that disturb others least, unless the order names them. `undisturbed` takes only hosts
    that need nobody's consent.
    """
    listed = provider.list_hosts(order)
    reference = _find_reference(order, listed)
    candidates = [host for host in listed if host.name not in without]
    fit, left_out = selection.rank(order, candidates, now_us)
    wanted = order.wanted if wanted is None else wanted
    compared = order.evict and not order.hosts
    plans: list[HostPlan] = []
    idle = 0
    for host in fit:
        if idle >= wanted or len(plans) >= max(wanted, selection.MAX_PLANS):
            left_out[host.name] = "fits, but is not needed"
            continue
        plan = provider.plan(host, order)
        if reference is not None:
            plan = dataclasses.replace(plan, differences=selection.compare_facts(host, reference))
        why = selection.unfit(plan, order)
        if not why and undisturbed and selection.needs_consent(plan):
            why = "reserving it needs a confirmation"
        if why:
            left_out[host.name] = why
        else:
            plans.append(plan)
            idle += not (compared and any(selection.disturbance(plan)))
    if compared:
        plans.sort(key=selection.disturbance)
        left_out |= dict.fromkeys((p.host.name for p in plans[wanted:]), "fits, but is not needed")
        del plans[wanted:]
    return Preflight(order, tuple(plans), left_out)


def _find_reference(order: Order, listed: Sequence[Candidate]) -> Candidate | None:
    if not order.reference:
        return None
    for host in listed:
        if host.name == order.reference:
            return host
    raise errors.CannotError(
        f"no reference host {order.reference!r}",
        why=f"{order.provider} lists {', '.join(h.name for h in listed[:5]) or 'no host'}"
        + (" …" if len(listed) > 5 else ""),
        todo="name one of them, or a file written by `overnight snapshot -o FILE`",
    )
