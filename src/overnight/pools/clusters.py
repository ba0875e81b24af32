"""One-shot clusters: many members at once, handed over together, given back by a lease.

A cluster is a pool that launches while it is paused, so that nobody else claims its members. When enough are
ready, one transaction claims them all and archives the pool, which launches nothing and terminates the rest.
From there on everything is what pools do: leases end claims, and members end with their claims. Each step is
one transaction that the reaper takes, whichever process asked for the cluster.
"""

from __future__ import annotations

import dataclasses
import hashlib
import math
from typing import TYPE_CHECKING

from overnight.model.cluster import Cluster, ClusterOrder, ClusterState
from overnight.model.pool import PoolDetails, PoolStatus, Request, new_id
from overnight.model.reservation import MAX_SECONDS
from overnight.model.times import SECOND_US
from overnight.pools import (
    admin,
    claims,
    cluster_steps,
    decisions,
    members,
    pool_errors,
    settings,
)
from overnight.pools.sql import claim_rows, cluster_rows, event_rows, member_rows, pool_rows

if TYPE_CHECKING:
    from overnight.database import engine
    from overnight.model.pool import Pool
    from overnight.pools import context, maintenance

PREFIX = "cluster"
RETRY_SECONDS = 60  # an assembling cluster does not wait for half an hour after failures that pass
MADE_FROM = ("lifecycle_class", "region", "preferred_regions", "instance_type", "labels")
SAME = ("template", "provider", "count", "at_least", "lease_seconds", "acquired_by", "acquired_for")
State = ClusterState


class ClusterControl:
    def __init__(
        self, control: context.Context, work: maintenance.Maintenance, pools: admin.PoolAdmin
    ) -> None:
        self._control = control
        self._database = control.database
        self._maintenance = work
        self._admin = pools

    def check(self, order: ClusterOrder) -> Pool:
        """Return the pool that the order needs; raises for one that could never be served."""
        at_least = order.count if order.at_least is None else order.at_least
        for name, value, most in (
            ("count", order.count, admin.MAX_SIZE),
            ("at_least", at_least, order.count),
            ("lease_seconds", order.lease_seconds, MAX_SECONDS),
            ("wait_seconds", order.wait_seconds, MAX_SECONDS),
        ):
            pool_errors.check_whole(name, value, 1, most)
        price = order.cost_per_host_hour
        if price is not None and not 0 <= price < math.inf:
            raise pool_errors.BadKnobError("cost_per_host_hour", price, "0 or more")
        pool_errors.check_known(order.settings, settings.NAMES)
        given = {n: v for n in MADE_FROM if (v := getattr(order, n)) is not None}
        chosen = {
            "lease_max_seconds": max(order.lease_seconds, settings.DEFAULTS.lease_max_seconds),
            "breaker_retry_seconds": RETRY_SECONDS,
            **order.settings,
        }
        pool = self._admin.build(
            name=new_id(PREFIX), template=order.template, provider=order.provider,
            min_size=at_least, target_size=order.count, max_size=order.count,
            **given, **chosen,
        )  # fmt: skip
        until = pool.created_us + order.wait_seconds * SECOND_US
        return dataclasses.replace(pool, status=PoolStatus.PAUSED, assemble_until_us=until)

    def create(self, order: ClusterOrder, key: str = "") -> Cluster:
        """Write the order, which the reaper carries out; the same key returns the same cluster."""
        pool = self.check(order)
        name = pool.name
        if key:
            name = f"{PREFIX}-{hashlib.sha256(key.encode('utf-8', 'replace')).hexdigest()[:12]}"
        pool = dataclasses.replace(pool, id=name, name=name)
        cluster = cluster_rows.build(
            pool, lease_seconds=order.lease_seconds, acquired_by=order.acquired_by,
            acquired_for=order.acquired_for, reason="",
        )  # fmt: skip
        try:
            with self._database.write("create cluster") as connection:
                self._admin.insert(connection, pool, kind="cluster_created")
                cluster_rows.insert(connection, cluster)
        except pool_errors.PoolExistsError:
            made, _ = self.show(name, recent=0)
            if any(getattr(made, field) != getattr(cluster, field) for field in SAME):
                raise pool_errors.KeyReusedError(key) from None
            return made
        self._control.notifier.notify()
        return cluster

    def list(self, *, ended: bool = False) -> list[tuple[Cluster, PoolDetails]]:
        """Return the clusters, the newest first; with `ended` also those that have no members any more."""
        with self._database.read() as connection:
            names = cluster_rows.list_ids(connection, ended=ended)
        return [self.show(name, recent=0) for name in names]

    def show(self, cluster_id: str, *, recent: int) -> tuple[Cluster, PoolDetails]:
        """Return a cluster, also one that has ended, with its members, claims and last events."""
        with self._database.read() as connection:
            pool, cluster = cluster_rows.read(connection, cluster_id)
            return cluster, self._admin.read_details(connection, pool, recent)

    def end(self, cluster_id: str, expected: ClusterState, reason: str) -> None:
        """Give up a cluster in this state; again for one that ended this way changes nothing."""
        with self._database.write("end cluster") as connection:
            pool, cluster = cluster_rows.read(connection, cluster_id, lock=True)
            if cluster.state is State.ENDED and cluster.reason == reason:
                return
            if cluster.state is not expected:
                raise pool_errors.ClusterStateError(cluster, reason)
            pool = self._apply(connection, pool, cluster, cluster_steps.End(reason))
        self._finish(pool)

    def renew(self, cluster_id: str, lease_seconds: int) -> None:
        """Extend the leases of a held cluster, in one transaction, up to the cap of its claims."""
        with self._database.write("renew cluster") as connection:
            pool, cluster = cluster_rows.read(connection, cluster_id, lock=True)
            now = self._control.clock()
            # A lease that is over cannot be restored, even if no reaper has ended the claim yet.
            held = claim_rows.list_open(connection, pool.id)
            held = [claim for claim in held if now < (claim.lease_until_us or 0)]
            if cluster.state is State.HELD and not held:
                cluster = dataclasses.replace(cluster, ended_us=now, reason="lease_expired")
            if cluster.state is not State.HELD:
                raise pool_errors.ClusterStateError(cluster, "renewed")
            for claim in held:
                members.renew(connection, pool, claim, lease_seconds, now)

    def step(self, pool: Pool) -> None:
        """Take the step of a cluster that is due, if there is one; raises PoolNotFoundError after the last."""
        if not (pool.assembles or pool.status is PoolStatus.ARCHIVED):
            return
        with self._database.read() as connection:
            cluster = cluster_rows.find(connection, pool)
            if cluster is None or self._decide(connection, pool, cluster) is None:
                return
        with self._database.write("cluster step") as connection:
            pool = pool_rows.lock(connection, pool.id)
            cluster = cluster_rows.find(connection, pool) or cluster
            step = self._decide(connection, pool, cluster, lock=True)
            if step is None:
                return  # another reaper has taken it
            pool = self._apply(connection, pool, cluster, step)
        self._finish(pool)

    def _decide(
        self, connection: engine.Connection, pool: Pool, cluster: Cluster, *, lock: bool = False
    ) -> cluster_steps.Step | None:
        now = self._control.clock()
        view = pool_rows.view(connection, pool, now)
        ready = member_rows.list_claimable(connection, pool, cluster.count, now, lock=lock)
        expired = False
        if cluster.state is State.HELD and not view.claims:
            ended = claim_rows.list_recent(connection, cluster.count, pool_id=pool.id)
            expired = any(claim.release_reason == "lease_expired" for claim in ended)
        return cluster_steps.decide(cluster, view, len(ready), expired=expired)

    def _apply(
        self,
        connection: engine.Connection,
        pool: Pool,
        cluster: Cluster,
        step: cluster_steps.Step,
    ) -> Pool:
        now = self._control.clock()
        match step:
            case cluster_steps.Forget():
                pool_rows.delete(connection, pool, now)
                event_rows.add(connection, "pool_deleted", now, pool=pool, reason="cluster_ended")
                return pool
            case cluster_steps.Hold(count):
                ready = member_rows.list_claimable(connection, pool, count, now, lock=True)
                request = Request(
                    count=count, acquired_by=cluster.acquired_by, acquired_for=cluster.acquired_for,
                    lease_seconds=cluster.lease_seconds,
                )  # fmt: skip
                claims.grant(connection, pool, ready, request, now, waited_us=now - pool.created_us)
                cluster_rows.save(connection, cluster.id, held_us=now)
                event_rows.add(
                    connection, "cluster_held", now, pool=pool, detail=f"{count} of {cluster.count}"
                )
            case cluster_steps.End(reason):
                for claim in pool_rows.view(connection, pool, now).claims:
                    ending = decisions.EndClaim(claim.id, claim.member_id, reason)
                    self._maintenance.apply(connection, pool, ending, now)
                cluster_rows.save(connection, cluster.id, ended_us=now, reason=reason)
                event_rows.add(connection, "cluster_ended", now, pool=pool, reason=reason)
        pool = dataclasses.replace(
            pool, status=PoolStatus.ARCHIVED, assemble_until_us=None, updated_us=now
        )
        pool_rows.save(connection, pool)
        self._maintenance.retire_unclaimed(connection, pool, now)
        return pool

    def _finish(self, pool: Pool) -> None:
        self._control.notifier.notify()
        self._maintenance.terminate_due(pool)
