"""What is wrong with a pool, why, and the command that comes next: the rows of the runbook's table.

An alert is what somebody is to be woken for; the rest explains.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import TYPE_CHECKING

from overnight.model.pool import MemberState
from overnight.pools import decisions

if TYPE_CHECKING:
    from overnight.pools import admin

__all__ = ["Problem", "find_problems"]

SECOND = decisions.SECOND
REAPER_LATE_US = 180 * SECOND
SLOW_WARMING_US = 600 * SECOND
CYCLING_US = 3600 * SECOND
State = MemberState


@dataclasses.dataclass(frozen=True)
class Problem:
    """One thing; `alert` when claims fail of it, or money is lost."""

    name: str
    what: str
    why: str
    todo: str
    alert: bool = False


def find_problems(
    shown: admin.PoolDetails, *, now_us: int, reaper_us: int | None, orphans: int = 0
) -> tuple[Problem, ...]:
    """Everything that explains why a pool is not as it should be; the worst first."""
    found = [
        *_reaper(shown, now_us, reaper_us),
        *_breaker(shown, now_us),
        *_empty(shown),
        *_warming(shown, now_us),
        *_endings(shown),
        *_held(shown),
        *_orphans(shown, orphans),
        *_claims(shown, now_us),
        *_sizing(shown, now_us),
    ]
    return tuple(sorted(found, key=lambda t: not t.alert))


def _reaper(shown: admin.PoolDetails, now: int, seen: int | None) -> Iterable[Problem]:
    """'target_size increase doesn't replenish'."""
    if seen is None or now - seen > REAPER_LATE_US:
        when = "has never run" if seen is None else f"was last seen {(now - seen) // SECOND} s ago"
        yield Problem(
            "reaper_not_running",
            "nobody keeps this pool",
            f"the reaper {when}",
            "overnight pool serve   (or, once: overnight pool replenish " + shown.pool.name + ")",
            alert=True,
        )


def _breaker(shown: admin.PoolDetails, now: int) -> Iterable[Problem]:
    """'Pool stuck at 0 members'."""
    pool = shown.pool
    if pool.breaker_opened_us is not None:
        yield Problem(
            "breaker_open",
            "nothing is launched any more",
            f"{pool.failures} failures in a row, the last: {pool.last_failure}",
            f"mend that, then: overnight pool update {pool.name} --close-breaker",
            alert=True,
        )
    elif pool.failures and pool.refills:
        left = max(0, pool.launch_not_before_us - now) // SECOND
        yield Problem(
            "launches_fail",
            f"{pool.failures} launches failed in a row" if pool.failures > 1 else "a launch failed",
            pool.last_failure,
            f"it is tried again in {left} s; after {pool.settings.breaker_failures} the breaker opens",
        )


def _empty(shown: admin.PoolDetails) -> Iterable[Problem]:
    """'NoReadyMembersError despite members in the dashboard'."""
    pool, held = shown.pool, shown.counts
    serving = sum(m.serves and m.state is State.READY for m in shown.members)
    if not pool.refills:
        if held.waiting:
            yield Problem(
                "not_active",
                f"{held.waiting} are waited for in a pool that gives none out",
                f"it is {pool.status}",
                f"overnight pool update {pool.name} --resume",
            )
        return
    if pool.target_size and not serving:
        if held.members >= pool.max_size and not held.warming:
            why = f"all {held.members} members of at most {pool.max_size} are in use"
            todo = f"overnight pool update {pool.name} --max {pool.max_size + pool.target_size}"
        elif held.warming:
            why = f"all {held.warming} are still warming"
            todo = f"wait, or keep more: overnight pool update {pool.name} --target {pool.target_size + held.warming}"
        elif pool.breaker_opened_us is not None:
            why = f"its breaker is open: {pool.last_failure}"
            todo = f"overnight pool update {pool.name} --close-breaker, once that is mended"
        elif pool.failures:
            why = f"launches fail: {pool.last_failure}"
            todo = f"mend that; to try at once: overnight pool update {pool.name} --close-breaker"
        else:
            why = "none has come up yet"
            todo = f"overnight pool replenish {pool.name}"
        yield Problem(
            "none_ready",
            f"no member is ready (target {pool.target_size}): claims fail",
            why,
            todo,
            alert=True,
        )


def _warming(shown: admin.PoolDetails, now: int) -> Iterable[Problem]:
    """'Members stuck warming'."""
    for member in shown.members:
        age = now - member.warming_started_us
        if member.state is not State.WARMING or age < SLOW_WARMING_US:
            continue
        if member.machine_id is None:
            why = "its launch has not been answered"
        elif member.beat_us is None:
            why = "its agent has never enrolled: it cannot reach the endpoint, or never started"
        else:
            why = f"its agent was last heard {(now - member.beat_us) // SECOND} s ago, and is not ready"
        yield Problem(
            "slow_warming",
            f"{member.id} has been warming for {age // SECOND // 60} min",
            why,
            f"its machine is {member.machine_id}; overnight pool terminate {member.id}   replaces it",
        )


def _endings(shown: admin.PoolDetails) -> Iterable[Problem]:
    """'Pool stuck draining'."""
    name = shown.pool.name
    for member in shown.members:
        if member.abandoned_us is not None:
            yield Problem(
                "abandoned",
                f"{member.id} would not end: its machine {member.machine_id} may still cost money",
                f"{member.attempts} attempts failed; overnight pool show {name} lists them",
                f"end it at the provider, then: overnight pool terminate {member.id}",
                alert=True,
            )
        elif member.state not in (State.DRAINING, State.ERRORED):
            continue
        elif member.cordoned and not shown.pool.winds_down:
            yield Problem(
                "kept_to_look_at",
                f"{member.id} is not ended",
                f"it is cordoned; its own end was: {member.reason}",
                f"overnight pool uncordon {member.id}   lets it go",
            )
        elif member.attempts:
            yield Problem(
                "ending",
                f"{member.id} does not end",
                f"attempt {member.attempts} of {shown.pool.settings.terminate_attempts} failed",
                f"it is tried again; now: overnight pool terminate {member.id}",
            )
    if shown.pool.winds_down and shown.counts.claimed:
        holders = {c.member_id: c for c in shown.claims if c.released_us is None}
        named = ", ".join(sorted(c.acquired_by or c.id for c in holders.values()))
        yield Problem(
            "claims_remain",
            f"{shown.counts.claimed} claimed members run on",
            f"held by {named}",
            "overnight pool return CLAIM, or overnight pool terminate MEMBER",
        )


def _held(shown: admin.PoolDetails) -> Iterable[Problem]:
    """The policy wants more than it may have."""
    pool, policy = shown.pool, shown.autoscale
    if policy is None or not pool.refills:
        return
    most = pool.max_size if policy.max_size is None else min(policy.max_size, pool.max_size)
    if policy.decided_us and policy.wanted_size > most == pool.target_size:
        yield Problem(
            "held_at_max",
            f"{policy.wanted_size} members are wanted, and {most} is the most",
            policy.reason,
            f"overnight pool autoscale {pool.name} --max {policy.wanted_size}"
            + (
                f", after: overnight pool update {pool.name} --max {2 * policy.wanted_size}"
                if policy.wanted_size > pool.max_size
                else ""
            ),
        )


def _orphans(shown: admin.PoolDetails, orphans: int) -> Iterable[Problem]:
    if orphans:
        yield Problem(
            "orphans",
            f"{orphans} machines of {shown.pool.provider} belong to no member, and would not end",
            "the provider refused to end them; they may cost money",
            "end them at the provider; the sweep looks again with every tick",
            alert=True,
        )


def _claims(shown: admin.PoolDetails, now: int) -> Iterable[Problem]:
    pool = shown.pool
    most = pool.settings.lease_max_seconds
    for claim in shown.claims:
        if claim.stale_us is not None and claim.released_us is None:
            keep = f"overnight pool renew {claim.id}"
            if now - claim.acquired_us >= most * SECOND:  # by itself that would be refused
                keep = f"overnight pool update {pool.name} --set lease_max_seconds={2 * most}, then {keep}"
            yield Problem(
                "claim_stale",
                f"claim {claim.id} of {claim.acquired_by or 'nobody named'} looks forgotten",
                f"it is older than {pool.settings.claimed_ttl_seconds} s and has no lease",
                f"overnight pool return {claim.id}, or keep it: {keep}",
                alert=True,
            )


def _sizing(shown: admin.PoolDetails, now: int) -> Iterable[Problem]:
    """'Members continuously cycle', 'the claim metric oscillates'."""
    pool = shown.pool
    recent = [c for c in shown.claims if now - c.acquired_us < CYCLING_US]
    waited = [c for c in recent if c.waited_us > 0]
    if pool.refills and recent and (shown.counts.waiting or len(waited) * 5 >= len(recent)):
        yield Problem(
            "too_small",
            f"{len(waited)} of the last {len(recent)} claims had to wait",
            "members are claimed faster than they come up",
            f"overnight pool size --pool {pool.name}",
        )
