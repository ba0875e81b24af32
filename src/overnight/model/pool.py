"""The words of a pool as frozen values: pool, member, claim, waiter, event. Times are µs since 1970."""

from __future__ import annotations

import dataclasses
import enum
import secrets
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "CAPACITY",
    "Autoscale",
    "Claim",
    "Counts",
    "Grant",
    "LifecycleClass",
    "Member",
    "MemberState",
    "Past",
    "Pool",
    "PoolEvent",
    "PoolSettings",
    "PoolStatus",
    "Request",
    "Waiter",
    "member_of",
    "new_id",
]


class PoolStatus(enum.StrEnum):
    """The pool's own life; not to be confused with the state of a member."""

    ACTIVE = "active"
    PAUSED = "paused"  # no claims, no launches; stale members are still recycled
    DRAINING = "draining"  # members that nobody claimed are ended, and none is made
    ARCHIVED = "archived"  # as draining, and left out of lists


class MemberState(enum.StrEnum):
    """`pool_state`. A member that is gone keeps the last one, with the time it went."""

    WARMING = "warming"
    READY = "ready"
    CLAIMED = "claimed"
    DRAINING = "draining"
    ERRORED = "errored"


class LifecycleClass(enum.StrEnum):
    """How the provider may take a machine back."""

    EPHEMERAL = "ephemeral"
    SPOT = "spot"


CAPACITY = (MemberState.WARMING, MemberState.READY)


@dataclasses.dataclass(frozen=True)
class PoolSettings:
    """How one pool is maintained; `--set NAME=VALUE` sets each field."""

    warming_timeout_seconds: int = 1800  # a member not ready by then has failed
    ready_ttl_seconds: int = 14400  # an idle member this old is replaced
    claimed_ttl_seconds: int = 86400  # a claim without a lease this old is stale
    claimed_ttl_action: str = "flag"  # or "terminate"
    heartbeat_stale_after_seconds: int = 180
    terminate_attempts: int = 5
    terminate_backoff_seconds: int = 300
    terminate_backoff_max_seconds: int = 3600
    record_retention_seconds: int = 7 * 86400
    reuse_without_reset: bool = False
    lease_max_seconds: int = 86400  # a lease is renewed up to this long after the claim
    launch_backoff_seconds: int = 10
    launch_backoff_max_seconds: int = 600
    launch_parallel: int = 8
    breaker_failures: int = 5  # this many in a row, and launching stops
    breaker_retry_seconds: int = 1800  # then one trial; 0: only when it is closed by hand
    provider_timeout_seconds: int = 120
    bootstrap_token_seconds: int = 1800
    waiter_stale_seconds: int = 15  # a waiter that has not been heard for so long has left


@dataclasses.dataclass(frozen=True, kw_only=True)
class Pool:
    """A pool as it stands; `generation` counts changes of what members are made from."""

    id: str
    name: str
    template: str
    target_size: int
    min_size: int
    max_size: int
    status: PoolStatus = PoolStatus.ACTIVE
    lifecycle_class: LifecycleClass = LifecycleClass.EPHEMERAL
    provider: str = "process"
    region: str = ""
    instance_type: str = ""
    preferred_regions: tuple[str, ...] = ()
    labels: Mapping[str, str] = dataclasses.field(default_factory=dict)
    settings: PoolSettings = PoolSettings()
    generation: int = 1
    created_us: int = 0
    updated_us: int = 0
    failures: int = 0  # in a row; a member that gets ready ends the row
    last_failure: str = ""
    launch_not_before_us: int = 0
    breaker_opened_us: int | None = None

    @property
    def refills(self) -> bool:
        """Whether members may be launched for it."""
        return self.status is PoolStatus.ACTIVE

    @property
    def winds_down(self) -> bool:
        """Whether members that nobody claimed are ended."""
        return self.status in (PoolStatus.DRAINING, PoolStatus.ARCHIVED)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Member:
    """One machine of a pool, or the intent to make one (`machine_id` is None)."""

    id: str
    pool_id: str
    state: MemberState
    generation: int = 1
    provider: str = "process"
    machine_id: str | None = None
    address: str = ""
    region: str = ""
    cordoned: bool = False
    reason: str = ""
    warming_started_us: int = 0
    launched_us: int | None = None
    ready_us: int | None = None
    acquired_us: int | None = None
    beat_us: int | None = None  # the last heartbeat
    missing_us: int | None = None  # since when the provider does not know its machine
    ended_us: int | None = None  # since when it is draining or errored
    attempts: int = 0  # to terminate it
    next_attempt_us: int = 0
    abandoned_us: int | None = None
    gone_us: int | None = None

    @property
    def serves(self) -> bool:
        """Whether it is capacity: warming or ready, with a machine, and not held back."""
        return self.state in CAPACITY and not self.cordoned and self.missing_us is None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Claim:
    """Who has a member, what for, and until when."""

    id: str
    pool_id: str
    member_id: str
    acquired_by: str = ""
    acquired_for: str = ""
    acquired_us: int = 0
    lease_until_us: int | None = None  # None: for as long as it takes
    renewals: int = 0
    batch_id: str = ""
    idempotency_key: str | None = None
    waited_us: int = 0
    cold: bool = False
    stale_us: int | None = None  # since when it is flagged
    released_us: int | None = None
    release_reason: str = ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Waiter:
    """Somebody in the queue of a pool: by priority, then by age."""

    id: str
    pool_id: str
    priority: int = 0
    wanted: int = 1
    queued_us: int = 0
    seen_us: int = 0
    acquired_by: str = ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class PoolEvent:
    """One transition, with its reason."""

    id: int
    at_us: int
    kind: str
    pool_id: str = ""
    pool: str = ""
    member_id: str = ""
    claim_id: str = ""
    reason: str = ""
    detail: str = ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Counts:
    """What a pool holds. Ready and warming are those that serve: one that is cordoned, or whose machine is
    missing, is held back. Gone ones are not counted.
    """

    ready: int = 0
    warming: int = 0
    claimed: int = 0
    draining: int = 0
    errored: int = 0
    held_back: int = 0
    cordoned: int = 0
    waiting: int = 0
    deficit: int = 0

    @property
    def members(self) -> int:
        """Everything that may still cost money."""
        live = self.ready + self.warming + self.held_back + self.claimed
        return live + self.draining + self.errored


@dataclasses.dataclass(frozen=True, kw_only=True)
class Request:
    """What a claim asks for. Without a lease it lasts until it is returned."""

    count: int = 1
    acquired_by: str = ""
    acquired_for: str = ""
    lease_seconds: int | None = None
    idempotency_key: str | None = None
    priority: int = 0
    wait_seconds: float = 0.0
    cold: bool = False  # launch one for it when none is ready, and wait for that


@dataclasses.dataclass(frozen=True)
class Grant:
    """A member and the claim on it."""

    member: Member
    claim: Claim


@dataclasses.dataclass(frozen=True, kw_only=True)
class Past:
    """What was asked of a pool in a time, missed claims too, and how long its members took to be ready."""

    begin_us: int
    end_us: int
    asked_us: tuple[int, ...]
    warm_ups_us: tuple[int, ...]
    missed: int = 0  # of those that asked


@dataclasses.dataclass(frozen=True, kw_only=True)
class Autoscale:
    """How a pool's size follows its demand, and what was last decided. Words and numbers only."""

    pool_id: str = ""
    miss: float = 0.01
    min_size: int | None = None  # None: the pool's
    max_size: int | None = None
    warm_up_seconds: float | None = None  # None: as measured
    window_seconds: float = 1200.0
    cooldown_seconds: float = 900.0
    zero_after_seconds: float | None = None  # None: never
    burst_mean: float = 1.0
    burst_spread: float = 0.0
    openings: tuple[str, ...] = ()
    # what came of it
    since_us: int = 0  # claims before do not tell: the pool was not there, or gave nothing out
    memory: tuple[tuple[float, int], ...] = ()  # sizes that the cooldown keeps, with their times
    decided_us: int = 0
    wanted_size: int = 0
    cause: str = ""
    reason: str = ""
    changed_us: int | None = None  # when it last changed the size
    measured_us: int = 0
    measured_warm_up_seconds: float | None = None


def new_id(kind: str) -> str:
    """A short name that nobody else has: `m-5f0c9a41d2b7`."""
    return f"{kind}-{secrets.token_hex(6)}"


def member_of(row: Mapping[Any, Any]) -> Member:
    """The value of a row that has its heartbeat joined."""
    return Member(**{**row, "state": MemberState(row["state"]), "cordoned": bool(row["cordoned"])})
