"""Tools of pools, by the names, inputs and outputs of the runbook; `vocabulary` translates the fields."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from overnight.app import pools
from overnight.interfaces.mcp import pool_inputs as asks
from overnight.interfaces.mcp import tools, vocabulary
from overnight.interfaces.mcp import values as v
from overnight.model.cluster import Cluster, ClusterOrder
from overnight.model.pool import Claim, Counts, Member, Pool, PoolEvent, Request

if TYPE_CHECKING:
    from collections.abc import Iterable

    from overnight.app import concierge
    from overnight.model.cluster import ClusterReport
    from overnight.model.pool import PoolReport
    from overnight.model.pool_explanation import Explanation

HOUR, MONTH_HOURS = 3600, 730

# --- what tools return

InstancePool = v.record(
    "InstancePool", (Pool, vocabulary.POOL), (Counts, vocabulary.COUNTS),
    more={"metadata": dict[v.Word, bool | int | v.Word]}
)  # fmt: skip
Instance = v.record("Instance", (Member, vocabulary.INSTANCE), word="status")
PoolMember = v.record("PoolMember", (Member, vocabulary.MEMBER), word="status")
PoolClaim = v.record("PoolClaim", (Claim, vocabulary.CLAIM), text="acquired_by acquired_for")
PoolProblem = v.record(
    "PoolProblem", word="name", flag="alert", sentence="what why todo", text="said"
)  # fmt: skip
PoolAnswer = v.record("PoolAnswer", more={"instance_pool": InstancePool})
PoolWithMembers = v.record(
    "PoolWithMembers", base=v.Listed,
    more={"instance_pool": InstancePool, "members": [PoolMember], "claims": [PoolClaim], "problems": [PoolProblem]}
)  # fmt: skip
PoolList = v.record("PoolList", base=v.Listed, more={"instance_pools": [InstancePool]})
InstanceAnswer = v.record("InstanceAnswer", more={"instance": Instance})
InstanceWithPast = v.record("InstanceWithPast", more={"instance": Instance, "claims": [PoolClaim]})
Claimed = v.record("Claimed", word="claim_id", more={"instance": Instance})
DrainResult = v.record("DrainResult", count="drained claimed_remaining")
Drained = v.record("Drained", more={"pool": InstancePool, "drain_result": DrainResult})
PoolEventRow = v.record("PoolEventRow", (PoolEvent, vocabulary.EVENT), text="detail")
PoolEvents = v.record("PoolEvents", base=v.Listed, more={"events": [PoolEventRow]})
EvidenceRow = v.record(
    "EvidenceRow", instant="at", word="source what reason", sentence="detail", text="said"
)  # fmt: skip
Attribution = v.record(
    "Attribution", word="subject name pool cause", words="others", sentence="summary todo console_missing",
    texts="console", more={"evidence": [EvidenceRow]}
)  # fmt: skip
ClusterRow = v.record(
    "ClusterRow", (Cluster, vocabulary.CLUSTER), (Counts, vocabulary.COUNTS), word="status"
)  # fmt: skip
ClusterAnswer = v.record(
    "ClusterAnswer", base=v.Listed, more={"cluster": ClusterRow, "members": [PoolMember], "problems": [PoolProblem]}
)  # fmt: skip
NewInstanceAnswer = v.record(
    "NewInstanceAnswer", word="cluster_id", more={"instance": Instance | None}
)  # fmt: skip
WrongTool = v.record("WrongTool", word="kind", sentence="what instead")
PoolSize = v.record(
    "PoolSize", count="target_size min_size max_size runbook_target_size",
    number="miss_at_target miss_at_runbook idle_hosts idle_cost_per_month max_cost_per_hour claims_per_minute warm_up_seconds",
    more={"wrong_tool": [WrongTool]}
)  # fmt: skip


# --- translation; `show` makes the answer of a result


def _pool(report: PoolReport, *_: Any) -> dict[str, Any]:
    return {"instance_pool": vocabulary.describe(report.details)}


def _instance(member: Member, *_: Any) -> dict[str, Any]:
    return {"instance": vocabulary.describe(member)}


def _claims(claims: Iterable[Claim]) -> list[dict[str, Any]]:
    return [vocabulary.describe(claim) for claim in claims][: v.ROWS]


def _members(report: PoolReport | ClusterReport) -> dict[str, Any]:
    problems = [{**vars(problem), "said": problem.host_text} for problem in report.problems]
    members = map(vocabulary.describe, report.details.members)
    return {**v.cut("members", members), "problems": problems[: v.ROWS]}


def _pool_with_members(report: PoolReport, *_: Any) -> dict[str, Any]:
    claims = _claims(claim for claim in report.details.claims if claim.released_us is None)
    return {**_pool(report), **_members(report), "claims": claims}


def _cluster(report: ClusterReport, *_: Any) -> dict[str, Any]:
    counts = vocabulary.describe(report.details.counts)
    row = {**vocabulary.describe(report.cluster), **counts, "status": report.cluster.state}
    return {**_members(report), "cluster": row}


def _new_instance(report: ClusterReport, *_: Any) -> dict[str, Any]:
    launched = [*map(vocabulary.describe, report.details.members[:1])]
    return {"cluster_id": report.cluster.id, "instance": launched[0] if launched else None}


def _drained(
    result: dict[str, int], backend: concierge.Backend, asked: asks.ById
) -> dict[str, Any]:
    details = backend.run("pool.show", {"name": asked.id}).details
    return {"pool": vocabulary.describe(details), "drain_result": result}


def _attribution(found: Explanation, *_: Any) -> dict[str, Any]:
    evidence = [{**vars(e), "at": e.at_us, "said": e.host_text} for e in found.evidence[-v.ROWS :]]
    return {**vars(found), "evidence": evidence, "console": found.console[-v.ROWS :]}


def _recent_events(backend: concierge.Backend, asked: asks.EventsWanted) -> dict[str, Any]:
    """Return the newest events first; one more is read than asked for, to know whether there are more."""
    recent = asked.limit + 1
    if asked.instance_id:
        found = backend.run("pool.show_member", {"member_id": asked.instance_id, "recent": recent})
        return v.cut_page("events", map(vocabulary.describe, found.events), asked.limit)
    listed = backend.run("pool.events", {"name": asked.pool_id, "recent": recent})
    return v.cut_page("events", map(vocabulary.describe, listed[::-1]), asked.limit)


def _size(backend: concierge.Backend, asked: asks.Demand) -> dict[str, Any]:
    given = vocabulary.to_ours(vocabulary.DEMAND, asked.model_dump())
    found = backend.size({**given, "burst": asked.burst and (asked.burst, 0.0)})
    proposed, price = found["proposed"], asked.cost_per_host_hour
    [point] = [each for each in found["curve"] if each["size"] == proposed["target_size"]]
    idle = point["idle_event_driven"]
    return {
        **found,
        **proposed,
        "runbook_target_size": found["runbook"],
        "miss_at_target": point["event_driven"],
        "idle_hosts": idle,
        "idle_cost_per_month": None if price is None else idle * price * MONTH_HOURS,
        "warm_up_seconds": found["warmup_s"],
    }


# --- what operations are given


def _provider(asked: asks.NewPool | asks.NewInstance) -> str:
    return asked.provider or ("ec2" if asked.provider_region_id else "process")


def _change(asked: asks.PoolFields) -> pools.PoolChange:
    fields = asked.model_dump(exclude_none=True, exclude={"id", "name", "provider"})
    return pools.PoolChange(**vocabulary.to_ours(vocabulary.POOL, fields))


def _order(asked: asks.NewInstance) -> dict[str, Any]:
    fields = {"count": 1, **asked.model_dump(exclude_none=True, exclude={"lease_hours"})}
    fields |= {"provider": _provider(asked), "lease_seconds": round(asked.lease_hours * HOUR)}
    order = ClusterOrder(**vocabulary.to_ours(vocabulary.POOL, fields))
    return {"order": order, "confirmed": False}  # the server decides who confirms


def _claim(asked: asks.NewClaim) -> dict[str, Any]:
    return {"name": asked.pool_id, "request": Request(**asked.model_dump(exclude={"pool_id"}))}


def _by_id(asked: asks.ById) -> dict[str, Any]:
    return {"name": asked.id}


def _of_cluster(asked: asks.OfCluster) -> dict[str, Any]:
    return {"cluster_id": asked.id}


TOOLS = (
    tools.Tool(
        name="system_create_instance_pool",
        about="Create a pool of pre-warmed instances; the reaper launches its members.",
        input=asks.NewPool, output=PoolAnswer, action="pool.create",
        given=lambda asked: {"name": asked.name, "provider": _provider(asked), "change": _change(asked)},
        show=_pool,
        open_world=True,
    ),
    tools.Tool(
        name="system_list_instance_pools",
        about="List pools with their counts.",
        input=v.Input, output=PoolList, action="pool.list", show=lambda found, *_: v.cut("instance_pools", map(vocabulary.describe, found)),
    ),
    tools.Tool(
        name="system_get_instance_pool",
        about="Show a pool with its counts, members, claims and problems.",
        input=asks.ById, output=PoolWithMembers, action="pool.show", given=_by_id, show=_pool_with_members,
    ),
    tools.Tool(
        name="system_update_instance_pool",
        about="Change a pool: its sizes, template, settings or status. A person confirms changes that end members or claims.",
        input=asks.PoolUpdate, output=PoolAnswer, action="pool.update",
        given=lambda asked: {"name": asked.id, "change": _change(asked)},
        show=_pool,
        destructive=True, idempotent=True, open_world=True,
    ),
    tools.Tool(
        name="system_acquire_pooled_instance",
        about="Claim one ready instance of a pool, the oldest first. NoReadyMembersError if none is ready.",
        input=asks.NewClaim, output=Claimed, action="pool.acquire", given=_claim, show=lambda grants, *_: {**_instance(grants[0].member), "claim_id": grants[0].claim.id},
    ),
    tools.Tool(
        name="system_get_instance",
        about="Show an instance with its claims, also after its end.",
        input=asks.InstanceId, output=InstanceWithPast, action="pool.show_member",
        given=lambda asked: {"member_id": asked.id}, show=lambda found, *_: {**_instance(found.member), "claims": _claims(found.claims)},
    ),
    tools.Tool(
        name="system_terminate_instance",
        about="Terminate an instance and end its claim; the reaper launches a replacement. A person confirms it.",
        input=asks.InstanceId, output=InstanceAnswer, action="pool.terminate",
        given=lambda asked: {"member_id": asked.id, "confirmed": False}, show=_instance,
        destructive=True, idempotent=True, open_world=True,
    ),
    tools.Tool(
        name="system_return_pooled_instance",
        about="End the claim on an instance. It is ready again only if the pool allows reuse, else it is replaced. "
        "A person confirms it for the claim of another caller.",
        input=asks.Returned, output=InstanceAnswer, action="pool.return_member",
        given=lambda asked: {"name": asked.pool_id, "member_id": asked.instance_id}, show=_instance,
        destructive=True, idempotent=True, open_world=True,
    ),
    tools.Tool(
        name="system_drain_instance_pool",
        about="Terminate the unclaimed instances of a pool and launch no more; claimed ones keep running. A person confirms it.",
        input=asks.ById, output=Drained, action="pool.drain",
        given=lambda asked: {"name": asked.id, "confirmed": False}, show=_drained,
        destructive=True, idempotent=True, open_world=True,
    ),
    tools.Tool(
        name="system_delete_instance_pool",
        about="Delete a pool for good, once it has no members. A person confirms it.",
        input=asks.ById, output=v.record("Deleted", count="deleted"), action="pool.delete", given=_by_id,
        destructive=True, idempotent=True,
    ),
    tools.Tool(
        name="system_replenish_instance_pool",
        about="Launch the missing members of a pool now.",
        input=asks.ById, output=v.record("Launched", count="launched"), action="pool.replenish", given=_by_id,
        idempotent=True, open_world=True,
    ),
    tools.Tool(
        name="system_recycle_pool",
        about="Terminate the stale members of a pool now, and retry failed terminations.",
        input=asks.ById, output=v.record("Recycled", count="changed"), action="pool.recycle", given=_by_id,
        destructive=True, idempotent=True, open_world=True,
    ),
    tools.Tool(
        name="system_provision_instance",
        about="Launch one instance without a pool, for persistent work. It ends with release_cluster, or with its lease.",
        input=asks.NewInstance, output=NewInstanceAnswer, action="cluster.create", given=_order,
        show=_new_instance, open_world=True,
    ),
    tools.Tool(
        name="system_cancel_task",
        about="Cancel the stalled launch or teardown of an instance, by its task_id.",
        input=asks.TaskId, output=InstanceAnswer, action="pool.cancel",
        given=lambda asked: {"task": asked.id}, show=_instance,
        destructive=True, idempotent=True,
    ),
    tools.Tool(
        name="provision_cluster",
        about="Launch many instances at once without a pool, all or at_least of them. They end with release_cluster, "
        "or with their lease. A person confirms more than 20.",
        input=asks.NewCluster, output=ClusterAnswer, action="cluster.create", given=_order, show=_cluster,
        open_world=True,
    ),
    tools.Tool(
        name="cancel_cluster",
        about="Cancel a cluster that is still assembling, and terminate its instances. A person confirms it for the cluster "
        "of another caller.",
        input=asks.OfCluster, output=ClusterAnswer, action="cluster.cancel", given=_of_cluster, show=_cluster,
        destructive=True, idempotent=True, open_world=True,
    ),
    tools.Tool(
        name="release_cluster",
        about="Give a cluster back: its claims end, and its instances are terminated. A person confirms it.",
        input=asks.OfCluster, output=ClusterAnswer, action="cluster.release", given=_of_cluster, show=_cluster,
        destructive=True, idempotent=True, open_world=True,
    ),
    tools.Tool(
        name="recent_events",
        about="List what happened in pools, the newest first: launches, failures with their reason, claims, decisions.",
        input=asks.EventsWanted, output=PoolEvents, answer=_recent_events,
    ),
    tools.Tool(
        name="attribute_failure",
        about="Explain why a pool, an instance or a claim is not as it should be, or why a claim found no ready instance.",
        input=asks.Failed, output=Attribution, action="pool.explain",
        given=lambda asked: {"name": asked.id}, show=_attribution, open_world=True,
    ),
    tools.Tool(
        name="pool_size",
        about="Propose a target_size for a peak claim rate C and a warm-up W, with its miss rate and idle cost.",
        input=asks.Demand, output=PoolSize, answer=_size,
    ),
)  # fmt: skip
