"""Problems of a pool, each with its reason and the command to run next: the rows of the runbook's table.

An alert is worth a page; the other problems explain.
"""

from __future__ import annotations

import collections
from collections.abc import Iterable

from overnight.model import times
from overnight.model.pool import Member, MemberState, Past, Pool, PoolDetails, Problem, Reason
from overnight.model.text import plural
from overnight.model.times import DAY_US, HOUR_US, MINUTE_US, SECOND_US
from overnight.pools import demand

REAPER_LATE_US = 180 * SECOND_US
SLOW_WARMING_US = 600 * SECOND_US
IDLE = 0.9
# Reasons of failures that overnight itself records; a readiness command may report any other word.
BOOTSTRAP_FAILURES = (
    "unit_failed", "readiness_timeout", "readiness_failed", "bootstrap_failed", "never_enrolled",
    "warming_timeout", "bootstrap_token_expired",
)  # fmt: skip
KNOWN_FAILURES = (*Reason, *BOOTSTRAP_FAILURES, "launch_lost", "module_pull_failed")
State = MemberState


def find_problems(
    details: PoolDetails, *, now_us: int, reaper_us: int | None, past: Past, orphans: int = 0
) -> tuple[Problem, ...]:
    """Return the problems of a pool, alerts first."""
    problems = [
        *_reaper(details, now_us, reaper_us),
        *_breaker(details, now_us),
        *_empty(details, now_us, reaper_us),
        *_warming(details, now_us),
        *_terminations(details),
        *_hosts(details, now_us),
        *_autoscale(details),
        *_orphans(details, orphans),
        *_claims(details, now_us),
    ]
    if is_reaped(reaper_us, now_us):  # otherwise demand is not the reason
        problems += [*_size(details, past), *_bursts(details, past), *_idle(details, past)]
    return tuple(sorted(problems, key=lambda problem: not problem.alert))


def is_reaped(seen_us: int | None, now_us: int) -> bool:
    """Return whether a reaper runs, by its last report."""
    return seen_us is not None and now_us - seen_us <= REAPER_LATE_US


def _reaper(details: PoolDetails, now: int, seen: int | None) -> Iterable[Problem]:
    """'target_size increase doesn't replenish'."""
    if not is_reaped(seen, now):
        when, once = "has never run", ""
        if seen is not None:  # members know where to report to
            when = f"last ran {(now - seen) // SECOND_US} s ago"
            once = f" (or once: `overnight pool replenish {details.pool.name}`)"
        yield Problem(
            "reaper_not_running",
            "no reaper is running for this pool",
            f"the reaper {when}",
            f"`overnight pool serve`{once}",
            alert=True,
        )


def _breaker(details: PoolDetails, now: int) -> Iterable[Problem]:
    """'Pool stuck at 0 members'."""
    pool = details.pool
    if pool.breaker_opened_us is not None:
        yield Problem(
            "breaker_open",
            "the circuit breaker is open: no members are launched",
            f"{pool.failures} launches failed in a row, the last with {_failure(pool)}",
            f"fix the cause, then: `overnight pool update {pool.name} --close-breaker`",
            alert=True,
            host_text=_failure_text(details),
        )
    elif pool.failures and pool.refills:
        left = max(0, pool.launch_not_before_us - now) // SECOND_US
        yield Problem(
            "launches_fail",
            f"{pool.failures} launches failed in a row" if pool.failures > 1 else "a launch failed",
            _failure(pool),
            f"next attempt in {left} s; after {pool.settings.breaker_failures} failures the circuit breaker opens",
            host_text=_failure_text(details),
        )


def _failure(pool: Pool) -> str:
    """Return the reason of the last failure; a word that a host chose is not for a sentence of ours."""
    return pool.last_failure if pool.last_failure in KNOWN_FAILURES else "a reason of its own"


def _failure_text(details: PoolDetails) -> str:
    """Return the text of the provider or of the host about the last failure."""
    reason = details.pool.last_failure
    failed = (e for e in details.events if e.kind == "member_errored" and e.reason == reason)
    detail = next((event.detail for event in failed), "")
    return detail if reason in KNOWN_FAILURES else f"{reason}: {detail}".removesuffix(": ")


def _empty(details: PoolDetails, now: int, seen: int | None) -> Iterable[Problem]:
    """'NoReadyMembersError despite members in the dashboard'; an alert only if it lasts."""
    pool, counts = details.pool, details.counts
    if not pool.refills:
        if counts.waiting:
            yield Problem(
                "not_active",
                f"callers wait for {counts.waiting} members of a pool that serves no claims",
                f"the pool is {pool.status}",
                f"overnight pool update {pool.name} --resume",
            )
        return
    if pool.assembles:
        return  # its members are not for claims
    if pool.target_size and not any(m.serves and m.state is State.READY for m in details.members):
        why, todo = _explain_empty(details, is_reaped=is_reaped(seen, now))
        empty_us = max(0, now - (pool.empty_since_us or now))
        lasts = f" for {_duration(empty_us)}" if empty_us else ""
        yield Problem(
            "none_ready",
            f"no member is ready{lasts} (target {pool.target_size}): claims fail",
            why,
            todo,
            alert=empty_us >= pool.settings.empty_alert_seconds * SECOND_US,
        )


def _explain_empty(details: PoolDetails, *, is_reaped: bool) -> tuple[str, str]:
    pool, counts = details.pool, details.counts
    if counts.members >= pool.max_size and not counts.warming:
        return (
            f"all {counts.members} members are in use, and the maximum is {pool.max_size}",
            f"overnight pool update {pool.name} --max {pool.max_size + pool.target_size}",
        )
    if not is_reaped:
        return "no reaper is running, which launches members", "overnight pool serve"
    if counts.warming:
        target = pool.target_size + counts.warming
        return (
            f"all {counts.warming} members are still warming",
            f"wait, or raise the target: `overnight pool update {pool.name} --target {target}`",
        )
    if pool.breaker_opened_us is not None:
        return (
            f"the circuit breaker is open: {_failure(pool)}",
            f"fix the cause, then: `overnight pool update {pool.name} --close-breaker`",
        )
    if pool.failures:
        return (
            f"launches fail: {_failure(pool)}",
            f"fix the cause; to retry immediately: `overnight pool update {pool.name} --close-breaker`",
        )
    return "no member has come up yet", f"overnight pool replenish {pool.name}"


def is_slow(member: Member, now_us: int) -> bool:
    """Whether a member has been warming for too long."""
    return member.state is State.WARMING and now_us - member.warming_started_us >= SLOW_WARMING_US


def _warming(details: PoolDetails, now: int) -> Iterable[Problem]:
    """'Members stuck warming'."""
    for member in details.members:
        age = now - member.warming_started_us
        if not is_slow(member, now):
            continue
        if member.machine_id is None:
            why = "the provider has not answered its launch"
        elif member.beat_us is None:
            why = "its agent has not enrolled: it cannot reach the endpoint, or did not start"
        else:
            why = f"its agent last reported {(now - member.beat_us) // SECOND_US} s ago, but not ready"
        yield Problem(
            "slow_warming",
            f"{member.id} has been warming for {age // MINUTE_US} min",
            why,
            f"inspect machine {member.machine_id}, or replace it: `overnight pool terminate {member.id}`",
        )


def _terminations(details: PoolDetails) -> Iterable[Problem]:
    """'Pool stuck draining'."""
    name = details.pool.name
    for member in details.members:
        if member.abandoned_us is not None:
            yield Problem(
                "abandoned",
                f"{member.id} could not be terminated: machine {member.machine_id} may still cost money",
                f"{member.attempts} attempts failed; see the events: `overnight pool show {name}`",
                f"terminate it at the provider, then: `overnight pool terminate {member.id}`",
                alert=True,
            )
        elif member.state not in (State.DRAINING, State.ERRORED):
            continue
        elif member.cordoned and not details.pool.winds_down:
            yield Problem(
                "kept_to_look_at",
                f"{member.id} is kept for inspection",
                f"it is cordoned; it was about to end because of {member.reason}",
                f"`overnight pool uncordon {member.id}` terminates it",
            )
        elif member.attempts:
            yield Problem(
                "ending",
                f"{member.id} does not terminate",
                f"attempt {member.attempts} of {details.pool.settings.terminate_attempts} failed",
                f"it is retried; to retry now: `overnight pool terminate {member.id}`",
            )
    if details.pool.winds_down and details.counts.claimed:
        holders = {c.member_id: c for c in details.claims if c.released_us is None}
        names = sorted({c.acquired_by for c in holders.values() if c.acquired_by})
        yield Problem(
            "claims_remain",
            f"{details.counts.claimed} claimed members are still running",
            f"their claims have not ended: {', '.join(sorted(c.id for c in holders.values()))}",
            "`overnight pool return CLAIM`, or `overnight pool terminate MEMBER`",
            host_text=", ".join(names),
        )


def _hosts(details: PoolDetails, now: int) -> Iterable[Problem]:
    """Members that only a reaper on their host can terminate, and it does not."""
    overdue = collections.Counter(
        member.host
        for member in details.members
        if member.host is not None
        and member.state in (State.DRAINING, State.ERRORED)
        and member.abandoned_us is None
        and (details.pool.winds_down or not member.cordoned)
        and now - member.next_attempt_us > REAPER_LATE_US
    )
    for host, number in sorted(overdue.items()):
        yield Problem(
            "host_not_served",
            f"{number} {'member waits' if number == 1 else 'members wait'} to be terminated on {host}",
            "only a reaper on that host and data home can do it, and none has for "
            f"{REAPER_LATE_US // SECOND_US} s",
            f"there: `overnight pool serve`; if the host is gone for good: `overnight pool forget {host}`",
            alert=True,
        )


def _autoscale(details: PoolDetails) -> Iterable[Problem]:
    pool, policy = details.pool, details.autoscale
    if policy is None or not pool.refills:
        return
    most = pool.max_size if policy.max_size is None else min(policy.max_size, pool.max_size)
    if policy.decided_us and policy.wanted_size > most == pool.target_size:
        first = ""
        if policy.wanted_size > pool.max_size:
            first = f"`overnight pool update {pool.name} --max {2 * policy.wanted_size}`, then: "
        yield Problem(
            "held_at_max",
            f"the demand is {policy.wanted_size} members, the maximum is {most}",
            policy.reason,
            f"{first}`overnight pool autoscale {pool.name} --max {policy.wanted_size}`",
        )


def _orphans(details: PoolDetails, orphans: int) -> Iterable[Problem]:
    if orphans:
        yield Problem(
            "orphans",
            f"{orphans} machines of {details.pool.provider} have no member and could not be terminated",
            "the provider refused to terminate them; they may cost money",
            "terminate them at the provider; every tick of the reaper checks again",
            alert=True,
        )


def _claims(details: PoolDetails, now: int) -> Iterable[Problem]:
    pool = details.pool
    most = pool.settings.lease_max_seconds
    for claim in details.claims:
        if claim.stale_us is not None and claim.released_us is None:
            keep = f"`overnight pool renew {claim.id}`"
            if now - claim.acquired_us >= most * SECOND_US:  # otherwise renew would refuse
                keep = f"`overnight pool update {pool.name} --set lease_max_seconds={2 * most}`, then {keep}"
            yield Problem(
                "claim_stale",
                f"claim {claim.id} looks forgotten",
                f"it is older than {pool.settings.claimed_ttl_seconds} s and has no lease",
                f"`overnight pool return {claim.id}`, or keep it: {keep}",
                alert=True,
                host_text=claim.acquired_by,
            )


def _size(details: PoolDetails, past: Past) -> Iterable[Problem]:
    """'Members continuously cycle'."""
    pool, since = details.pool, past.end_us - HOUR_US
    asked, missed, waited = (
        len(demand.after(instants, since))
        for instants in (past.asked_us, past.missed_us, past.waited_us)
    )
    if pool.refills and asked and (details.counts.waiting or (missed + waited) * 5 >= asked):
        todo = f"overnight pool size --pool {pool.name}"
        if len(past.asked_us) < demand.MIN_CLAIMS:  # otherwise it would refuse
            most = demand.most_within(past.asked_us, demand.refill_us(past))
            todo = _raise_target(details, max(pool.target_size + 1, most))
        yield Problem(
            "too_small",
            f"of {asked} claims in the last hour {missed} missed and {waited} had to wait",
            "members are claimed faster than they come up",
            todo,
        )


def _bursts(details: PoolDetails, past: Past) -> Iterable[Problem]:
    """'Pool's claim metric oscillates': the runbook's headroom, for the bursts that were measured."""
    pool, since = details.pool, max(past.unchanged_us, past.end_us - DAY_US)
    asked = demand.after(past.asked_us, since)
    unserved = len(demand.after(past.missed_us, since)) + len(demand.after(past.waited_us, since))
    burst = demand.most_within(asked, demand.TOGETHER_US)
    bursty = demand.is_bursty(asked, since, past.end_us, demand.refill_us(past))
    if pool.refills and bursty and burst > 1 and unserved * 20 >= len(asked):
        todo = _raise_target(details, pool.target_size + 2 * burst)
        if details.autoscale is not None:
            todo = f"overnight pool autoscale {pool.name} --burst {burst}"
        yield Problem(
            "claims_oscillate",
            f"claims come in bursts of up to {burst}; {100 * unserved / len(asked):.0f} % of them missed or waited",
            "a burst empties the pool faster than members come up",
            todo,
        )


def _idle(details: PoolDetails, past: Past) -> Iterable[Problem]:
    """'Pool is consistently >90% idle', and a smaller target would have served every claim."""
    pool, since = details.pool, max(past.begin_us, past.unchanged_us)
    idle = past.ready_us / max(1, past.member_us)
    if not pool.refills or details.autoscale is not None or idle <= IDLE:
        return
    refill = demand.refill_us(past)
    most = demand.most_within(demand.after(past.asked_us, since), refill)
    target = max(pool.min_size, most + 1)  # one to spare
    saved = pool.target_size - target
    if saved > 0 and past.end_us - since >= DAY_US:
        yield Problem(
            "too_large",
            f"members were idle for {100 * idle:.0f} % of the last {_duration(past.end_us - since)}",
            f"at most {plural(most, 'claim')} came while a member is replaced ({_duration(refill)}); the target is {pool.target_size}",
            f"`overnight pool update {pool.name} --target {target}` (saves {plural(saved, 'host')}, {saved * times.MONTH_HOURS:,.0f} host-hours a month)",
        )


def _duration(us: int) -> str:
    return times.format_duration(us / SECOND_US)


def _raise_target(details: PoolDetails, size: int) -> str:
    pool = details.pool
    if details.autoscale is not None:
        return f"overnight pool autoscale {pool.name} --min {size}"
    more = pool.max_size + size - pool.target_size  # claimed members count, too
    return f"overnight pool update {pool.name} --target {size} --max {more}"
