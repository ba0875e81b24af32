"""Reservations as frozen values: hosts taken out of production for a while. Times are µs since 1970."""

from __future__ import annotations

import dataclasses
import enum
import json
import re
from collections.abc import Mapping
from typing import Any

from overnight.model import host_changes
from overnight.model.text import foreign

LEASE_ID = re.compile(r"r-[0-9a-f]{12}")  # a valid label value, and a valid part of object names
MAX_SECONDS = 14 * 86_400  # hard cap of a reservation, however often it is renewed
MAX_RECORD = 4000  # characters of a lease on a host object, which others may have written
MAX_TIME_US = 1 << 53  # year 2255


class ReservationState(enum.StrEnum):
    """PREPARING: hosts are being taken. RELEASING: marks are being removed. RELEASED is final."""

    PREPARING = "preparing"
    ACTIVE = "active"
    RELEASING = "releasing"
    RELEASED = "released"


class HostState(enum.StrEnum):
    """State of one reserved host. PLANNED is written before the first call to the platform."""

    PLANNED = "planned"
    HELD = "held"  # claimed, marked and, if that was asked for, emptied
    RELEASED = "released"


@dataclasses.dataclass(frozen=True, kw_only=True)
class AgentTasks:
    """Tasks that an agent takes which a reservation started, on a host without an agent.toml of its own."""

    kinds: tuple[str, ...] = ()
    max_seconds: int = 3600
    instruments: tuple[str, ...] = ()
    changes: tuple[host_changes.Builtin, ...] = ()  # of any target

    def format(self) -> str:
        """Return them as agent.toml has them."""
        lines = [
            "[tasks]",
            f"allow = {json.dumps(self.kinds)}",
            f"max_seconds = {self.max_seconds}",
        ]
        lines += [f"instruments = {json.dumps(self.instruments)}"] if self.instruments else []
        for name in self.changes:
            lines += [f"[changes.{name}]", f'builtin = "{name}"']
            lines += ['targets = ["*"]'] if host_changes.WORDS[name] else []
        return "\n".join(lines) + "\n"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Order:
    """What to reserve. A provider refuses a value that it would ignore."""

    provider: str
    where: str = ""  # kubeconfig context, Auto Scaling group, ECS cluster, pool, or image
    region: str = ""
    hosts: tuple[str, ...] = ()  # these, or `count` that match
    count: int = 1
    labels: Mapping[str, str] = dataclasses.field(default_factory=dict)
    zone: str = ""
    instance_type: str = ""
    min_uptime_seconds: float = 0.0
    max_uptime_seconds: float = 0.0  # 0: no limit
    allow_unhealthy: bool = False
    evict: bool = False  # without it, only hosts without foreign workloads are taken
    no_execute: bool = False  # Kubernetes: also taint NoExecute once the host is empty
    detach: bool = False  # EC2: detach from the group instead of standby
    reference: str = ""  # host of production that the reserved ones must equal
    seconds: int = 12 * 3600
    renew: bool = False  # a driver extends the lease; without it, the lease ends after `seconds`
    max_seconds: int = MAX_SECONDS  # of a lease that is renewed
    prepare_seconds: int = 900  # until every host must be held; else all are released
    start_agent: bool = False  # on a host without a running one
    agent_server: str = ""  # that it reports to
    agent_tasks: AgentTasks | None = None  # that it takes, unless its host has an agent.toml
    owner: str = ""
    purpose: str = ""

    @property
    def wanted(self) -> int:
        return len(self.hosts) or self.count


@dataclasses.dataclass(frozen=True)
class Lease:
    """What is written on the host object: everything that a janitor needs."""

    id: str
    owner: str
    until_us: int
    cap_us: int  # `until_us` is never later
    purpose: str = ""

    def text(self) -> str:
        return json.dumps(vars(self), sort_keys=True)

    @classmethod
    def parse(cls, text: str) -> Lease | None:
        """Return the lease of a mark, or None for a text that overnight would not write."""
        if len(text) > MAX_RECORD:
            return None
        try:
            given = json.loads(text)
            lease = cls(**{field.name: given[field.name] for field in dataclasses.fields(cls)})
        except (ValueError, KeyError, TypeError, RecursionError):
            return None
        texts: tuple[object, ...] = (lease.id, lease.owner, lease.purpose)
        times = (lease.until_us, lease.cap_us)
        valid = all(isinstance(t, str) and t.isprintable() for t in texts) and all(
            type(t) is int and 0 <= t <= MAX_TIME_US for t in times
        )
        return lease if valid and LEASE_ID.fullmatch(lease.id) else None


@dataclasses.dataclass(frozen=True)
class Workload:
    """Something that runs on a host: a pod, an ECS task, a process.

    `stays` says why it is not evicted, such as "DaemonSet"; '' for one that would be.
    """

    name: str
    kind: str = ""
    stays: str = ""
    blocked: str = ""  # why it cannot be evicted now, such as a PodDisruptionBudget


@dataclasses.dataclass(frozen=True)
class Unseen:
    """Workloads may reach a host in a way that its platform does not show: how, or what is missing to look."""

    why: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class Candidate:
    """A host as its platform lists it. `facts` are what must equal production: kernel and image."""

    name: str
    labels: Mapping[str, str] = dataclasses.field(default_factory=dict)
    zone: str = ""
    instance_type: str = ""
    booted_us: int | None = None  # or created, where the platform does not know the boot
    unhealthy: str = ""  # why; '' for a healthy one
    taken: str = ""  # by whom; '' for a free one
    facts: Mapping[str, str] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, kw_only=True)
class HostPlan:
    """What reserving one host would do."""

    host: Candidate
    workloads: tuple[Workload, ...] = ()
    disrupts: tuple[str, ...] = ()  # besides evictions; needs --yes
    blockers: tuple[str, ...] = ()  # why it cannot be reserved
    warnings: tuple[str, ...] = ()
    differences: tuple[str, ...] = ()  # from the reference host


@dataclasses.dataclass(frozen=True)
class Preflight:
    """What a reservation would do, host by host; `left_out` says why each other host was not chosen."""

    order: Order
    hosts: tuple[HostPlan, ...]
    left_out: Mapping[str, str]
    # Set from the others: what happens to others, such as evictions; that, and what is not like production.
    disruptive: tuple[str, ...] = ()
    concerns: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        evicted = [
            f"evicts {w.kind} {foreign(w.name)} from {plan.host.name}".replace("  ", " ")
            for plan in self.hosts
            for w in plan.workloads
            if self.order.evict and not w.stays
        ]
        others = (text for plan in self.hosts for text in plan.disrupts)
        # Hosts of one group disturb the same.
        disruptive = tuple(dict.fromkeys((*evicted, *others)))
        differ = (f"{plan.host.name}: {text}" for plan in self.hosts for text in plan.differences)
        object.__setattr__(self, "disruptive", disruptive)
        object.__setattr__(self, "concerns", (*disruptive, *differ))

    def as_json(self) -> dict[str, Any]:
        """Return the document; docs/schemas/reservation-plan-1.json describes it."""
        return {"schema": "overnight.reservation-plan/1", **dataclasses.asdict(self)}


class CheckState(enum.StrEnum):
    PASSED = "passed"
    FAILED = "failed"
    UNKNOWN = "unknown"


@dataclasses.dataclass(frozen=True)
class Check:
    """One part of the acceptance of a host; `advice` is the counter-move of one that is not passed."""

    name: str  # foreign-workload, load-constancy, agent, clock, marks
    state: CheckState
    detail: str = ""
    advice: str = ""
    at_us: int = 0


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReservedHost:
    name: str
    state: HostState
    facts: Mapping[str, str] = dataclasses.field(default_factory=dict)
    agent: str = ""  # "found" (never stopped by us), "started" (by us), "" (none)
    checks: tuple[Check, ...] = ()
    detail: str = ""  # the last problem

    @classmethod
    def planned(cls, plan: HostPlan) -> ReservedHost:
        facts = dict(plan.host.facts)
        return cls(name=plan.host.name, state=HostState.PLANNED, facts=facts)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Member:
    """A host that is held, and where its agent is reached."""

    name: str  # as the platform has it
    agent: str  # as in ReservedHost
    # Name under which its agent reports to the server of the database; '' if it does not.
    fleet_host: str = ""
    agent_us: int | None = None  # when its agent was last heard; None: unknown


@dataclasses.dataclass(frozen=True, kw_only=True)
class Reservation:
    id: str
    order: Order
    state: ReservationState
    made_us: int
    until_us: int
    cap_us: int
    hosts: tuple[ReservedHost, ...] = ()
    reason: str = ""  # why it was released, or why it cannot be made
    fence: int = 0  # counts the drivers; a write of an older one is refused
    driver_until_us: int = 0
    attempts: int = 0  # failed ones in a row
    next_us: int = 0  # no driver tries again before

    @property
    def lease(self) -> Lease:
        return Lease(self.id, self.order.owner, self.until_us, self.cap_us, self.order.purpose)

    @property
    def held(self) -> tuple[ReservedHost, ...]:
        return tuple(host for host in self.hosts if host.state is HostState.HELD)

    @property
    def open(self) -> tuple[ReservedHost, ...]:
        """Return the hosts that may have marks."""
        return tuple(host for host in self.hosts if host.state is not HostState.RELEASED)

    @property
    def is_prepared(self) -> bool:
        """Whether the hosts are held and were checked once, or are given back."""
        if self.state is ReservationState.ACTIVE:
            return all(host.checks for host in self.held)
        return self.state is not ReservationState.PREPARING

    def as_json(self) -> dict[str, Any]:
        """Return the document; docs/schemas/reservation-1.json describes it."""
        return dataclasses.asdict(self)


@dataclasses.dataclass(frozen=True)
class Held:
    """A mark of ours on a platform, whoever made it. `lease` is None where the mark cannot be read."""

    host: str
    id: str
    lease: Lease | None
    claimed: bool = True  # whether the atomic claim exists, where it is an object of its own
    since_us: int | None = None  # when it was made, where the platform knows
    gone: str = ""  # why the host that was claimed is not there, where the platform knows


@dataclasses.dataclass(frozen=True)
class ReservationEvent:
    """Something that happened to a reservation: evidence that it was, or was not, undisturbed."""

    at_us: int
    kind: str  # created, held, renewed, foreign_workload, mark_lost, expired, released, failed
    host: str = ""
    detail: str = ""
