"""The control plane: every operation on pools, by the names that operators use.

    plane = control.ControlPlane(engine.Database("sqlite:////var/lib/overnight/pools.db"), providers)
    plane.create(name="ci", template="runner", target_size=5)
    [grant] = plane.acquire("ci", acquired_by="job-17", wait_seconds=60)
    plane.give_back(grant.claim.id)

Several control planes may use one database at once, in one process or in many.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from overnight.model import times
from overnight.pools import (
    admin,
    autoscaler,
    claims,
    clusters,
    context,
    enrolment,
    explainer,
    maintenance,
    members,
    reconciler,
    reserved_claims,
)
from overnight.pools.sql import pool_rows, shared_values

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from overnight import pools
    from overnight.database import engine


class ControlPlane:
    def __init__(
        self,
        where: engine.Database,
        providers: Mapping[str, pools.Provider],
        *,
        clock: Callable[[], int] = times.now_us,
    ) -> None:
        self.context = control = context.make(where, providers, clock=clock)
        self._maintenance = work = maintenance.Maintenance(control)
        self._claims = claims.ClaimBroker(control, work.replenish)
        self.reserved = reserved_claims.ReservedClaims(control)
        self.enrolment = enrolment.Enrolment(control)

        administration = admin.PoolAdmin(control, work)
        self.create, self.update = administration.create, administration.update
        self.list, self.show = administration.list, administration.show
        self.show_member, self.past = administration.show_member, administration.past
        self.check, self.events = administration.check, administration.events
        self.drain, self.delete = administration.drain, administration.delete

        self.clusters = clusters.ClusterControl(control, work, administration)

        scaler = autoscaler.Autoscaler(control, administration)
        self.autoscale, self.autoscale_off = scaler.set, scaler.off
        self.outlook, self.scale = scaler.outlook, scaler.step

        actions = members.MemberActions(control, work)
        self.acquire = self._claims.acquire
        self.renew, self.give_back = actions.renew, actions.give_back
        self.find_claim = actions.find_claim
        self.return_member = actions.return_member
        self.member, self.terminate = actions.find, actions.terminate
        self.set_cordoned, self.forget = actions.set_cordoned, actions.forget
        self.cancel = actions.cancel
        self.explain = explainer.Explainer(control, administration).explain

        self.replenish, self.recycle = work.replenish, work.recycle
        self.sweep = functools.partial(reconciler.sweep, control)

    def terminate_due(self, name: str) -> int:
        """Terminate the machines that are due; return how many ended."""
        with self.context.database.read() as connection:
            pool = pool_rows.find(connection, name)
        return self._maintenance.terminate_due(pool)

    def orphans_left(self, provider: str) -> int:
        """Count the machines without a member that the last sweeps could not terminate."""
        with self.context.database.read() as connection:
            return shared_values.count_orphans(connection, provider)

    def providers_in_use(self) -> tuple[str, ...]:
        """Return the providers that a pool has ever named and this control plane has."""
        with self.context.database.read() as connection:
            named = shared_values.list_providers(connection)
        return tuple(name for name in named if name in self.context.providers)

    # values that control planes share

    @property
    def endpoint(self) -> str:
        """The URL that members report to; '' if no reaper has ever served."""
        return self.get("endpoint")

    @property
    def reaper_us(self) -> int | None:
        """When a reaper last reported; None if none ever did."""
        with self.context.database.read() as connection:
            return shared_values.read_seen(connection)

    def set(self, name: str, value: str) -> None:
        with self.context.database.write("set") as connection:
            shared_values.put(connection, name, value)

    def get(self, name: str) -> str:
        with self.context.database.read() as connection:
            return shared_values.get(connection, name)
