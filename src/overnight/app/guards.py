"""What an assistant may not do without a person: which calls, and what each of them would do now."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from overnight.app import holdings, operations, pool_guards
from overnight.model.confirmation import Effect, NoConfirmationNeededError
from overnight.model.text import foreign, plural, quoted

if TYPE_CHECKING:
    from overnight.app import clusters, investigations, pools, reservations
    from overnight.fleet import confirmations
    from overnight.model.control_plane import Principal
    from overnight.model.plan import Plan
    from overnight.model.reservation import Order, Preflight

NOT_BOUND = ("confirmed", "agreed", "idempotency_key")  # they do not change what a call does


class UseCases(Protocol):
    """The use cases of a server, or of a data home."""

    pools: pools.Pools
    clusters: clusters.Clusters
    reservations: reservations.Reservations
    investigations: investigations.Investigations


@dataclasses.dataclass(frozen=True)
class Call:
    """What somebody asks of use cases; `rows` have the audit log of what assistants did."""

    where: UseCases
    rows: confirmations.Confirmations
    given: Mapping[str, Any]
    by: Principal


Find = Callable[[Call], Effect | None]


def admit(
    call: Call, operation: operations.Operation, *, only_ask: bool = False
) -> Mapping[str, Any]:
    """Return the arguments of an assistant's call as it is carried out; raise ConfirmationNeededError.

    What the person has seen is all that it may do: claims that were made meanwhile are refused.
    """
    find = GUARDS.get((operation.area, operation.name))
    effect = find(call) if find else None
    if effect is not None:
        bound = {n: operations.encode(v) for n, v in call.given.items() if n not in NOT_BOUND}
        call.rows.require(
            call.by, operation.action, operation.role, bound, effect, only_ask=only_ask
        )
    elif only_ask:
        raise NoConfirmationNeededError(operation.action)
    agreed: dict[str, Any] = {}
    if "confirmed" in operation.parameters:
        if operation.action in ("pool.drain", "pool.terminate"):
            agreed["confirmed"] = effect is not None and bool(effect.claims)
        else:  # every cluster asks, also a small one
            agreed["confirmed"] = effect is not None or operation.action == "cluster.create"
    if "agreed" in operation.parameters:
        agreed["agreed"] = effect.concerns if effect else ()
    return {**call.given, **agreed}


def carry_out(
    call: Call,
    operation: operations.Operation,
    *,
    is_gone: Callable[[], bool] = lambda: False,
    why: str = "",
    only_ask: bool = False,
) -> Any:
    """Run an operation for somebody, and note a change in the audit log; `operations.run` says what `is_gone` is for.

    A person confirms what an assistant asks for; with `only_ask` it is not carried out in any case.
    """
    given, by = call.given, call.by
    if by.assistant or only_ask:
        given = admit(call, operation, only_ask=only_ask)
    before = holdings.look(call, operation) if by.assistant else holdings.Before()
    result = operations.run(getattr(call.where, operation.area), operation, given, is_gone)
    if operation.changes:
        reason = why or operations.find_reason(given)
        target = operations.find_target(operation, given, result)
        change = holdings.find_change(operation, given, result, by, before)
        call.rows.audit(by.title, operation.action, target, reason[:500], change)
    return result


# --- reservations and investigations; an admin may end those of others


def _release(call: Call) -> Effect | None:
    found = call.where.reservations.show(call.given["reservation_id"]).reservation
    if found.order.owner == call.by.name:
        return None
    hosts = tuple(sorted(host.name for host in found.open))
    return Effect(
        summary=f"release {plural(len(hosts), 'host')} of reservation {found.id}",
        hosts=hosts,
        concerns=_name_owner(found.order.owner),
        about=f"reservation {found.id}",
    )


def _extend(call: Call) -> Effect | None:
    found = call.where.reservations.show(call.given["reservation_id"]).reservation
    about, hosts = f"reservation {found.id}", len(found.open)
    what = f"keep {plural(hosts, 'host')} of reservation {found.id}"
    effect = pool_guards.keep_long(what, call.given["seconds"], hosts, about)
    if effect or found.order.owner == call.by.name:
        return effect
    concerns = _name_owner(found.order.owner)
    return Effect(summary=what, most_hosts=hosts, concerns=concerns, about=about)


def _stop(call: Call) -> Effect | None:
    found = call.where.investigations.show(call.given["investigation_id"]).investigation
    if found.owner == call.by.name:
        return None
    what = f"investigation {found.id}"
    return Effect(summary=f"stop {what}", concerns=_name_owner(found.owner), about=what)


def _name_owner(name: str) -> tuple[str]:
    return (f"its owner is {foreign(name or 'not-known')}",)


def _reserve(call: Call) -> Effect | None:
    order: Order = call.given["order"]
    plan = call.where.reservations.preflight(order)
    held = holdings.count(call)
    if not (_is_rough(order, held) or plan.concerns):
        return None
    hosts, hours = _name_hosts(plan), _lease_seconds(order) / pool_guards.HOUR
    taint = ", with NoExecute" if order.no_execute else ""
    where_ = f" {foreign(order.where)}" if order.where else ""
    return Effect(
        summary=f"reserve {plural(len(hosts), 'host')} from {foreign(order.provider)}{where_}{taint}" + pool_guards.mention(held, order.wanted),
        hosts=hosts,
        most_hosts=order.wanted,
        host_hours=order.wanted * hours,
        concerns=plan.concerns,
    )  # fmt: skip


def _is_rough(order: Order, held: int) -> bool:
    many = held + order.wanted > pool_guards.MANY_HOSTS
    long = _lease_seconds(order) > pool_guards.LONG_SECONDS
    return many or long or order.evict or order.no_execute or order.detach


def _lease_seconds(order: Order) -> int:
    return order.max_seconds if order.renew else order.seconds


def _name_hosts(plan: Preflight) -> tuple[str, ...]:
    return tuple(sorted(each.host.name for each in plan.hosts))


def _investigate(call: Call) -> Effect | None:
    plan: Plan = call.given["plan"]
    planned = call.where.investigations.preflight(plan)
    changes = tuple(_list_changes(plan))
    held = holdings.count(call)
    is_long = plan.budget.hours * pool_guards.HOUR > pool_guards.LONG_SECONDS
    order = dataclasses.replace(planned.hosts.order, renew=False)  # the budget ends its lease
    if not (changes or is_long or _is_rough(order, held) or planned.hosts.concerns):
        return None
    hosts = _name_hosts(planned.hosts)
    hours = len(hosts) * plan.budget.hours
    return Effect(
        summary=f"carry out the plan {quoted(plan.name)} on {plural(len(hosts), 'host')}"
        + pool_guards.mention(held, len(hosts)),
        hosts=hosts,
        most_hosts=len(hosts),
        host_hours=hours,
        cost=hours * plan.budget.price if plan.budget.price else None,
        concerns=(*changes, *planned.hosts.concerns),
    )


def _list_changes(plan: Plan) -> Iterator[str]:
    """Yield what a plan changes on hosts besides recording and load."""
    for arm in plan.arms:
        for name in (*arm.age, *arm.changes):
            yield f"arm {arm.kind} changes its hosts: {foreign(name)}"
    for name in plan.experiment.allow:
        yield f"an experiment may change a host: {foreign(name)}"
    if plan.rehearsal is not None:
        yield f"the incident is caused on purpose: {foreign(plan.rehearsal.name)}"


GUARDS: Mapping[tuple[str, str], Find] = {
    ("pools", "drain"): pool_guards.drain,
    ("pools", "delete"): pool_guards.delete,
    ("pools", "terminate"): pool_guards.terminate,
    ("pools", "forget"): pool_guards.forget,
    ("pools", "create"): pool_guards.create,
    ("pools", "update"): pool_guards.update,
    ("pools", "set_autoscale"): pool_guards.set_autoscale,
    ("pools", "acquire"): pool_guards.acquire,
    ("pools", "renew"): pool_guards.renew,
    ("pools", "set_cordoned"): pool_guards.set_cordoned,
    ("pools", "return_member"): pool_guards.return_member,
    ("pools", "give_back"): pool_guards.return_member,
    ("clusters", "create"): pool_guards.create_cluster,
    ("clusters", "cancel"): pool_guards.cancel_cluster,
    ("clusters", "renew"): pool_guards.renew_cluster,
    ("clusters", "release"): pool_guards.release_cluster,
    ("reservations", "create"): _reserve,
    ("reservations", "extend"): _extend,
    ("reservations", "end"): _release,
    ("investigations", "create"): _investigate,
    ("investigations", "stop"): _stop,
}
