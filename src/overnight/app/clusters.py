"""Use cases of one-shot clusters: many members at once, given back by a lease."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from overnight import errors
from overnight.app import pools
from overnight.model.cluster import ClusterPlan, ClusterReport, ClusterState

if TYPE_CHECKING:
    from collections.abc import Callable

    from overnight.model.cluster import Cluster, ClusterOrder
    from overnight.model.pool import PoolDetails

FOLLOW_SECONDS = 0.5


class Clusters:
    """The clusters of a database; the reaper of `overnight pool serve`, or of a server, carries them out."""

    def __init__(self, where: pools.Pools) -> None:
        self._pools = where

    def preflight(self, order: ClusterOrder) -> ClusterPlan:
        """Show the hosts and the maximum cost of a cluster; impossible orders are refused."""
        self._pools.plane.clusters.check(order)
        hours = order.count * (order.wait_seconds + order.lease_seconds) / 3600
        price = order.cost_per_host_hour
        return ClusterPlan(
            order=order, host_hours=hours, cost=None if price is None else hours * price
        )

    def create(
        self, order: ClusterOrder, *, confirmed: bool, idempotency_key: str = ""
    ) -> ClusterReport:
        """Order many members at once, all or `at_least` of them; refused unless `confirmed`.

        The reaper launches them, hands them over together, and terminates them when the lease ends. The same key
        returns the same cluster.
        """
        from overnight.pools import problems

        plan, plane = self.preflight(order), self._pools.plane
        if not confirmed:
            raise errors.UnconfirmedError(plan.what, why=plan.limits, todo="add --yes")
        pools.require_endpoint(plane)
        seen = plane.reaper_us
        if seen is None or plane.context.clock() - seen > problems.REAPER_LATE_US:
            raise errors.CannotError(
                "a cluster cannot be created now",
                why="no reaper is running, which launches its members and ends them after the lease",
                todo="overnight pool serve",
            )
        return self.show(plane.clusters.create(order, idempotency_key).id)

    def list(self, *, ended: bool = False) -> tuple[ClusterReport, ...]:
        """List clusters, the newest first."""
        found = self._pools.plane.clusters.list(ended=ended)
        return tuple(self._report(cluster, details) for cluster, details in found)

    def show(self, cluster_id: str, *, recent: int = 20) -> ClusterReport:
        """Show a cluster with its members, claims, events and problems, also after its end."""
        return self._report(*self._pools.plane.clusters.show(cluster_id, recent=recent))

    def _report(self, cluster: Cluster, details: PoolDetails) -> ClusterReport:
        if cluster.state is ClusterState.ENDED and not details.counts.members:
            return ClusterReport(cluster, details)
        found = pools.find_problems(self._pools.plane, details)
        if cluster.state is ClusterState.HELD:  # its claims are meant to remain
            found = tuple(problem for problem in found if problem.name != "claims_remain")
        return ClusterReport(cluster, details, found)

    def cancel(self, cluster_id: str) -> ClusterReport:
        """Cancel a cluster that is assembling, and terminate its members."""
        self._pools.plane.clusters.end(cluster_id, ClusterState.ASSEMBLING, "cancelled")
        return self.show(cluster_id)

    def renew(self, cluster_id: str, lease_seconds: int) -> ClusterReport:
        """Extend the lease of a cluster that is held, from now."""
        self._pools.plane.clusters.renew(cluster_id, lease_seconds)
        return self.show(cluster_id)

    def release(self, cluster_id: str) -> ClusterReport:
        """Give back a cluster that is held: its claims end, and its machines are terminated."""
        self._pools.plane.clusters.end(cluster_id, ClusterState.HELD, "released")
        return self.show(cluster_id)

    def follow(
        self, cluster_id: str, progress: Callable[[ClusterReport], None] = lambda _: None
    ) -> ClusterReport:
        """Show a cluster until it is held or has ended."""
        while True:
            report = self.show(cluster_id)
            progress(report)
            if report.cluster.state is not ClusterState.ASSEMBLING:
                return report
            time.sleep(FOLLOW_SECONDS)
