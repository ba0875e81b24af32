"""To what a failure is attributed: records in, cause, evidence and next command out. Pure.

No sentence contains text of hosts, providers or callers: that stays in `host_text` and `console`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING

from overnight.model.pool import (
    IN_USE,
    Claim,
    MemberDetails,
    MemberState,
    PoolDetails,
    PoolEvent,
    PoolReport,
    Problem,
    Reason,
)
from overnight.model.pool_explanation import Cause, Evidence, Explanation, Source, Subject
from overnight.model.text import plural
from overnight.model.times import MINUTE_US, SECOND_US
from overnight.pools import decisions, misses, problems

if TYPE_CHECKING:
    from overnight.model.cluster import Cluster

CONSOLE = "member_console"
State = MemberState
INTENDED = (
    "", "claimed", "phase_ready", "returned", "released", "cancelled", "terminated", "forgotten", "operator",
    "pool_draining", "pool_shrunk", "template_changed", "ready_ttl", "not_in_inventory", "claims_ended",
)  # fmt: skip
LOST = (Reason.MACHINE_GONE, Reason.SPOT_INTERRUPTED, Reason.TERMINATED_ELSEWHERE, Reason.SHUT_DOWN_FROM_INSIDE, Reason.MAINTENANCE)  # fmt: skip
CAUSES: dict[str, Cause] = {
    **dict.fromkeys(Reason, Cause.PROVIDER_FAILED),
    "launch_lost": Cause.PROVIDER_FAILED,
    **dict.fromkeys(LOST, Cause.MACHINE_LOST),
    Reason.QUOTA: Cause.QUOTA_EXHAUSTED,
    Reason.CAPACITY: Cause.CAPACITY_EXHAUSTED,
    Reason.TEMPLATE_INVALID: Cause.TEMPLATE_MISSING,
    Reason.TEMPLATE_NOT_FOUND: Cause.TEMPLATE_MISSING,
    "module_pull_failed": Cause.TEMPLATE_MISSING,
    **dict.fromkeys(problems.BOOTSTRAP_FAILURES, Cause.BOOTSTRAP_FAILED),
    "bootstrap_token_expired": Cause.TOKEN_EXPIRED,
    "heartbeat_stale": Cause.HEARTBEAT_LOST,
    **dict.fromkeys(("assembly_timeout", "still_warming"), Cause.STILL_WARMING),
    **dict.fromkeys(("none_ready", "callers_ahead"), Cause.CLAIMS_TOO_FAST),
    "at_maximum": Cause.AT_MAXIMUM,
    "reaper_not_running": Cause.REAPER_NOT_RUNNING,
    **dict.fromkeys(("lease_expired", "claimed_ttl"), Cause.LEASE_EXPIRED),
    **dict.fromkeys(INTENDED, Cause.ENDED_AS_INTENDED),
}
# Problems of a pool; the others depend on its state: `_cause_of`.
PROBLEMS: dict[str, Cause] = {
    "reaper_not_running": Cause.REAPER_NOT_RUNNING,
    "host_not_served": Cause.TEARDOWN_STALLED,
    "abandoned": Cause.TEARDOWN_STALLED,
    "ending": Cause.TEARDOWN_STALLED,
    "claims_remain": Cause.CLAIMS_RUNNING,
    "held_at_max": Cause.AT_MAXIMUM,
    "claims_oscillate": Cause.SIZE_TOO_TIGHT,
    "too_small": Cause.CLAIMS_TOO_FAST,
    "none_ready": Cause.STILL_WARMING,
    "not_active": Cause.NOT_ACTIVE,
    "claim_stale": Cause.CLAIMS_RUNNING,
    "orphans": Cause.TEARDOWN_STALLED,
    "kept_to_look_at": Cause.HELD_FOR_INSPECTION,
    "too_large": Cause.SIZE_TOO_LARGE,
}
# Of a member or claim: what happened, and the command to run next.
TEXTS: dict[Cause, tuple[str, str]] = {
    Cause.NONE: ("nothing has failed", "overnight pool show {pool}"),
    Cause.QUOTA_EXHAUSTED: ("the quota of the provider is used up", "raise the quota or lower --max, then: `overnight pool update {pool} --close-breaker`"),
    Cause.CAPACITY_EXHAUSTED: ("the provider has no machine of this kind left", "`overnight pool update {pool} --prefer-region NAME`, or --instance-type NAME"),
    Cause.TEMPLATE_MISSING: ("the template, or a module that it names, does not exist", "fix the template, then: `overnight pool update {pool} --template NAME`"),
    Cause.PROVIDER_FAILED: ("the provider failed", "check the provider's console, then: `overnight pool update {pool} --close-breaker`"),
    Cause.BOOTSTRAP_FAILED: ("the machine came up, but did not become ready", "fix the template, then: `overnight pool update {pool} --close-breaker`"),
    Cause.TOKEN_EXPIRED: ("the bootstrap token expired before the agent used it", "boot faster, or: `overnight pool update {pool} --set bootstrap_token_seconds=3600`"),
    Cause.STILL_WARMING: ("it is still warming", "wait, or pre-bake the image; what that saves: `overnight pool size --pool {pool}`"),
    Cause.TEARDOWN_STALLED: ("the provider does not terminate its machine", "terminate it at the provider, then: `overnight pool terminate {member}`; to stop trying: `overnight pool cancel {member}:terminate`"),
    Cause.REAPER_NOT_RUNNING: ("no reaper is running", "overnight pool serve"),
    Cause.HEARTBEAT_LOST: ("its agent stopped reporting", "check that the machine reaches the endpoint of the reaper"),
    Cause.MACHINE_LOST: ("its machine is gone, and overnight did not terminate it", "find its termination in the provider's console"),
    Cause.LEASE_EXPIRED: ("its lease ended and was not renewed", "claim again with a longer --lease, and renew it in time"),
    Cause.HELD_FOR_INSPECTION: ("it is cordoned", "overnight pool uncordon {member}"),
    Cause.ENDED_AS_INTENDED: ("it ended as intended", "overnight pool member {member}"),
    Cause.AT_MAXIMUM: ("the pool was at its maximum", "raise it: `overnight pool update {pool} --max N`"),
    Cause.CLAIMS_TOO_FAST: ("no member became ready in time", "overnight pool size --pool {pool}"),
    Cause.UNKNOWN: ("the record names a reason that overnight does not know", "overnight pool member {member}"),
}  # fmt: skip
# Of a claim that got no member, where the text above is about one member.
MISSED = {
    Cause.STILL_WARMING: "its members were still warming",
    Cause.HEARTBEAT_LOST: "the agents of its ready members had stopped reporting",
    Cause.CLAIMS_TOO_FAST: "its members were claimed faster than they came up",
}
SOURCES = {
    "member_enrolled": Source.AGENT,
    "member_ready": Source.AGENT,
    "member_launched": Source.PROVIDER,
    "terminate_failed": Source.PROVIDER,
    "member_missing": Source.PROVIDER,
    "member_found": Source.PROVIDER,
    "member_claimed": Source.CALLER,
    "waiter_queued": Source.CALLER,
    "waiter_left": Source.CALLER,
    "claim_missed": Source.CALLER,
    "claim_refused": Source.CALLER,
}
# Events whose detail overnight wrote; that of member_errored may be a host's, whatever its reason.
OURS = ("member_warming", "member_draining", "member_abandoned", "launch_skipped", "breaker_opened", "cluster_held")  # fmt: skip
# What happens in every pool, and explains nothing about one.
ROUTINE = ("member_warming", "member_launched", "member_enrolled", "member_ready", "member_claimed", "member_gone", "claim_ended", "waiter_queued", "claim_missed")  # fmt: skip


def explain_pool(report: PoolReport, now_us: int) -> Explanation:
    """Explain a pool by the problem that explains most; the others are named."""
    details, order = report.details, list(Cause)
    found = [(_cause_of(problem, details, now_us), problem) for problem in report.problems]
    found.sort(key=lambda pair: order.index(pair[0]))
    name = details.pool.name
    if not found:
        counts = details.counts
        summary = f"nothing is wrong: {counts.ready} ready, {counts.warming} warming, {counts.claimed} claimed"
        return _explanation(Subject.POOL, name, name, Cause.NONE, summary)
    cause, first = found[0]
    events, summary = _unusual(details.events), f"{first.what}: {first.why}"
    explained = _explanation(Subject.POOL, name, name, cause, summary, events, first.todo)
    rows = (
        Evidence(
            at_us=now_us, source=Source.REAPER, what=p.name, detail=p.why, host_text=p.host_text
        )
        for _, p in found
    )
    others = tuple(dict.fromkeys(other for other, _ in found if other is not cause))
    return dataclasses.replace(explained, evidence=(*explained.evidence, *rows), others=others)


def _cause_of(problem: Problem, details: PoolDetails, now_us: int) -> Cause:
    pool, counts = details.pool, details.counts
    failed = CAUSES.get(pool.last_failure, Cause.BOOTSTRAP_FAILED)
    match problem.name:
        case "breaker_open" | "launches_fail":
            return failed
        case "slow_warming":
            slow = (m for m in details.members if problems.is_slow(m, now_us))
            launched = all(member.machine_id is not None for member in slow)
            return Cause.BOOTSTRAP_FAILED if launched else Cause.PROVIDER_FAILED
        case "none_ready" if not counts.warming:
            if counts.members >= pool.max_size:
                return Cause.AT_MAXIMUM
            return failed if pool.failures else Cause.STILL_WARMING
        case "too_small" if counts.warming and not details.claims:
            return Cause.STILL_WARMING  # no claim has emptied it
    return PROBLEMS[problem.name]


def explain_member(
    details: MemberDetails, now_us: int, *, token_expired: bool, reaper_us: int | None
) -> Explanation:
    """Explain what became of a member, from its state, its reason and its events."""
    member = details.member
    reason = member.reason
    if member.gone_us is not None and member.state not in (State.DRAINING, State.ERRORED):
        # It was warming or in use when its machine vanished: only the event has the reason.
        reason = next((e.reason for e in details.events if e.kind == "member_gone"), reason)
    cause = CAUSES.get(reason)
    if cause is None:  # a word of the template's readiness command
        failed = any(event.kind == "member_errored" for event in details.events)
        cause = Cause.BOOTSTRAP_FAILED if failed else Cause.UNKNOWN
    summary = ""
    reaped = problems.is_reaped(reaper_us, now_us)
    # An attempt is counted before it is made.
    stalled = any(event.kind == "terminate_failed" for event in details.events)
    if member.gone_us is not None:
        pass
    elif member.abandoned_us is not None or stalled:
        cause = Cause.TEARDOWN_STALLED
        summary = f"{plural(member.attempts, 'attempt')} to terminate its machine failed"
    elif member.cordoned:
        cause = Cause.HELD_FOR_INSPECTION
    elif member.state is State.WARMING:
        age = (now_us - member.warming_started_us) // SECOND_US
        cause = Cause.STILL_WARMING
        summary = f"it has been warming for {age} s"
        if problems.is_slow(member, now_us):
            cause = Cause.BOOTSTRAP_FAILED
            summary += f", more than {problems.SLOW_WARMING_US // MINUTE_US} min"
        if member.machine_id is None:
            summary += "; the provider has not answered its launch"
            cause = Cause.PROVIDER_FAILED if cause is Cause.BOOTSTRAP_FAILED else cause
            cause = cause if reaped else Cause.REAPER_NOT_RUNNING
        elif member.beat_us is None:
            summary += "; its agent has not enrolled"
            cause = Cause.TOKEN_EXPIRED if token_expired else cause
        else:
            summary += "; its agent has enrolled, but is not ready"
    elif member.state in IN_USE:
        silent = (now_us - member.heard_us) // SECOND_US
        stale = silent >= details.stale_after_seconds
        cause = Cause.HEARTBEAT_LOST if stale else Cause.NONE
        summary = f"its agent has been silent for {silent} s" if stale else f"it is {member.state}"
    elif not reaped:
        cause = Cause.REAPER_NOT_RUNNING
        summary = "it is to be terminated, but no reaper is running"
    return _explanation(
        Subject.MEMBER, member.id, details.pool, cause, summary, details.events, member_id=member.id
    )


def explain_claim(claim: Claim, details: MemberDetails) -> Explanation:
    """Explain why a claim ended, or that it is open."""
    events = [e for e in details.events if e.claim_id in ("", claim.id)]
    cause = CAUSES.get(claim.release_reason, Cause.UNKNOWN)
    summary = ""
    if claim.released_us is None:
        cause = Cause.LEASE_EXPIRED if claim.stale_us is not None else Cause.NONE
        summary = "it is open, without a lease, and looks forgotten" if claim.stale_us else "it is open"  # fmt: skip
    return _explanation(
        Subject.CLAIM, claim.id, details.pool, cause, summary, events, member_id=claim.member_id
    )


def explain_request(name: str, pool: str, events: Sequence[PoolEvent]) -> Explanation:
    """Explain why a caller left the queue without a member, from what the pool did meanwhile, newest first."""
    left = any(event.kind == "waiter_left" for event in events)
    failed = next((event for event in events if event.kind == "member_errored"), None)
    full = any(event.reason == decisions.SkipReason.AT_MAXIMUM for event in events)
    cause = Cause.AT_MAXIMUM if full else Cause.CLAIMS_TOO_FAST
    if failed is not None:
        cause = CAUSES.get(failed.reason, Cause.BOOTSTRAP_FAILED)
    where = "it left" if left else "it waits in"
    summary = f"{where} the queue without a member: {TEXTS[cause][0]}"
    return _explanation(Subject.REQUEST, name, pool, cause, summary, events)


def explain_miss(missed: PoolEvent, pool: str, events: Sequence[PoolEvent]) -> Explanation:
    """Explain why a claim got no member, from what was recorded at that moment; events newest first."""
    cause = CAUSES.get(missed.reason, Cause.BOOTSTRAP_FAILED)
    numbers, _, _ = missed.detail.partition(misses.BY)
    why = MISSED.get(cause, TEXTS[cause][0])
    summary = f"no member was ready: {why} ({numbers})"
    return _explanation(Subject.CLAIM, missed.claim_id, pool, cause, summary, events)


def explain_cluster(cluster: Cluster, events: Sequence[PoolEvent]) -> Explanation:
    """Explain why a cluster ended."""
    cause = CAUSES.get(cluster.reason, Cause.BOOTSTRAP_FAILED)
    failed = next((event.member_id for event in events if event.kind == "member_errored"), "")
    todo = f"overnight pool explain {failed}" if failed else f"overnight cluster show {cluster.id}"
    held = "was held" if cluster.held_us else f"was not assembled, all or at least {cluster.at_least}"  # fmt: skip
    summary = f"the cluster {held}, and has ended: {TEXTS[cause][0]}"
    return _explanation(
        Subject.POOL, cluster.id, cluster.id, cause, summary, _unusual(events), todo
    )


def _explanation(
    subject: Subject,
    name: str,
    pool: str,
    cause: Cause,
    summary: str = "",
    events: Sequence[PoolEvent] = (),
    todo: str = "",
    *,
    member_id: str = "",
) -> Explanation:
    text, usual = TEXTS.get(cause, ("", ""))
    return Explanation(
        subject=subject, name=name, pool=pool, cause=cause, summary=summary or text,
        todo=todo or usual.format(pool=pool, member=member_id), evidence=_rows(events),
    )  # fmt: skip


def _unusual(events: Sequence[PoolEvent]) -> list[PoolEvent]:
    return [event for event in events if event.kind not in ROUTINE]


def _rows(events: Sequence[PoolEvent]) -> tuple[Evidence, ...]:
    """Return events, newest first, as evidence, oldest first; the console is shown apart."""
    return tuple(_row(event) for event in reversed(events) if event.kind != CONSOLE)


def _row(event: PoolEvent) -> Evidence:
    detail, text = (event.detail, "") if event.kind in OURS else ("", event.detail)
    if event.kind == "claim_refused":
        detail, _, text = event.detail.partition(misses.BY)
    return Evidence(
        at_us=event.at_us, source=_source(event), what=event.kind, reason=event.reason,
        detail=detail, host_text=text,
    )  # fmt: skip


def _source(event: PoolEvent) -> Source:
    if event.kind == "member_errored":
        if event.reason in list(Reason):
            return Source.PROVIDER
        timed_out = event.reason in ("never_enrolled", "warming_timeout", "launch_lost")
        return Source.REAPER if timed_out else Source.AGENT
    if event.reason in ("operator", "terminated", "forgotten", "cancelled"):
        return Source.OPERATOR
    return SOURCES.get(event.kind, Source.REAPER)
