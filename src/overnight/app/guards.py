"""What an assistant may not do without a person: which calls, and what each of them would do now."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from overnight.app import holdings, operations
from overnight.model import times
from overnight.model.cluster import ClusterState
from overnight.model.confirmation import Effect, NoConfirmationNeededError
from overnight.model.control_plane import Principal
from overnight.model.pool import MemberState, PoolStatus
from overnight.model.text import plural

if TYPE_CHECKING:
    from overnight.app import clusters, investigations, pools, reservations
    from overnight.fleet import confirmations
    from overnight.model.cluster import ClusterOrder, ClusterReport
    from overnight.model.plan import Plan
    from overnight.model.pool import Claim, Member, PoolDetails, PoolSettings
    from overnight.model.reservation import Order, Preflight

MANY_HOSTS = 20  # more of them are costly, with those that the caller already has
HOUR = 3600.0
NOT_BOUND = ("confirmed", "agreed", "idempotency_key")  # they do not change what a call does
ENDS = (MemberState.WARMING, MemberState.READY)
WINDS_DOWN = (PoolStatus.DRAINING, PoolStatus.ARCHIVED)
MADE_FROM = ("template", "region", "instance_type", "lifecycle_class")
# A shorter one ends members or claims that run now.
LIFETIMES = (
    "warming_timeout_seconds", "ready_ttl_seconds", "claimed_ttl_seconds", "heartbeat_stale_after_seconds",
    "lease_max_seconds",
)  # fmt: skip
State = MemberState


class UseCases(Protocol):
    """The use cases of a server, or of a data home."""

    pools: pools.Pools
    clusters: clusters.Clusters
    reservations: reservations.Reservations
    investigations: investigations.Investigations


@dataclasses.dataclass(frozen=True, kw_only=True)
class Caller(Principal):
    """An assistant; `rows` have the audit log of what it did."""

    rows: confirmations.Confirmations


Given = Mapping[str, Any]
Find = Callable[[UseCases, Given, Caller], Effect | None]


def admit(
    where: UseCases,
    rows: confirmations.Confirmations,
    operation: operations.Operation,
    given: Given,
    by: Principal,
    *,
    only_ask: bool = False,
) -> dict[str, Any]:
    """Return the arguments of an assistant's call as it is carried out; raise ConfirmationNeededError.

    What the person has seen is all that it may do: claims that were made meanwhile are refused.
    """
    find = GUARDS.get((operation.area, operation.name))
    effect = find(where, given, Caller(**vars(by), rows=rows)) if find else None
    if effect is not None:
        bound = {n: operations.encode(v) for n, v in given.items() if n not in NOT_BOUND}
        rows.require(by, operation.action, operation.role, bound, effect, only_ask=only_ask)
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
    return {**given, **agreed}


# --- pools


def _unclaimed(details: PoolDetails) -> tuple[str, ...]:
    return tuple(sorted(member.id for member in details.members if member.state in ENDS))


def _open(claims: tuple[Claim, ...]) -> tuple[str, ...]:
    listed = (claim for claim in claims if claim.released_us is None)
    return tuple(sorted(f"{claim.id} of {claim.acquired_by or 'a caller'}" for claim in listed))


def _drain(where: UseCases, given: Given, _by: Principal) -> Effect | None:
    details = where.pools.show(given["name"]).details
    ends = _unclaimed(details)
    if details.pool.status is PoolStatus.DRAINING and not ends:
        return None  # nothing is left to do
    claims = _open(details.claims)
    return Effect(
        summary=f"drain pool {details.pool.name}: end {plural(len(ends), 'member')}, launch no more, "
        f"leave {plural(len(claims), 'claim')} running without replacement",
        ends=ends,
        claims=claims,
        basis=details.pool.id,
    )


def _delete(where: UseCases, given: Given, _by: Principal) -> Effect:
    pool = where.pools.show(given["name"]).details.pool
    return Effect(summary=f"delete pool {pool.name} for good", basis=pool.id)


def _terminate(where: UseCases, given: Given, _by: Principal) -> Effect | None:
    found = where.pools.show_member(given["member_id"])
    if found.member.gone_us is not None:
        return None
    claims = _open(found.claims)
    ending = f" and end {plural(len(claims), 'claim')}" if claims else ""
    summary = f"terminate member {found.member.id} of pool {found.pool}{ending}"
    return Effect(summary=summary, ends=(found.member.id,), claims=claims)


def _forget(where: UseCases, given: Given, _by: Principal) -> Effect:
    members = [m for m in _members(where) if m.host == given["host"]]
    return Effect(
        summary=f"give up {plural(len(members), 'member')} on {given['host']}, and end their claims",
        ends=tuple(sorted(member.id for member in members)),
        claims=tuple(sorted(member.id for member in members if member.state is State.CLAIMED)),
        hosts=(given["host"],),
    )


def _members(where: UseCases) -> Iterator[Member]:
    for details in where.pools.list(archived=True):
        yield from where.pools.show(details.pool.name).details.members


def _many(hosts: int, summary: str, held: int = 0) -> Effect | None:
    """Return the effect of a call that adds hosts, if these are many with those that are held."""
    if held + hosts <= MANY_HOSTS:
        return None
    return Effect(summary=summary + _mention(held, hosts), most_hosts=hosts)


def _mention(held: int, hosts: int) -> str:
    # Without the number: it changes with every claim, and a confirmation of another effect is void.
    many = held and held + hosts > MANY_HOSTS
    return f"; the caller would have more than {MANY_HOSTS} hosts" if many else ""


def _create(where: UseCases, given: Given, by: Caller) -> Effect | None:
    from overnight.pools import admin

    change: pools.PoolChange = given["change"]
    target = change.target_size or 0
    most = target + admin.HEADROOM if change.max_size is None else max(change.max_size, target)
    held = holdings.count(where, by)
    return _many(most, f"create pool {given['name']} with up to {most} hosts", held)


def _update(where: UseCases, given: Given, by: Caller) -> Effect | None:
    from overnight.pools import settings

    change: pools.PoolChange = given["change"]
    details = where.pools.show(given["name"]).details
    pool, most = details.pool, change.max_size or 0
    sooner = _find_shortened(pool.settings, settings.changed(pool.settings, change.settings))
    ends: tuple[str, ...] = ()
    doing: list[str] = []
    held = holdings.count(where, by)
    more = most - pool.max_size
    if more > 0 and max(most, held + more) > MANY_HOSTS:
        doing.append(f"raise the limit of pool {pool.name} from {pool.max_size} to {most} hosts")
    is_other = any(getattr(change, n) not in (None, getattr(pool, n)) for n in MADE_FROM)
    if is_other or change.status in WINDS_DOWN or change.target_size == 0:
        ends = _unclaimed(details)
    if ends:
        how = "replace" if is_other else "terminate"
        doing.append(f"change pool {pool.name}: {how} {plural(len(ends), 'member')}")
    if sooner:
        doing.append(f"change pool {pool.name}: end members or claims sooner")
    if not doing:
        return None
    return Effect(
        summary="; ".join(doing),
        ends=ends,
        claims=_open(details.claims) if sooner else (),
        most_hosts=most,
        concerns=tuple(f"{name}: {before} becomes {after}" for name, before, after in sooner),
        basis=str(pool.updated_us),
    )


def _find_shortened(before: PoolSettings, after: PoolSettings) -> list[tuple[str, object, object]]:
    """Return the settings that end members or claims sooner than before, with both values."""
    found = [n for n in LIFETIMES if getattr(after, n) < getattr(before, n)]
    if after.claimed_ttl_action == "terminate" != before.claimed_ttl_action:
        found.append("claimed_ttl_action")
    return [(name, getattr(before, name), getattr(after, name)) for name in found]


def _set_autoscale(_: UseCases, given: Given, _by: Principal) -> Effect | None:
    most = given["change"].max_size or 0
    return _many(most, f"let pool {given['name']} grow to {most} hosts")


def _acquire(_: UseCases, given: Given, _by: Caller) -> Effect | None:
    # By call: the pool limits the rest, and claiming a member is direct.
    count = given["request"].count
    return _many(count, f"claim {plural(count, 'member')} of pool {given['name']}")


def _return(where: UseCases, given: Given, by: Caller) -> Effect | None:
    """Return the effect of ending the claim of another caller."""
    if "claim_id" in given:
        claims: tuple[Claim, ...] = (where.pools.plane.find_claim(given["claim_id"]),)
    else:
        claims = where.pools.show_member(given["member_id"]).claims
    own = holdings.list_claims(by)
    others = _open(tuple(c for c in claims if own.isdisjoint((c.id, c.batch_id))))
    if not others:
        return None
    summary = f"return member {claims[0].member_id}: end the claim of another caller"
    return Effect(summary=summary, ends=(claims[0].member_id,), claims=others)


def _create_cluster(where: UseCases, given: Given, by: Caller) -> Effect | None:
    order: ClusterOrder = given["order"]
    held = holdings.count(where, by)
    if held + order.count <= MANY_HOSTS:
        return None
    plan = where.clusters.preflight(order)
    return Effect(
        summary=f"launch {plan.what}, {plan.limits}{_mention(held, order.count)}",
        most_hosts=order.count,
        host_hours=plan.host_hours,
        cost=plan.cost,
    )


def _renew_cluster(where: UseCases, given: Given, _by: Principal) -> Effect | None:
    cluster, seconds = where.clusters.show(given["cluster_id"]).cluster, given["lease_seconds"]
    if cluster.count <= MANY_HOSTS:
        return None
    return Effect(
        summary=f"keep {cluster.count} hosts of cluster {cluster.id} for {times.format_duration(seconds)}",
        most_hosts=cluster.count,
        host_hours=cluster.count * seconds / HOUR,
    )


def _release_cluster(where: UseCases, given: Given, _by: Principal) -> Effect | None:
    return _end_cluster(where.clusters.show(given["cluster_id"]), "release")


def _cancel_cluster(where: UseCases, given: Given, by: Caller) -> Effect | None:
    """Return the effect of cancelling what another caller ordered."""
    report = where.clusters.show(given["cluster_id"])
    return (
        None if report.cluster.id in holdings.list_created(by) else _end_cluster(report, "cancel")
    )


def _end_cluster(report: ClusterReport, how: str) -> Effect | None:
    if report.cluster.state is ClusterState.ENDED:
        return None  # nothing is left to do
    members = tuple(sorted(member.id for member in report.details.members))
    return Effect(
        summary=f"{how} cluster {report.cluster.id}: terminate {plural(len(members), 'member')}",
        ends=members,
        claims=_open(report.details.claims),
    )


# --- reservations and investigations; an admin may end those of others


def _release(where: UseCases, given: Given, by: Principal) -> Effect | None:
    found = where.reservations.show(given["reservation_id"]).reservation
    if found.order.owner == by.name:
        return None
    hosts = tuple(sorted(host.name for host in found.open))
    return Effect(
        summary=f"release {plural(len(hosts), 'host')} of reservation {found.id}",
        hosts=hosts,
        concerns=(f"its owner is {found.order.owner or 'not known'}",),
    )


def _stop(where: UseCases, given: Given, by: Principal) -> Effect | None:
    found = where.investigations.show(given["investigation_id"]).investigation
    if found.owner == by.name:
        return None
    concern = f"its owner is {found.owner or 'not known'}"
    return Effect(summary=f"stop investigation {found.id}", concerns=(concern,))


def _reserve(where: UseCases, given: Given, by: Caller) -> Effect | None:
    order: Order = given["order"]
    plan = where.reservations.preflight(order)
    held = holdings.count(where, by)
    if not (_is_rough(order, held) or plan.concerns):
        return None
    hosts, hours = _name_hosts(plan), order.seconds / HOUR
    taint = ", with NoExecute" if order.no_execute else ""
    return Effect(
        summary=f"reserve {plural(len(hosts), 'host')} from {order.provider} {order.where}".rstrip() + taint + _mention(held, order.wanted),
        hosts=hosts,
        most_hosts=order.wanted,
        host_hours=order.wanted * hours,
        concerns=plan.concerns,
    )  # fmt: skip


def _is_rough(order: Order, held: int) -> bool:
    return held + order.wanted > MANY_HOSTS or order.evict or order.no_execute or order.detach


def _name_hosts(plan: Preflight) -> tuple[str, ...]:
    return tuple(sorted(each.host.name for each in plan.hosts))


def _investigate(where: UseCases, given: Given, by: Caller) -> Effect | None:
    plan: Plan = given["plan"]
    planned = where.investigations.preflight(plan)
    changes = tuple(_list_changes(plan))
    held = holdings.count(where, by)
    if not (changes or _is_rough(planned.hosts.order, held) or planned.hosts.concerns):
        return None
    hosts = _name_hosts(planned.hosts)
    hours = len(hosts) * plan.budget.hours
    return Effect(
        summary=f"investigate {plan.name} on {plural(len(hosts), 'host')}"
        + _mention(held, len(hosts)),
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
            yield f"arm {arm.kind} changes its hosts: {name}"
    for name in plan.experiment.allow:
        yield f"an experiment may change a host: {name}"
    if plan.rehearsal is not None:
        yield f"the incident is caused on purpose: {plan.rehearsal.name}"


GUARDS: Mapping[tuple[str, str], Find] = {
    ("pools", "drain"): _drain,
    ("pools", "delete"): _delete,
    ("pools", "terminate"): _terminate,
    ("pools", "forget"): _forget,
    ("pools", "create"): _create,
    ("pools", "update"): _update,
    ("pools", "set_autoscale"): _set_autoscale,
    ("pools", "acquire"): _acquire,
    ("pools", "return_member"): _return,
    ("pools", "give_back"): _return,
    ("clusters", "create"): _create_cluster,
    ("clusters", "cancel"): _cancel_cluster,
    ("clusters", "renew"): _renew_cluster,
    ("clusters", "release"): _release_cluster,
    ("reservations", "create"): _reserve,
    ("reservations", "end"): _release,
    ("investigations", "create"): _investigate,
    ("investigations", "stop"): _stop,
}
