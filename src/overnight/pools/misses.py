"""Why a request gets no member now: a pool at one moment in; reason, numbers and error out. Pure."""

from __future__ import annotations

import dataclasses
import hashlib

from overnight.model.pool import MemberState, Request
from overnight.model.times import SECOND_US
from overnight.pools import decisions, demand, pool_errors, problems

BY = "; by "  # in the detail of an event: the caller wrote what follows


@dataclasses.dataclass(frozen=True)
class Miss:
    reason: str  # a word, for the event that explains it later
    numbers: str
    error: pool_errors.PoolError


def name(pool_id: str, request: Request, now_us: int) -> str:
    """Return the id of a missed claim: a caller that polls has one for the claims of a burst."""
    same = (pool_id, request.acquired_by, now_us // demand.TOGETHER_US)
    return f"c-{hashlib.sha256(repr(same).encode()).hexdigest()[:12]}"


def explain(
    view: decisions.View, request: Request, request_id: str, ahead: int, reaper_us: int | None
) -> Miss:
    """Explain why a pool has no member for a request, of which callers in the queue want `ahead` first."""
    pool, counts, now = view.pool, decisions.counts(view), view.now_us
    numbers = (
        f"{request.count} wanted, {counts.ready} ready, {counts.warming} warming, {counts.claimed} claimed; "
        f"target {pool.target_size}, {counts.members} of at most {pool.max_size} members"
    )
    ready = [m for m in view.members if m.state is MemberState.READY and m.serves]
    limit = pool.settings.heartbeat_stale_after_seconds * SECOND_US
    ages = ((member.id, now - member.heard_us) for member in ready)
    silent = tuple((member, age / SECOND_US) for member, age in ages if age >= limit)
    if ready and len(silent) == len(ready):
        error = pool_errors.NoLiveReadyMembersError(pool.name, silent, request_id)
        return Miss("heartbeat_stale", numbers, error)
    reaped = problems.is_reaped(reaper_us, now)
    reason, why = "none_ready", "all members are claimed, or none has come up"
    if ready and ahead:
        reason, why = "callers_ahead", f"callers already in the queue asked for {ahead}"
    elif pool.breaker_opened_us is not None:
        reason, why = pool.last_failure, f"the circuit breaker is open: {pool.last_failure}"
    elif not reaped and (counts.warming or counts.members < pool.max_size):
        reason, why = "reaper_not_running", "no reaper is running, which launches members"
    elif counts.warming:
        reason, why = "still_warming", "members are still warming"
    elif counts.members >= pool.max_size:
        reason = decisions.SkipReason.AT_MAXIMUM
        why = f"the pool is at its maximum of {counts.members} members, {counts.claimed} of them claimed"
    elif pool.failures:
        reason, why = pool.last_failure, "launches fail"
    return Miss(
        reason,
        numbers,
        pool_errors.NoReadyMembersError(
            pool.name, target=pool.target_size, ready=counts.ready, warming=counts.warming,
            wanted=request.count, why=why, request_id=request_id, reaped=reaped,
        ),
    )  # fmt: skip
