"""What is done to a pool next: what it holds and the clock in, instructions out.

No clock is read and nothing is touched here, so that every pool that could be is a unit test. There are
two phases, as in the runbook: `recycle` ends what is stale, `replenish` says how many to launch. The
second is asked again before every single launch, under the pool's lock: two control planes at once
cannot launch too many.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence

from overnight.model.pool import CAPACITY, Claim, Counts, Member, MemberState, Pool

__all__ = [
    "Abandon",
    "CloseBreaker",
    "EndClaim",
    "Fail",
    "FlagClaim",
    "Instruction",
    "Launch",
    "OpenBreaker",
    "Retire",
    "Terminate",
    "View",
    "after_failure",
    "after_success",
    "counts",
    "endings",
    "recycle",
    "replenish",
    "retry_after",
]

SECOND = 1_000_000
State = MemberState


@dataclasses.dataclass(frozen=True, kw_only=True)
class View:
    """A pool as it stands: its members that are not gone, its open claims, who waits for how many."""

    pool: Pool
    members: Sequence[Member] = ()
    claims: Sequence[Claim] = ()
    waiting: int = 0
    now_us: int = 0


@dataclasses.dataclass(frozen=True)
class Launch:
    """Make so many members; `trial` with the breaker open, to see whether it works again."""

    count: int
    trial: bool = False


@dataclasses.dataclass(frozen=True)
class Retire:
    """A member that nobody claimed goes: draining, then terminated."""

    member_id: str
    reason: str


@dataclasses.dataclass(frozen=True)
class Fail:
    """A member did not come up: errored, then terminated. `counts`: it is a failure of the pool."""

    member_id: str
    reason: str
    counts: bool = True


@dataclasses.dataclass(frozen=True)
class Terminate:
    """Ask the provider to end its machine, now."""

    member_id: str


@dataclasses.dataclass(frozen=True)
class Abandon:
    """Every attempt to end it failed: say so, once. The row stays, as the last pointer to a machine."""

    member_id: str


@dataclasses.dataclass(frozen=True)
class FlagClaim:
    """A claim that looks forgotten. The member is left alone."""

    claim_id: str
    reason: str


@dataclasses.dataclass(frozen=True)
class EndClaim:
    """A claim whose lease ran out ends, and its member is terminated."""

    claim_id: str
    member_id: str
    reason: str


@dataclasses.dataclass(frozen=True)
class OpenBreaker:
    """So many failures in a row: stop launching."""

    reason: str


@dataclasses.dataclass(frozen=True)
class CloseBreaker:
    """A member came up: launching goes on."""


Instruction = Launch | Retire | Fail | Terminate | Abandon | FlagClaim | EndClaim


def counts(view: View) -> Counts:
    """How many members are in which state; a member that is held back is no capacity."""
    number = dict.fromkeys(State, 0)
    cordoned = 0
    serving = 0
    for member in view.members:
        if member.state not in CAPACITY or member.serves:
            number[member.state] += 1
        cordoned += member.cordoned
        serving += member.serves
    return Counts(
        ready=number[State.READY],
        warming=number[State.WARMING],
        claimed=number[State.CLAIMED],
        draining=number[State.DRAINING],
        errored=number[State.ERRORED],
        held_back=len(view.members) - sum(number.values()),
        cordoned=cordoned,
        waiting=view.waiting,
        deficit=max(0, view.pool.target_size - serving),
    )


def retry_after(view: Pool, attempts: int) -> int:
    """Seconds until the next attempt to terminate, after so many: doubled each time, with a cap."""
    settings = view.settings
    return _doubled(
        settings.terminate_backoff_seconds, attempts, max(1, settings.terminate_backoff_max_seconds)
    )


def _doubled(first: int, times: int, most: int) -> int:
    return int(min(most, first * 2 ** min(max(0, times - 1), 40)))


def _yet_to_come(until_us: int, now_us: int, most_seconds: int) -> bool:
    """Whether to wait on. What is far longer ahead than is ever waited was written before the clock was
    set back; twice, as the clocks of two control planes differ a little.
    """
    return now_us < until_us <= now_us + 2 * most_seconds * SECOND


def after_failure(pool: Pool, reason: str, now_us: int) -> tuple[Pool, OpenBreaker | None]:
    """The pool after one more failed launch: backed off, and with its breaker open after enough."""
    failures = pool.failures + 1
    settings = pool.settings
    wait = _doubled(settings.launch_backoff_seconds, failures, settings.launch_backoff_max_seconds)
    opens = failures >= settings.breaker_failures
    changed = dataclasses.replace(
        pool,
        failures=failures,
        last_failure=reason,
        launch_not_before_us=now_us + wait * SECOND,
        breaker_opened_us=now_us if opens else pool.breaker_opened_us,
    )
    # Said once: a trial that fails keeps it open and is told as a failure, no more.
    return changed, OpenBreaker(reason) if opens and pool.breaker_opened_us is None else None


def after_success(pool: Pool) -> tuple[Pool, CloseBreaker | None]:
    """The pool after a member came up: the row of failures has ended."""
    closed = None if pool.breaker_opened_us is None else CloseBreaker()
    changed = dataclasses.replace(
        pool, failures=0, last_failure="", launch_not_before_us=0, breaker_opened_us=None
    )
    return changed, closed


def replenish(view: View) -> Launch | None:
    """How many to launch now; None for none. Those who wait count as demand."""
    pool = view.pool
    if not pool.refills:
        return None
    room = pool.max_size - len(view.members)
    usable = sum(m.serves and m.generation >= pool.generation for m in view.members)
    wanted = min(room, pool.target_size + view.waiting - usable)
    most = pool.settings.launch_backoff_max_seconds
    if wanted <= 0 or _yet_to_come(pool.launch_not_before_us, view.now_us, most):
        return None
    if pool.breaker_opened_us is None:
        # After a failure one at a time, until one comes up: the provider is not hammered.
        if pool.failures:
            return None if _coming(view) else Launch(1)
        return Launch(wanted)
    retry = pool.settings.breaker_retry_seconds
    # Ahead of us by as much it was opened before the clock was set back.
    due = retry and abs(view.now_us - pool.breaker_opened_us) >= retry * SECOND
    if not due or _coming(view):
        return None
    return Launch(1, trial=True)


def _coming(view: View) -> bool:
    return any(m.state is State.WARMING and m.serves for m in view.members)


def recycle(view: View) -> tuple[Instruction, ...]:
    """What is to be ended, flagged or tried again, in the order in which it is carried out."""
    said: list[Instruction] = [*_claims(view)]
    ended = {one.member_id for one in said if isinstance(one, EndClaim)}
    left: list[Member] = []
    for member in view.members:
        if member.id in ended:
            continue
        if instruction := _stale(view, member):
            said.append(instruction)
        else:
            left.append(member)
    said += _surplus(view, left)
    changed = {one.member_id for one in said if isinstance(one, Retire | Fail | EndClaim)}
    said += (one for one in endings(view) if one.member_id not in changed)
    return tuple(said)


def _claims(view: View) -> Iterable[Instruction]:
    settings, now = view.pool.settings, view.now_us
    for claim in view.claims:
        if claim.lease_until_us is not None:
            # The claimer asked for this lease and did not renew it.
            if now >= claim.lease_until_us:
                yield EndClaim(claim.id, claim.member_id, "lease_expired")
        elif now - claim.acquired_us >= settings.claimed_ttl_seconds * SECOND:
            if settings.claimed_ttl_action == "terminate":
                yield EndClaim(claim.id, claim.member_id, "claimed_ttl")
            elif claim.stale_us is None:
                yield FlagClaim(claim.id, "claimed_ttl")


def _stale(view: View, member: Member) -> Instruction | None:
    """What is wrong with a member that nobody claimed; None when nothing is."""
    pool, now = view.pool, view.now_us
    settings = pool.settings
    if member.state is State.WARMING:
        if pool.winds_down:
            return Retire(member.id, "pool_draining")
        if member.cordoned:
            return None
        launch_limit = (settings.provider_timeout_seconds + 30) * SECOND
        if member.machine_id is None and now - member.warming_started_us >= launch_limit:
            # Whoever launched it was killed, or the provider never answered.
            return Fail(member.id, "launch_lost", counts=False)
        if now - member.warming_started_us >= settings.warming_timeout_seconds * SECOND:
            never = "never_enrolled" if member.beat_us is None else "warming_timeout"
            return Fail(member.id, never)
        if member.generation < pool.generation and pool.refills:
            return Retire(member.id, "template_changed")
    if member.state is State.READY:
        if pool.winds_down:
            return Retire(member.id, "pool_draining")
        if member.cordoned:
            return None
        heard = max(member.beat_us or 0, member.ready_us or 0)
        if now - heard >= settings.heartbeat_stale_after_seconds * SECOND:
            return Retire(member.id, "heartbeat_stale")
    return None


def _surplus(view: View, members: Sequence[Member]) -> Iterable[Retire]:
    """More than the pool wants: shrink, oldest idle first; then what is old, where it can be spared."""
    pool, now = view.pool, view.now_us
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
    # Old ones beside new ones are no surplus: they serve until the new ones are ready.
    excess = max(0, len(fresh) - pool.target_size - view.waiting)
    retired = set()
    for member in [m for m in (*ready, *warming) if m in fresh][:excess]:
        retired.add(member.id)
        yield Retire(member.id, "pool_shrunk")
    ready = [m for m in ready if m.id not in retired]
    yield from _aged(view, ready, len(members) - len(retired), now)


def _aged(view: View, ready: list[Member], live: int, now: int) -> Iterable[Retire]:
    """Members past their time, or of an old template: never below `min_size`, unless there is no room."""
    pool = view.pool
    left = len(ready)
    # Without room a new one cannot come before an old one goes: then one goes, and only one at a time.
    stuck = (
        live >= pool.max_size
        and pool.refills
        and pool.breaker_opened_us is None
        and not any(_on_its_way(m) for m in view.members)
    )
    for member in ready:
        outdated = member.generation < pool.generation and pool.refills
        old = now - (member.ready_us or 0) >= pool.settings.ready_ttl_seconds * SECOND
        # Of an old template one goes for each new one that is ready.
        spared = left > pool.target_size if outdated else left > pool.min_size or not pool.refills
        if (outdated or old) and (spared or stuck):
            stuck = stuck and spared
            left -= 1
            yield Retire(member.id, "template_changed" if outdated else "ready_ttl")


def _on_its_way(member: Member) -> bool:
    moving = member.state in (State.WARMING, State.DRAINING)
    return moving and not member.cordoned and member.abandoned_us is None


def endings(view: View) -> Iterable[Terminate | Abandon]:
    """Members on their way out: tried until the attempts are used up, then abandoned, loudly, once."""
    for member in view.members:
        if member.state not in (State.DRAINING, State.ERRORED) or member.abandoned_us is not None:
            continue
        if member.cordoned and not view.pool.winds_down:
            continue  # somebody looks at it, though its claim has ended
        most = max(1, view.pool.settings.terminate_backoff_max_seconds)
        if _yet_to_come(member.next_attempt_us, view.now_us, most):
            continue
        if member.attempts >= view.pool.settings.terminate_attempts:
            yield Abandon(member.id)
        else:
            yield Terminate(member.id)
