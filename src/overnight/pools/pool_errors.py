"""Why a pool says no. The names are those of the runbook; each says what to do next."""

from __future__ import annotations

from overnight import errors

__all__ = [
    "AutoscaledError",
    "BadKnobError",
    "BadSizeError",
    "ClaimEndedError",
    "ClaimNotFoundError",
    "DatabaseUnavailableError",
    "EnrolmentRefusedError",
    "KeyReusedError",
    "LeaseCapError",
    "MemberNotFoundError",
    "MemberStateError",
    "NoLiveReadyMembersError",
    "NoReadyMembersError",
    "PoolError",
    "PoolExistsError",
    "PoolHasMembersError",
    "PoolNotActiveError",
    "PoolNotFoundError",
    "TooEarlyError",
    "UnknownParameterError",
]


class PoolError(errors.OvernightError):
    """Something about a pool, a member or a claim."""


class BadKnobError(PoolError, errors.UsageError):
    """A knob has a value that it cannot have; nothing was written."""

    def __init__(self, knob: str, value: object, wanted: str) -> None:
        super().__init__(
            f"{knob} cannot be {value!r}",
            why=f"it is {wanted}; a value is never guessed",
            todo=f"give {knob} as {wanted}",
        )
        self.knob = knob


class BadSizeError(PoolError, errors.UsageError):
    """Sizes that do not fit each other."""


class AutoscaledError(PoolError):
    """The size of the pool is not set by hand: it would be changed back within seconds."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"the target of pool {name} is not set by hand",
            why="its size follows an autoscale policy, which would change it back",
            todo=f"overnight pool autoscale {name} --min 8   keeps more ready; "
            f"overnight pool autoscale {name} --off   gives the size back to you",
        )


class UnknownParameterError(PoolError, errors.UsageError):
    """A parameter that nobody declared; it would have been dropped in silence."""

    def __init__(self, name: str, known: tuple[str, ...]) -> None:
        super().__init__(
            f"there is no parameter {name!r}",
            why="what is not known is refused, never dropped",
            todo="use one of: " + ", ".join(sorted(known)),
        )


class PoolNotFoundError(PoolError):
    """No pool of that name or id."""

    def __init__(self, pool: str) -> None:
        super().__init__(
            f"there is no pool {pool!r}",
            why="it was never created, or deleted since",
            todo="overnight pool list --all   shows every pool",
        )


class PoolExistsError(PoolError):
    """The name is taken."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"there is a pool {name!r} already",
            why="names are unique",
            todo=f"overnight pool show {name}, or choose another name",
        )


class PoolNotActiveError(PoolError):
    """Claims are served by active pools alone."""

    def __init__(self, name: str, status: str) -> None:
        super().__init__(
            f"pool {name} is {status}",
            why="only an active pool gives members out",
            todo=f"overnight pool update {name} --resume",
        )


class NoReadyMembersError(PoolError):
    """Nothing to claim right now."""

    def __init__(
        self, name: str, *, target: int, ready: int, warming: int, wanted: int = 1, why: str = ""
    ) -> None:
        asked = "" if wanted == 1 else f" for a batch of {wanted}"
        super().__init__(
            f"pool {name} has no ready member{asked}: target {target}, ready {ready}, warming {warming}",
            why=why
            or ("they are still warming" if warming else "all are claimed, or none came up"),
            todo=f"wait with --wait 60s, ask for --cold, or see why: overnight pool show {name}",
        )
        self.target, self.ready, self.warming = target, ready, warming


class NoLiveReadyMembersError(PoolError):
    """Ready rows exist, but every one of those members is silent."""

    def __init__(self, name: str, silent: tuple[tuple[str, float], ...]) -> None:
        named = ", ".join(f"{member} (silent for {seconds:.0f} s)" for member, seconds in silent)
        super().__init__(
            f"pool {name} has no live ready member: {named}",
            why="their agents stopped reporting; a silent host is not given out",
            todo="is `overnight pool serve` running, and can the members reach it? "
            f"overnight pool recycle {name}   replaces them",
        )
        self.members = tuple(member for member, _ in silent)


class PoolHasMembersError(PoolError):
    """A pool is deleted only when it is empty."""

    def __init__(self, name: str, count: int) -> None:
        super().__init__(
            f"pool {name} still has {count} member(s) — drain first via system_drain_instance_pool",
            why="deleting it would lose the last pointer to live machines",
            todo=f"overnight pool drain {name}, then delete it when the claims have ended",
        )
        self.count = count


class MemberNotFoundError(PoolError):
    """No member of that id."""

    def __init__(self, member: str) -> None:
        super().__init__(
            f"there is no member {member!r}",
            why="it is gone, or never was",
            todo="overnight pool show POOL   lists the members",
        )


class MemberStateError(PoolError):
    """The member is in a state in which that cannot be done."""


class ClaimNotFoundError(PoolError):
    """No claim of that id."""

    def __init__(self, claim: str) -> None:
        super().__init__(
            f"there is no claim {claim!r}",
            why="it was never made, or its record is older than the pool keeps them",
            todo="overnight pool show POOL   lists the claims",
        )


class ClaimEndedError(PoolError):
    """The claim has ended; the member is no longer the caller's."""

    def __init__(self, claim: str, reason: str) -> None:
        super().__init__(
            f"claim {claim} has ended: {reason}",
            why="a lease that has run out, or a member that is gone, is not brought back",
            todo="acquire again; with a new --key, where there was one",
        )


class LeaseCapError(PoolError):
    """The claim is open, and has been for as long as its pool allows."""

    def __init__(self, claim: str, pool: str, most: int) -> None:
        super().__init__(
            f"claim {claim} cannot be renewed any further",
            why=f"pool {pool} lets a claim be kept for {most} s (lease_max_seconds)",
            todo=f"overnight pool update {pool} --set lease_max_seconds={2 * most}, then again; "
            f"or overnight pool return {claim}",
        )


class KeyReusedError(PoolError, errors.UsageError):
    """An idempotency key stands for one request."""

    def __init__(self, key: str) -> None:
        super().__init__(
            f"the idempotency key {key!r} was used for another request",
            why="the same key asks for the same thing: pool, count, claimer and lease",
            todo="take a new key for a new request",
        )


class EnrolmentRefusedError(PoolError):
    """A machine that may not join; `reason` is one word."""

    def __init__(self, reason: str, what: str) -> None:
        super().__init__(what, why=reason, todo="the member is replaced; see its events")
        self.reason = reason


class TooEarlyError(PoolError):
    """Ask again in a moment."""


class DatabaseUnavailableError(PoolError):
    """The database cannot be reached."""
