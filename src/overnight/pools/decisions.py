"""What to do with a pool next: its contents and the clock in, instructions out.

Pure, so that every possible pool is a unit test. There are two phases, as in the runbook: `recycle` retires
what is stale, `replenish` says how many to launch. `replenish` is repeated before every launch, under the
pool's lock, so that two control planes cannot launch too many.
"""

from __future__ import annotations

import collections
import dataclasses
import enum
from collections.abc import Iterable, Sequence

from overnight.model.pool import CAPACITY, Claim, Counts, Member, MemberState, Pool, PoolStatus
from overnight.model.times import SECOND_US

State = MemberState


@dataclasses.dataclass(frozen=True, kw_only=True)
class View:
    """A pool at one moment: members that are not gone, open claims, members that callers wait for."""

    pool: Pool
    members: Sequence[Member] = ()
    claims: Sequence[Claim] = ()
    waiting: int = 0
    now_us: int = 0


@dataclasses.dataclass(frozen=True)
class Launch:
    """`trial`: the breaker is open, and one launch tests whether it can close. `why`: the numbers, for its event."""

    count: int
    trial: bool = False
    why: str = dataclasses.field(default="", compare=False)


class SkipReason(enum.StrEnum):
    AT_MAXIMUM = "at_maximum"
    BACKOFF = "launch_backoff"
    ONE_AT_A_TIME = "one_at_a_time"
    BREAKER_OPEN = "breaker_open"


@dataclasses.dataclass(frozen=True)
class Skip:
    """Members are wanted, but not launched now."""

    reason: SkipReason
    why: str = dataclasses.field(default="", compare=False)


@dataclasses.dataclass(frozen=True)
class Retire:
    """Drain an unclaimed member, then terminate it."""

    member_id: str
    reason: str
    why: str = dataclasses.field(default="", compare=False)


@dataclasses.dataclass(frozen=True)
class Fail:
    """Mark a member as errored, then terminate it. `counts`: it counts towards the breaker."""

    member_id: str
    reason: str
    counts: bool = True
    why: str = dataclasses.field(default="", compare=False)


@dataclasses.dataclass(frozen=True)
class Abandon:
    """Report once that every attempt to terminate failed. The row stays: it names the machine."""

    member_id: str


@dataclasses.dataclass(frozen=True)
class FlagClaim:
    """Flag a claim as stale; its member is left alone."""

    claim_id: str
    reason: str


@dataclasses.dataclass(frozen=True)
class EndClaim:
    """End a claim and terminate its member."""

    claim_id: str
    member_id: str
    reason: str


Instruction = Retire | Fail | Abandon | FlagClaim | EndClaim


def counts(view: View) -> Counts:
    """Count the members by state; one that is held back is not capacity."""
    number = collections.Counter(
        str(member.state)
        for member in view.members
        if member.state not in CAPACITY or member.serves
    )
    return Counts(
        **number,
        held_back=len(view.members) - number.total(),
        cordoned=sum(member.cordoned for member in view.members),
        waiting=view.waiting,
        deficit=max(0, view.pool.target_size - sum(member.serves for member in view.members)),
    )


def is_empty(view: View) -> bool:
    """Whether no member is ready although some should be: claims fail."""
    ready = any(member.serves and member.state is State.READY for member in view.members)
    is_active = view.pool.status is PoolStatus.ACTIVE
    return is_active and view.pool.target_size > 0 and not ready


def queue_key(pool: Pool, priority: int, queued_us: int) -> tuple[int, int]:
    """Return the sort key of a caller in the queue; it does not change while the caller waits."""
    # A step of priority is worth this much time in the queue, so no caller waits for ever.
    ageing = pool.settings.priority_ageing_seconds
    return (0 if ageing else -priority), queued_us - priority * ageing * SECOND_US


def retry_after(pool: Pool, attempts: int) -> int:
    """Return the seconds until the next attempt to terminate: doubled each time, with a cap."""
    settings = pool.settings
    limit = max(1, settings.terminate_backoff_max_seconds)
    return _doubled(settings.terminate_backoff_seconds, attempts, limit)


def _doubled(first: int, times: int, limit: int) -> int:
    return int(min(limit, first * 2 ** min(max(0, times - 1), 40)))


def _is_ahead(until_us: int, now_us: int, max_seconds: int) -> bool:
    """Whether `until_us` is still ahead; further than any wait means that the clock was set back."""
    # Twice the wait, because the clocks of two control planes differ a little.
    return now_us < until_us <= now_us + 2 * max_seconds * SECOND_US


def after_failure(pool: Pool, reason: str, now_us: int) -> Pool:
    """Return the pool after another failed launch: backed off, breaker open after enough of them."""
    failures = pool.failures + 1
    settings = pool.settings
    wait = _doubled(settings.launch_backoff_seconds, failures, settings.launch_backoff_max_seconds)
    return dataclasses.replace(
        pool,
        failures=failures,
        last_failure=reason,
        launch_not_before_us=now_us + wait * SECOND_US,
        breaker_opened_us=now_us
        if failures >= settings.breaker_failures
        else pool.breaker_opened_us,
    )


def after_success(pool: Pool) -> Pool:
    """Return the pool after a member came up: the failures are reset."""
    return dataclasses.replace(
        pool, failures=0, last_failure="", launch_not_before_us=0, breaker_opened_us=None
    )


def replenish(view: View) -> Launch | None:
    """Return how many to launch now, None for none. Waiting callers count as demand."""
    decision = plan_launch(view)
    return decision if isinstance(decision, Launch) else None


def plan_launch(view: View) -> Launch | Skip | None:
    """Return how many to launch now, or why none of those that are wanted; None if none is."""
    pool = view.pool
    usable = sum(m.serves and m.generation >= pool.generation for m in view.members)
    wanted = pool.target_size + view.waiting - usable
    if not pool.refills or wanted <= 0:
        return None
    why = f"{usable} usable of target {pool.target_size}"
    why += f", {view.waiting} waited for" if view.waiting else ""
    room = pool.max_size - len(view.members)
    if room <= 0:
        return Skip(SkipReason.AT_MAXIMUM, f"{why}; {len(view.members)} of at most {pool.max_size}")
    why += f"; {pool.failures} failed in a row" if pool.failures else ""
    limit = pool.settings.launch_backoff_max_seconds
    waits = _is_ahead(pool.launch_not_before_us, view.now_us, limit)
    if pool.breaker_opened_us is not None:
        retry = pool.settings.breaker_retry_seconds
        # abs(): a time in the future means that the clock was set back.
        due = retry and abs(view.now_us - pool.breaker_opened_us) >= retry * SECOND_US
        if waits or not due or is_warming(view):
            return Skip(SkipReason.BREAKER_OPEN, why)
        return Launch(1, trial=True, why=why)
    if waits:
        left = (pool.launch_not_before_us - view.now_us) // SECOND_US
        return Skip(SkipReason.BACKOFF, f"{why}, next attempt in {left} s")
    # After a failure one at a time until one comes up, to spare the provider.
    if pool.failures and is_warming(view):
        return Skip(SkipReason.ONE_AT_A_TIME, why)
    return Launch(1 if pool.failures else min(room, wanted), why=why)


def is_warming(view: View) -> bool:
    """Whether a member is coming up."""
    return any(m.state is State.WARMING and m.serves for m in view.members)


def recycle(view: View) -> tuple[Instruction, ...]:
    """Return what to end, flag or abandon, in order."""
    instructions: list[Instruction] = [*_claims(view)]
    ended = {i.member_id for i in instructions if isinstance(i, EndClaim)}
    left: list[Member] = []
    for member in (m for m in view.members if m.id not in ended):
        if instruction := _stale(view, member):
            instructions.append(instruction)
        else:
            left.append(member)
    instructions += _surplus(view, left)
    attempts = view.pool.settings.terminate_attempts
    spent = (m for m in endings(view) if m.attempts >= attempts and m.id not in ended)
    instructions += (Abandon(member.id) for member in spent)
    return tuple(instructions)


def _claims(view: View) -> Iterable[Instruction]:
    settings, now = view.pool.settings, view.now_us
    for claim in view.claims:
        if claim.lease_until_us is not None:
            # The caller requested this lease and did not renew it.
            if now >= claim.lease_until_us:
                yield EndClaim(claim.id, claim.member_id, "lease_expired")
        elif now - claim.acquired_us >= settings.claimed_ttl_seconds * SECOND_US:
            if settings.claimed_ttl_action == "terminate":
                yield EndClaim(claim.id, claim.member_id, "claimed_ttl")
            elif claim.stale_us is None:
                yield FlagClaim(claim.id, "claimed_ttl")


def _stale(view: View, member: Member) -> Instruction | None:
    """Return what to do with an unclaimed member that is stale; None if it is not."""
    pool, now = view.pool, view.now_us
    settings = pool.settings
    if member.state not in CAPACITY:
        return None
    if pool.winds_down:
        return Retire(member.id, "pool_draining")
    if member.cordoned:
        return None
    if member.state is State.READY:
        silent, limit = now - member.heard_us, settings.heartbeat_stale_after_seconds
        if silent >= limit * SECOND_US:
            why = f"silent for {silent // SECOND_US} s, limit {limit} s"
            return Retire(member.id, "heartbeat_stale", why)
        return None
    age = now - member.warming_started_us
    why = f"warming for {age // SECOND_US} s"
    if member.machine_id is None and age >= (settings.provider_timeout_seconds + 30) * SECOND_US:
        # Its launcher was killed, or the provider never answered.
        return Fail(member.id, "launch_lost", counts=False, why=f"{why} without a machine")
    if age >= settings.warming_timeout_seconds * SECOND_US:
        reason = "never_enrolled" if member.beat_us is None else "warming_timeout"
        return Fail(member.id, reason, why=f"{why}, limit {settings.warming_timeout_seconds} s")
    if member.generation < pool.generation and pool.refills:
        return Retire(member.id, "template_changed", _describe_generation(member, pool))
    return None


def _describe_generation(member: Member, pool: Pool) -> str:
    return f"generation {member.generation}, the pool has {pool.generation}"


def _surplus(view: View, members: Sequence[Member]) -> Iterable[Retire]:
    """Retire members beyond the target, longest idle first; then old ones that can be spared."""
    pool = view.pool
    if pool.winds_down:
        return
    ready = sorted(
        (m for m in members if m.state is State.READY and m.serves), key=lambda m: m.ready_us or 0
    )
    warming = sorted(
        (m for m in members if m.state is State.WARMING and m.serves),
        key=lambda m: m.warming_started_us,
    )
    fresh = [m for m in (*ready, *warming) if m.generation >= pool.generation]
    # Members of an old template are not surplus: they serve until the new ones are ready.
    surplus = fresh[: max(0, len(fresh) - pool.target_size - view.waiting)]
    why = f"{len(fresh)} usable, target {pool.target_size}"
    yield from (Retire(member.id, "pool_shrunk", why) for member in surplus)
    retired = {member.id for member in surplus}
    ready = [member for member in ready if member.id not in retired]
    yield from _aged(view, ready, len(members) - len(surplus))


def _aged(view: View, ready: list[Member], live: int) -> Iterable[Retire]:
    """Retire members that are too old or of an old template; never below `min_size`, unless max is reached."""
    pool = view.pool
    left = len(ready)
    # At max_size no new one can come before an old one goes: then one goes at a time.
    stuck = (
        live >= pool.max_size
        and pool.refills
        and pool.breaker_opened_us is None
        and not any(_is_changing(m) for m in view.members)
    )
    for member in ready:
        outdated = member.generation < pool.generation and pool.refills
        age, limit = view.now_us - (member.ready_us or 0), pool.settings.ready_ttl_seconds
        old = age >= limit * SECOND_US
        # For each new member that is ready one of the old template goes.
        spared = left > pool.target_size if outdated else left > pool.min_size or not pool.refills
        if (outdated or old) and (spared or stuck):
            stuck = stuck and spared
            left -= 1
            if outdated:
                yield Retire(member.id, "template_changed", _describe_generation(member, pool))
            else:
                why = f"ready for {age // SECOND_US} s, limit {limit} s"
                yield Retire(member.id, "ready_ttl", why)


def _is_changing(member: Member) -> bool:
    moving = member.state in (State.WARMING, State.DRAINING)
    return moving and not member.cordoned and member.abandoned_us is None


def endings(view: View) -> Iterable[Member]:
    """Return the members to terminate now, or to abandon after the last attempt."""
    for member in view.members:
        if member.state not in (State.DRAINING, State.ERRORED) or member.abandoned_us is not None:
            continue
        if member.cordoned and not view.pool.winds_down:
            continue  # under inspection, although its claim has ended
        limit = max(1, view.pool.settings.terminate_backoff_max_seconds)
        if not _is_ahead(member.next_attempt_us, view.now_us, limit):
            yield member
