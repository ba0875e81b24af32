"""Errors of pools, members and claims. The names are those of the runbook."""

from __future__ import annotations

from typing import TYPE_CHECKING

from overnight import errors
from overnight.model import cluster as clusters
from overnight.model.text import plural

if TYPE_CHECKING:
    from collections.abc import Iterable

    from overnight.model.pool import Member


NO_RECORD = "it never existed, or its record has been deleted"


class PoolError(errors.OvernightError):
    pass


class BadKnobError(PoolError, errors.UsageError):
    """A parameter or setting has an invalid value; nothing was written."""

    def __init__(self, knob: str, value: object, wanted: str) -> None:
        super().__init__(
            f"invalid {knob}: {value!r}",
            why=f"{knob} must be {wanted}",
            todo=f"set {knob} to a valid value: {wanted}",
        )
        self.knob = knob


class IgnoredOptionError(PoolError, errors.UsageError):
    """The provider has no use for a value; nothing was written."""

    def __init__(self, provider: str, knob: str, value: object, only: object) -> None:
        given = ", ".join(value) if isinstance(value, tuple) else value
        option = "prefer-region" if knob == "preferred_regions" else knob.replace("_", "-")
        super().__init__(
            f"provider {provider} does not support --{option} {given}",
            why="it would be ignored",
            todo=f"use --{option} {only}" if only else f"leave --{option} out",
        )
        self.knob = knob


class BadSizeError(PoolError, errors.UsageError):
    """Sizes that contradict each other."""


class AutoscaledError(PoolError):
    def __init__(self, name: str) -> None:
        super().__init__(
            f"the target of pool {name} cannot be set by hand",
            why="its autoscale policy would change it back within seconds",
            todo=f"raise the minimum: `overnight pool autoscale {name} --min 8`; "
            f"or remove the policy: `overnight pool autoscale {name} --off`",
        )


class UnknownParameterError(PoolError, errors.UsageError):
    def __init__(self, name: str, known: tuple[str, ...]) -> None:
        super().__init__(
            f"unknown parameter {name!r}",
            why="unknown parameters are refused, never ignored",
            todo="use one of: " + ", ".join(sorted(known)),
        )


def check_known(given: Iterable[str], known: tuple[str, ...]) -> None:
    for name in given:
        if name not in known:
            raise UnknownParameterError(name, known)


def check_whole(name: str, value: object, lowest: int, highest: int) -> int:
    # True is an int in Python, and a quoted number would be a guess.
    if isinstance(value, bool) or not isinstance(value, int) or not lowest <= value <= highest:
        raise BadKnobError(name, value, f"a whole number from {lowest} to {highest}")
    return value


class MissingRecordError(PoolError, errors.NotFoundError):
    def __init__(self, noun: str, name: str, why: str = NO_RECORD, *, todo: str) -> None:
        super().__init__(f"{noun} {name!r} not found", why=why, todo=todo)


class PoolNotFoundError(MissingRecordError):
    def __init__(self, pool: str) -> None:
        why = "it was never created, or it has been deleted"
        super().__init__("pool", pool, why, todo="overnight pool list --all")


class PoolExistsError(PoolError):
    def __init__(self, name: str) -> None:
        super().__init__(
            f"pool {name!r} already exists",
            why="pool names are unique",
            todo=f"`overnight pool show {name}`, or choose another name",
        )


class PoolNotActiveError(PoolError):
    def __init__(self, name: str, status: str) -> None:
        super().__init__(
            f"pool {name} is {status}",
            why="only an active pool serves claims",
            todo=f"overnight pool update {name} --resume",
        )


class NoReadyMembersError(PoolError):
    def __init__(
        self, name: str, *, target: int, ready: int, warming: int, why: str, request_id: str, wanted: int = 1,
        reaped: bool = True,
    ) -> None:  # fmt: skip
        # Without a reaper no new member could report that it is ready.
        first = (
            "wait with --wait 60s, launch one with --cold"
            if reaped
            else "start a reaper: `overnight pool serve`"
        )
        batch = "" if wanted == 1 else f" for a batch of {wanted}"
        super().__init__(
            f"pool {name} has no ready member{batch}: target {target}, ready {ready}, warming {warming}",
            why=why,
            todo=f"{first}, or see why: `overnight pool explain {request_id}`",
        )


class NoLiveReadyMembersError(PoolError):
    def __init__(self, name: str, silent: tuple[tuple[str, float], ...], request_id: str) -> None:
        named = ", ".join(f"{member} (silent for {seconds:.0f} s)" for member, seconds in silent)
        super().__init__(
            f"pool {name} has no live ready member: {named}",
            why="their agents stopped reporting, and a silent host is not handed out",
            todo="check that `overnight pool serve` runs and that members can reach it; "
            f"replace them: `overnight pool recycle {name}`; see why: `overnight pool explain {request_id}`",
        )
        self.members = tuple(member for member, _ in silent)


class PoolHasMembersError(PoolError):
    def __init__(self, name: str, count: int, *, draining: int = 0) -> None:
        super().__init__(
            f"pool {name} still has {plural(count, 'member')}",
            why="deleting the pool would lose track of live machines",
            todo=f"wait until they are terminated (`overnight pool show {name}`), then delete it"
            if draining == count
            else f"`overnight pool drain {name}`, then delete the pool when its claims have ended",
        )


class ClaimsAffectedError(PoolError, errors.UnconfirmedError):
    """Somebody uses the member, or members of the pool."""

    def __init__(self, what: str, why: str) -> None:
        super().__init__(what, why=why, todo="add --yes")


class MemberNotFoundError(MissingRecordError):
    def __init__(self, member: str) -> None:
        super().__init__("member", member, todo="overnight pool list")


class TaskNotFoundError(PoolError):
    """The operation is not pending, or not any more."""

    def __init__(self, task: str, member: Member) -> None:
        state = "gone" if member.gone_us is not None else member.state
        given_up = ", and its teardown was given up" if member.abandoned_us is not None else ""
        super().__init__(
            f"task {task!r} is not pending",
            why=f"member {member.id} is {state}{given_up}",
            todo=f"use {member.task}" if member.task else f"overnight pool member {member.id}",
        )


class MemberStateError(PoolError):
    """The operation is not possible in this state."""


class ClaimNotFoundError(MissingRecordError):
    def __init__(self, claim: str) -> None:
        super().__init__("claim", claim, todo="overnight pool list")


class RequestNotFoundError(MissingRecordError):
    def __init__(self, request: str) -> None:
        why = "no caller waited under this id, or its record has been deleted"
        super().__init__("request", request, why, todo="overnight pool list")


class ClaimEndedError(PoolError):
    """The claim has ended; the caller must not use the member any more."""

    def __init__(self, claim: str, reason: str) -> None:
        super().__init__(
            f"claim {claim} has ended: {reason}",
            why="an expired lease or a member that is gone cannot be restored",
            todo="`overnight pool acquire POOL`, with a new --key if you used one",
        )


class LeaseCapError(PoolError):
    def __init__(self, claim: str, pool: str, most: int) -> None:
        super().__init__(
            f"claim {claim} cannot be renewed any further",
            why=f"pool {pool} limits a claim to {most} s (lease_max_seconds)",
            todo=f"`overnight pool update {pool} --set lease_max_seconds={2 * most}`, then renew; "
            f"or `overnight pool return {claim}`",
        )


class KeyReusedError(PoolError, errors.UsageError):
    def __init__(self, key: str) -> None:
        super().__init__(
            f"idempotency key {key!r} was used for another request",
            why="a key repeats one request: the same pool, count, caller and lease",
            todo="use a new --key for a new request",
        )


class EnrolmentRefusedError(PoolError):
    """A machine may not enrol; `reason` is one word."""

    def __init__(self, reason: str, what: str) -> None:
        super().__init__(
            what, why=reason, todo="none: the pool replaces the member; see its events"
        )
        self.reason = reason


class TooEarlyError(PoolError):
    """The request must be repeated in a moment."""


class ClusterNotFoundError(MissingRecordError):
    def __init__(self, cluster: str) -> None:
        why = "it was never created, or its record has been deleted"
        super().__init__("cluster", cluster, why, todo="overnight cluster list --all")


class ClusterStateError(PoolError):
    """The cluster cannot be cancelled, renewed or released in its state."""

    def __init__(self, cluster: clusters.Cluster, wanted: str) -> None:
        why = "an assembling cluster is cancelled, and one that is held is renewed or released"
        command = "release" if cluster.state is clusters.ClusterState.HELD else "cancel"
        if cluster.state is clusters.ClusterState.ENDED:
            why, command = f"the reason of its end is {cluster.reason}", "show"
        elif wanted == "renewed":
            why, command = "its lease begins when it is held", "show"
        super().__init__(
            f"cluster {cluster.id} cannot be {wanted}: its state is {cluster.state}",
            why=why,
            todo=f"overnight cluster {command} {cluster.id}",
        )
