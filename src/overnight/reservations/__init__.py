"""Reservations: hosts taken out of production by the mechanism of their platform, and always given back.

Everything that must be undone is written on the host object itself, with owner and expiry, so that a janitor
that has nothing but the platform can undo it. The database has a record of it before the first call (state
PLANNED). A provider is a module of `providers` with `NAME` and `create(settings)`.

Order of calls for one host: `claim` (atomic), `mark`, `empty`, then `renew` from time to time, then `release`.
Every call may fail, take long, or be killed half-way, and may then be repeated. `release` undoes what any part
of them left, in any order, and touches nothing else.
"""

from __future__ import annotations

import dataclasses
import os
import pathlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from overnight import errors

if TYPE_CHECKING:
    from overnight.model.reservation import (
        AgentTasks,
        Candidate,
        Held,
        HostPlan,
        Lease,
        Order,
        Unseen,
        Workload,
    )
    from overnight.pools import control as pool_control

# Called at every boundary where a crash would matter: tests raise there.
Steps = Callable[[str], None]
Progress = Callable[[str], None]
IMAGE_VARIABLE = "OVERNIGHT_AGENT_IMAGE"


class TakenError(errors.ConflictError):
    """Another reservation has the host; choose another one."""


class GoneError(TakenError):
    """The host does not exist any more, or another one has its name."""


class NotEmptyError(errors.ConflictError):
    """Workloads are still on the host at the deadline."""


class PlatformError(errors.CannotError):
    """The platform refused or did not answer; `retry` if it may answer later."""

    def __init__(self, what: str, *, why: str, todo: str, retry: bool = True) -> None:
        super().__init__(what, why=why, todo=todo)
        self.retry = retry


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings:
    """What a provider may need."""

    home: pathlib.Path
    pools: Callable[[], pool_control.ControlPlane] | None = None  # opens them
    namespace: str = "overnight"  # of Kubernetes: Leases, and pods of agents
    # Container image of an agent that is started on a node.
    image: str = dataclasses.field(default_factory=lambda: os.environ.get(IMAGE_VARIABLE, ""))
    steps: Steps = lambda _: None


@dataclasses.dataclass(frozen=True, kw_only=True)
class AgentSetup:
    """How an agent that a provider starts reaches its server, and what it does for it. The token is used once."""

    server: str
    token: str = dataclasses.field(default="", repr=False)
    tasks: AgentTasks | None = None  # None: those of every agent

    def options(self, config: str) -> list[str]:
        """Return the options of `overnight agent` for its tasks; `config` is the file that has them."""
        # A task of kind record records stacks.
        return ["--signals-only", f"--default-config={config}"] if self.tasks else []


@dataclasses.dataclass(frozen=True)
class Heard:
    """What is known of the agent and the clock of a host; None: unknown."""

    agent_us: int | None = None  # when its agent was last heard
    skew_us: int | None = None  # its clock less ours
    name: str = ""  # of its agent in the fleet, which may not be the platform's name of the host


class Provider(Protocol):
    """One platform. A method that takes an `order` uses its `where` and `region` alone, unless it says so."""

    name: str
    # Fields of Order that it refuses unless they have their default.
    ignores: frozenset[str] = frozenset()

    def list_hosts(self, order: Order) -> Sequence[Candidate]:
        """List every host of the place, also those that are taken or unhealthy."""

    def plan(self, host: Candidate, order: Order) -> HostPlan:
        """Return what reserving this host would do; uses all of the order, changes nothing."""

    def claim(self, host: str, order: Order, lease: Lease) -> None:
        """Claim a host atomically; raise TakenError if another lease has it. Repeatable for the same lease."""

    def mark(self, host: str, order: Order, lease: Lease) -> None:
        """Keep new workloads off the host, and write the lease on it. Repeatable."""

    def empty(self, host: str, order: Order, lease: Lease, progress: Progress) -> bool:
        """Take one step towards an empty host; return whether it is. Called again until the deadline.

        Evicts only if `order.evict`; otherwise only reports.
        """

    def renew(self, host: str, order: Order, lease: Lease) -> bool:
        """Write a later expiry on the host; False, and no change, if it lost a mark; GoneError if it lost all."""

    def release(self, host: str, order: Order, lease_id: str) -> None:
        """Remove every mark of this lease, and nothing else; a host that is gone is released."""

    def list_held(self, order: Order) -> Sequence[Held]:
        """List all marks of ours on the platform, of every owner, for the janitor."""

    def list_workloads(self, host: str, order: Order, lease: Lease) -> Sequence[Workload] | Unseen:
        """List workloads on a reserved host, with `stays` for its own, and `blocked` if `order.evict`."""

    def start_agent(self, host: str, order: Order, lease: Lease, setup: AgentSetup) -> None:
        """Start an agent that lasts as long as the lease; raise PlatformError if the platform cannot. Repeatable."""

    def stop_agent(self, host: str, order: Order, lease_id: str) -> None:
        """Stop the agent that `start_agent` started, and remove what it left; `release` does this, too."""


@runtime_checkable
class HearsHosts(Protocol):
    """A provider that knows itself whether an agent runs on a host."""

    def hear(self, host: str, order: Order) -> Heard | None:
        """Return what is known of the agent and the clock of a host; None to ask the fleet instead."""


@runtime_checkable
class ReachesSome(Protocol):
    """A provider whose hosts only some machines can reach: drivers elsewhere leave them alone."""

    def reaches(self, host: str) -> bool:
        """Return whether a host can be marked and released from this machine."""
