"""What an assistant may not do to pools and clusters without a person, by the state that a call would lead to."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from overnight.app import holdings
from overnight.model import times
from overnight.model.cluster import ClusterState
from overnight.model.confirmation import Effect
from overnight.model.pool import WINDS_DOWN, MemberState, PoolStatus
from overnight.model.text import foreign, plural

if TYPE_CHECKING:
    from overnight.app import guards, pools
    from overnight.model.cluster import ClusterOrder, ClusterReport
    from overnight.model.pool import Claim, Member, PoolDetails, PoolSettings

MANY_HOSTS = 20  # more of them are costly, with those that the caller already has
HOUR = 3600.0
LONG_SECONDS = 24 * HOUR  # a lease that ends later keeps hosts from others
ENDS = (MemberState.WARMING, MemberState.READY)

MADE_FROM = ("template", "region", "instance_type", "lifecycle_class")
# A shorter one ends members or claims that run now.
LIFETIMES = (
    "warming_timeout_seconds", "ready_ttl_seconds", "claimed_ttl_seconds", "heartbeat_stale_after_seconds",
    "lease_max_seconds",
)  # fmt: skip


def _unclaimed(details: PoolDetails) -> tuple[str, ...]:
    return tuple(sorted(member.id for member in details.members if member.state in ENDS))


def _open(claims: tuple[Claim, ...]) -> tuple[str, ...]:
    listed = (claim for claim in claims if claim.released_us is None)
    return tuple(
        sorted(f"{each.id} of {foreign(each.acquired_by or 'a-caller')}" for each in listed)
    )


def drain(call: guards.Call) -> Effect | None:
    details = call.where.pools.show(call.given["name"]).details
    ends = _unclaimed(details)
    if details.pool.status is PoolStatus.DRAINING and not ends:
        return None  # nothing is left to do
    claims = _open(details.claims)
    return Effect(
        summary=f"drain pool {details.pool.name}: end {plural(len(ends), 'member')}, launch no more, "
        f"leave {plural(len(claims), 'claim')} running without replacement",
        ends=ends,
        claims=claims,
        about=f"pool {details.pool.id}",
    )


def delete(call: guards.Call) -> Effect:
    pool = call.where.pools.show(call.given["name"]).details.pool
    return Effect(summary=f"delete pool {pool.name} for good", about=f"pool {pool.id}")


def terminate(call: guards.Call) -> Effect | None:
    found = call.where.pools.show_member(call.given["member_id"])
    if found.member.gone_us is not None:
        return None
    claims = _open(found.claims)
    ending = f" and end {plural(len(claims), 'claim')}" if claims else ""
    summary = f"terminate member {found.member.id} of pool {found.pool}{ending}"
    about = f"member {found.member.id}"
    return Effect(summary=summary, ends=(found.member.id,), claims=claims, about=about)


def forget(call: guards.Call) -> Effect:
    members = [m for m in _members(call) if m.host == call.given["host"]]
    return Effect(
        summary=f"give up {plural(len(members), 'member')} on {foreign(call.given['host'])}, and end their claims",
        ends=tuple(sorted(member.id for member in members)),
        claims=tuple(
            sorted(member.id for member in members if member.state is MemberState.CLAIMED)
        ),
        hosts=(foreign(call.given["host"]),),
    )


def _members(call: guards.Call) -> Iterator[Member]:
    for details in call.where.pools.list(archived=True):
        yield from call.where.pools.show(details.pool.name).details.members


def _many(hosts: int, summary: str, held: int = 0) -> Effect | None:
    """Return the effect of a call that adds hosts, if these are many with those that are held."""
    if not hosts or held + hosts <= MANY_HOSTS:
        return None
    return Effect(summary=summary + mention(held, hosts), most_hosts=hosts)


def mention(held: int, hosts: int) -> str:
    # Without the number: it changes with every claim, and a confirmation of another effect is void.
    many = held and held + hosts > MANY_HOSTS
    return f"; the caller would have more than {MANY_HOSTS} hosts" if many else ""


def create(call: guards.Call) -> Effect | None:
    from overnight.pools import admin

    change: pools.PoolChange = call.given["change"]
    target = change.target_size or 0
    most = target + admin.HEADROOM if change.max_size is None else max(change.max_size, target)
    held = holdings.count(call)
    return _many(most, f"create pool {foreign(call.given['name'])} with up to {most} hosts", held)


def update(call: guards.Call) -> Effect | None:
    from overnight.pools import settings

    change: pools.PoolChange = call.given["change"]
    details = call.where.pools.show(call.given["name"]).details
    pool = details.pool
    sooner = _find_shortened(pool.settings, settings.changed(pool.settings, change.settings))
    is_other = any(getattr(change, n) not in (None, getattr(pool, n)) for n in MADE_FROM)
    return _resize(
        call,
        details,
        sooner,
        "replace" if is_other else "terminate",
        everything=is_other or change.status in WINDS_DOWN,
    )


def set_autoscale(call: guards.Call) -> Effect | None:
    change: pools.AutoscaleChange = call.given["change"]
    details = call.where.pools.show(call.given["name"]).details
    before = details.autoscale.zero_after_seconds if details.autoscale else None
    after, sooner = change.zero_after_seconds, []
    if after is not None and (before is None or after < before):
        sooner.append(("zero_after_seconds", before, after))
    return _resize(call, details, sooner)


def _resize(
    call: guards.Call, details: PoolDetails,
    sooner: Sequence[tuple[str, object, object]], how: str = "terminate", *, everything: bool = False,
) -> Effect | None:  # fmt: skip
    """Return the effect of a change of a pool or its policy, by what the pool would be afterwards."""
    pool, doing = details.pool, list[str]()
    limit, now, size = holdings.find_sizes(call.where, pool, call.given["change"])
    held = holdings.count(call)
    if limit > pool.max_size and max(limit, held + limit - pool.max_size) > MANY_HOSTS:
        doing.append(f"raise the limit of pool {pool.name} from {pool.max_size} to {limit} hosts")
    before = holdings.find_size(details)
    if size > before and held + size - before > MANY_HOSTS:
        doing.append(f"raise the size of pool {pool.name} from {before} to {size} hosts")
    unclaimed = _unclaimed(details)
    kept = 0 if pool.winds_down else min(pool.target_size, len(unclaimed))
    ended = len(unclaimed) if everything else max(0, kept - now)
    if ended:
        doing.append(f"change pool {pool.name}: {how} {plural(ended, 'member')}")
    if sooner:
        doing.append(f"change pool {pool.name}: end members or claims sooner")
    if not doing:
        return None
    return Effect(
        summary="; ".join(doing),
        ends=unclaimed if ended == len(unclaimed) else (),
        claims=_open(details.claims) if sooner else (),
        most_hosts=limit,
        concerns=tuple(f"{name}: {before} becomes {after}" for name, before, after in sooner),
        basis=str(pool.updated_us),
        about=f"pool {pool.id}",
    )


def _find_shortened(before: PoolSettings, after: PoolSettings) -> list[tuple[str, object, object]]:
    """Return the settings that end members or claims sooner than before, with both values."""
    found = [n for n in LIFETIMES if getattr(after, n) < getattr(before, n)]
    if after.claimed_ttl_action == "terminate" != before.claimed_ttl_action:
        found.append("claimed_ttl_action")
    return [(name, getattr(before, name), getattr(after, name)) for name in found]


def acquire(call: guards.Call) -> Effect | None:
    # By call: the pool limits the rest, and claiming a member is direct.
    request, name = call.given["request"], foreign(call.given["name"])
    count, seconds = request.count, request.lease_seconds or 0
    what = f"claim {plural(count, 'member')} of pool {name}"
    return _many(count, what) or keep_long(what, seconds, count)


def keep_long(what: str, seconds: float, hosts: int, about: str = "") -> Effect | None:
    """Return the effect of a lease, if it is long; `what` has the hosts."""
    return keep(what, seconds, hosts, about) if seconds > LONG_SECONDS else None


def keep(what: str, seconds: float, hosts: int, about: str) -> Effect:
    return Effect(
        summary=f"{what} for {times.format_duration(seconds)}",
        most_hosts=hosts,
        host_hours=hosts * seconds / HOUR,
        about=about,
    )


def renew(call: guards.Call) -> Effect | None:
    claim = call.where.pools.plane.find_claim(call.given["claim_id"])
    what = f"keep member {claim.member_id}"
    return keep_long(what, call.given["lease_seconds"], 1, f"claim {claim.id}")


def set_cordoned(call: guards.Call) -> Effect | None:
    """Return the effect of holding a second member of a pool, or of releasing what another caller holds."""
    found = call.where.pools.show_member(call.given["member_id"])
    member = found.member
    if call.given["cordoned"] == member.cordoned:
        return None
    if call.given["cordoned"]:
        listed = call.where.pools.show(found.pool).details.members
        many, what = any(each.cordoned for each in listed), "hold another member back"
    else:
        many = member.id not in holdings.list_own(call, "pool.set_cordoned")
        what = "release what another caller holds"
    summary = f"{what}: {member.id} of pool {found.pool}"
    return Effect(summary=summary, about=f"member {member.id}") if many else None


def return_member(call: guards.Call) -> Effect | None:
    """Return the effect of ending the claim of another caller."""
    if "claim_id" in call.given:
        claims: tuple[Claim, ...] = (call.where.pools.plane.find_claim(call.given["claim_id"]),)
    else:
        claims = call.where.pools.show_member(call.given["member_id"]).claims
    own = holdings.list_own(call, "pool.acquire")
    others = _open(tuple(c for c in claims if own.isdisjoint((c.id, c.batch_id))))
    if not others:
        return None
    summary = f"return member {claims[0].member_id}: end the claim of another caller"
    about = f"member {claims[0].member_id}"
    return Effect(summary=summary, ends=(claims[0].member_id,), claims=others, about=about)


def create_cluster(call: guards.Call) -> Effect | None:
    order: ClusterOrder = call.given["order"]
    held = holdings.count(call)
    if held + order.count <= MANY_HOSTS and order.lease_seconds <= LONG_SECONDS:
        return None
    plan = call.where.clusters.preflight(order)
    return Effect(
        summary=f"launch {plan.what}, {plan.limits}{mention(held, order.count)}",
        most_hosts=order.count,
        host_hours=plan.host_hours,
        cost=plan.cost,
    )


def renew_cluster(call: guards.Call) -> Effect | None:
    cluster = call.where.clusters.show(call.given["cluster_id"]).cluster
    seconds = call.given["lease_seconds"]
    if cluster.count <= MANY_HOSTS and seconds <= LONG_SECONDS:
        return None
    about = f"cluster {cluster.id}"
    return keep(f"keep {cluster.count} hosts of {about}", seconds, cluster.count, about)


def release_cluster(call: guards.Call) -> Effect | None:
    return _end_cluster(call.where.clusters.show(call.given["cluster_id"]), "release")


def cancel_cluster(call: guards.Call) -> Effect | None:
    """Return the effect of cancelling what another caller ordered."""
    report = call.where.clusters.show(call.given["cluster_id"])
    return (
        None if report.cluster.id in holdings.list_created(call) else _end_cluster(report, "cancel")
    )


def _end_cluster(report: ClusterReport, how: str) -> Effect | None:
    if report.cluster.state is ClusterState.ENDED:
        return None  # nothing is left to do
    members = tuple(sorted(member.id for member in report.details.members))
    about = f"cluster {report.cluster.id}"
    return Effect(
        summary=f"{how} {about}: terminate {plural(len(members), 'member')}",
        ends=members,
        claims=_open(report.details.claims),
        about=about,
    )
