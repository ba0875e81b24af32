"""One-shot clusters as frozen values: many members at once, held together under one lease. Times are µs since 1970."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Mapping

from overnight.model import times
from overnight.model.pool import PoolDetails, Problem  # noqa: TC001  servers and clients read hints
from overnight.model.text import foreign, plural

HOUR_SECONDS = 3600


class ClusterState(enum.StrEnum):
    ASSEMBLING = "assembling"  # members are launched; none is handed over yet
    HELD = "held"  # the members are claimed, until they are released or the lease ends
    ENDED = "ended"  # nothing is handed over any more; machines may still be terminating


@dataclasses.dataclass(frozen=True, kw_only=True)
class ClusterOrder:
    """A request for many members at once."""

    count: int
    template: str
    at_least: int | None = None  # accept this many if not all come up; None: all or nothing
    provider: str = "process"
    lease_seconds: int = 4 * HOUR_SECONDS  # from the moment that the cluster is held
    wait_seconds: int = 1800  # until it is held
    lifecycle_class: str | None = None
    region: str | None = None
    preferred_regions: tuple[str, ...] | None = None
    instance_type: str | None = None
    labels: Mapping[str, str] | None = None
    settings: Mapping[str, object] = dataclasses.field(default_factory=dict)
    acquired_by: str = ""
    acquired_for: str = ""
    cost_per_host_hour: float | None = None  # only for the plan


@dataclasses.dataclass(frozen=True, kw_only=True)
class ClusterPlan:
    """The hosts and the maximum cost of a cluster."""

    order: ClusterOrder
    host_hours: float
    cost: float | None = None  # None: without a price

    @property
    def what(self) -> str:
        order = self.order
        return f"{plural(order.count, 'host')} of {foreign(order.provider)}, template {foreign(order.template)}"

    @property
    def limits(self) -> str:
        order, length = self.order, times.format_duration
        price = "" if self.cost is None else f", {self.cost:,.2f}"
        return (
            f"at most {length(order.wait_seconds)} to assemble and {length(order.lease_seconds)} of lease: "
            f"{self.host_hours:,.1f} host-hours{price}"
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Cluster:
    """A cluster; its id is also the name and the id of the pool that holds its members."""

    id: str
    template: str
    provider: str
    count: int
    at_least: int
    lease_seconds: int
    acquired_by: str = ""
    acquired_for: str = ""
    created_us: int = 0
    assemble_until_us: int | None = None  # None: it is not assembling any more
    held_us: int | None = None
    ended_us: int | None = None
    reason: str = ""  # why it ended

    @property
    def state(self) -> ClusterState:
        if self.ended_us is not None:
            return ClusterState.ENDED
        return ClusterState.ASSEMBLING if self.held_us is None else ClusterState.HELD


@dataclasses.dataclass(frozen=True)
class ClusterReport:
    """A cluster with its members, claims, events and problems."""

    cluster: Cluster
    details: PoolDetails
    problems: tuple[Problem, ...] = ()
