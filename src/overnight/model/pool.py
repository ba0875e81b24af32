"""Warm pools as frozen values: pool, member, claim, waiter, event. Times are µs since 1970."""

from __future__ import annotations

import dataclasses
import enum
import secrets
from collections.abc import Mapping
from typing import Any


class Reason(enum.StrEnum):
    """Why a provider failed, or why a machine is gone. Events, metrics and decisions use these words."""

    ERROR = "provider_error"  # anything not listed here
    TIMEOUT = "provider_timeout"
    INVALID_ANSWER = "provider_lied"
    NOT_AVAILABLE = "provider_not_available"
    UNREACHABLE = "provider_unreachable"
    QUOTA = "provider_quota_exceeded"
    CAPACITY = "provider_capacity_exhausted"
    DENIED = "provider_access_denied"
    THROTTLED = "provider_throttled"
    TEMPLATE_INVALID = "template_invalid"
    TEMPLATE_NOT_FOUND = "template_not_found"
    INSTANCE_TYPE_UNKNOWN = "instance_type_unknown"
    ENDPOINT_UNREACHABLE = "endpoint_unreachable"
    ORDER_REFUSED = "order_refused"
    TERMINATION_PROTECTED = "termination_protected"
    # of a machine that is gone
    MACHINE_GONE = "machine_gone"
    SPOT_INTERRUPTED = "spot_interrupted"
    TERMINATED_ELSEWHERE = "terminated_elsewhere"
    SHUT_DOWN_FROM_INSIDE = "shut_down_from_inside"
    LAUNCH_FAILED_CLIENT = "launch_failed_client"
    MAINTENANCE = "provider_maintenance"


class PoolStatus(enum.StrEnum):
    ACTIVE = "active"
    PAUSED = "paused"  # no claims, no launches; stale members are still recycled
    DRAINING = "draining"  # unclaimed members are terminated, and none is launched
    ARCHIVED = "archived"  # as draining, and hidden from lists


WINDS_DOWN = (PoolStatus.DRAINING, PoolStatus.ARCHIVED)


class MemberState(enum.StrEnum):
    """`pool_state`. A member that is gone keeps its last state and has `gone_us`."""

    WARMING = "warming"
    READY = "ready"
    CLAIMED = "claimed"
    DRAINING = "draining"
    ERRORED = "errored"


class Callers(enum.StrEnum):
    """What callers do when no host is ready."""

    GIVE_UP = "give-up"
    WAIT = "wait"


class LifecycleClass(enum.StrEnum):
    """Whether the provider may take a machine back."""

    EPHEMERAL = "ephemeral"
    SPOT = "spot"


CAPACITY = (MemberState.WARMING, MemberState.READY)
IN_USE = (MemberState.READY, MemberState.CLAIMED)
LAUNCH, TERMINATE = "launch", "terminate"  # operations of a task


@dataclasses.dataclass(frozen=True)
class PoolSettings:
    """How one pool is maintained; `--set NAME=VALUE` sets each field."""

    warming_timeout_seconds: int = 1800  # a member not ready by then has failed
    readiness_timeout_seconds: int = 300  # for the readiness command, after the boot
    failed_units_action: str = "fail"  # or "ignore"
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
    empty_alert_seconds: int = 300  # an alert after this time without a ready member
    waiter_stale_seconds: int = 15  # a waiter that has not reported for longer has left
    # Time in the queue that is worth one step of priority; 0: strict priority.
    priority_ageing_seconds: int = 60


@dataclasses.dataclass(frozen=True, kw_only=True)
class Pool:
    """A pool; `generation` counts the changes of template, region, type and class."""

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
    failures: int = 0  # consecutive; reset when a member becomes ready
    last_failure: str = ""
    launch_not_before_us: int = 0
    breaker_opened_us: int | None = None
    empty_since_us: int | None = None  # since when no member is ready, although some should be
    assemble_until_us: int | None = None  # of a cluster: until then its members are launched
    launch_skipped: str | None = None  # why the members that are wanted are not launched

    @property
    def assembles(self) -> bool:
        """Whether members are launched for a cluster; as in every paused pool, no caller can claim them."""
        return self.status is PoolStatus.PAUSED and self.assemble_until_us is not None

    @property
    def refills(self) -> bool:
        return self.status is PoolStatus.ACTIVE or self.assembles

    @property
    def winds_down(self) -> bool:
        """Whether unclaimed members are terminated."""
        return self.status in WINDS_DOWN


@dataclasses.dataclass(frozen=True, kw_only=True)
class Member:
    """One machine of a pool, or the intent to launch one (`machine_id` is None)."""

    id: str
    pool_id: str
    state: MemberState
    generation: int = 1
    provider: str = "process"
    machine_id: str | None = None
    address: str = ""
    region: str = ""
    host: str | None = None  # only a server there can list and terminate it; None: any server can
    cordoned: bool = False
    reason: str = ""
    warming_started_us: int = 0
    launched_us: int | None = None
    ready_us: int | None = None
    acquired_us: int | None = None
    beat_us: int | None = None  # the last heartbeat
    missing_us: int | None = None  # since when the provider does not list its machine
    ended_us: int | None = None  # since when it is draining or errored
    attempts: int = 0  # to terminate it
    next_attempt_us: int = 0
    abandoned_us: int | None = None
    gone_us: int | None = None

    @property
    def serves(self) -> bool:
        """Whether it counts as capacity: warming or ready, not cordoned, machine not missing."""
        return self.state in CAPACITY and not self.cordoned and self.missing_us is None

    @property
    def heard_us(self) -> int:
        """When its agent last reported; one that has just come up has not sent a heartbeat yet."""
        return max(self.beat_us or 0, self.ready_us or 0)

    @property
    def task(self) -> str:
        """The operation on its machine that is pending, as `MEMBER:OPERATION`; '' if there is none."""
        if self.gone_us is not None or self.abandoned_us is not None or self.state in IN_USE:
            return ""
        return f"{self.id}:{LAUNCH if self.state is MemberState.WARMING else TERMINATE}"

    @classmethod
    def from_row(cls, row: Mapping[Any, Any]) -> Member:
        """Build a member from its row with the heartbeat joined."""
        return cls(**{**row, "state": MemberState(row["state"]), "cordoned": bool(row["cordoned"])})


@dataclasses.dataclass(frozen=True, kw_only=True)
class Claim:
    """Who holds a member, for what, and until when."""

    id: str
    pool_id: str
    member_id: str
    acquired_by: str = ""
    acquired_for: str = ""
    acquired_us: int = 0
    lease_until_us: int | None = None  # None: until it is returned
    renewals: int = 0
    batch_id: str = ""
    idempotency_key: str | None = None
    waited_us: int = 0
    cold: bool = False
    stale_us: int | None = None  # since when it is flagged as stale
    released_us: int | None = None
    release_reason: str = ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Waiter:
    """A caller in the queue of a pool, which is ordered by priority and age."""

    id: str
    pool_id: str
    priority: int = 0
    wanted: int = 1
    queued_us: int = 0
    seen_us: int = 0
    acquired_by: str = ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class PoolEvent:
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
    """What a pool holds, without members that are gone.

    `ready` and `warming` count capacity; a cordoned member, or one whose machine is missing, is `held_back`.
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
        """All members that may still cost money."""
        live = self.ready + self.warming + self.held_back + self.claimed
        return live + self.draining + self.errored


@dataclasses.dataclass(frozen=True, kw_only=True)
class Request:
    """A request for members. Without a lease a claim lasts until it is returned."""

    count: int = 1
    acquired_by: str = ""
    acquired_for: str = ""
    lease_seconds: int | None = None
    idempotency_key: str | None = None
    priority: int = 0
    wait_seconds: float = 0.0
    cold: bool = False  # launch one if none is ready, and wait for it


@dataclasses.dataclass(frozen=True)
class Grant:
    member: Member
    claim: Claim


@dataclasses.dataclass(frozen=True, kw_only=True)
class Past:
    """Requests to a pool over a time, including missed ones, and how long its members took to be ready."""

    begin_us: int
    end_us: int
    asked_us: tuple[int, ...]
    warm_ups_us: tuple[int, ...]
    missed_us: tuple[int, ...] = ()  # of `asked_us`
    waited_us: tuple[int, ...] = ()  # of `asked_us`: served, but not at once
    unchanged_us: int = 0  # since when the pool is as it is now
    member_us: int = 0  # since then, the time of its members added up
    ready_us: int = 0  # of `member_us`: ready and not claimed
    held_us: int = 0  # the time of the claims that ended, added up
    ended: int = 0  # of the claims

    @property
    def missed(self) -> int:
        return len(self.missed_us)


@dataclasses.dataclass(frozen=True, kw_only=True)
class AutoscalePolicy:
    """How a pool's size follows its demand, as operators set it."""

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


@dataclasses.dataclass(frozen=True, kw_only=True)
class Autoscale(AutoscalePolicy):
    """How a pool's size follows its demand, and the last decision."""

    pool_id: str = ""
    since_us: int = 0  # earlier claims do not count: the pool did not exist, or was not active
    memory: tuple[tuple[float, int], ...] = ()  # (time, size) that the cooldown keeps
    decided_us: int = 0
    wanted_size: int = 0
    cause: str = ""
    reason: str = ""
    changed_us: int | None = None  # when it last changed the size
    measured_us: int = 0
    measured_warm_up_seconds: float | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class PoolDetails:
    pool: Pool
    counts: Counts
    members: tuple[Member, ...] = ()
    claims: tuple[Claim, ...] = ()  # open ones first, then the last that ended
    waiters: tuple[Waiter, ...] = ()
    events: tuple[PoolEvent, ...] = ()  # newest first
    autoscale: Autoscale | None = None  # None: its size is set by hand


@dataclasses.dataclass(frozen=True, kw_only=True)
class MemberDetails:
    """A member with its claims and events, also after it is gone."""

    member: Member
    pool: str  # its name
    claims: tuple[Claim, ...] = ()  # newest first
    events: tuple[PoolEvent, ...] = ()  # newest first
    stale_after_seconds: int = 180  # without a heartbeat


@dataclasses.dataclass(frozen=True)
class Problem:
    """Something wrong with a pool; `alert` when claims fail or money is lost."""

    name: str
    what: str
    why: str
    todo: str
    alert: bool = False
    host_text: str = ""  # text of hosts and providers


@dataclasses.dataclass(frozen=True)
class PoolReport:
    """A pool with its problems."""

    details: PoolDetails
    problems: tuple[Problem, ...]


def new_id(kind: str) -> str:
    """Return a short unique name: `m-5f0c9a41d2b7`."""
    return f"{kind}-{secrets.token_hex(6)}"
