"""The control plane: every operation on pools, by the names that operators use.

    plane = control.ControlPlane(database.Database("sqlite:////var/lib/overnight/pools.db"), providers)
    plane.create(name="ci", template="runner", target_size=5)
    [grant] = plane.acquire("ci", acquired_by="job-17", wait_seconds=60)
    plane.give_back(grant.claim.id)

Several control planes may use one database at once, in one process or in many.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from overnight.model.pool import (
    Autoscale,
    Claim,
    Grant,
    Member,
    MemberDetails,
    Past,
    Pool,
    PoolDetails,
    Request,
)
from overnight.pools import (
    admin,
    autoscaler,
    claims,
    context,
    database,
    enrolment,
    maintenance,
    members,
    pool_errors,
    reconciler,
)
from overnight.pools.sql import member_rows, pool_rows, shared_values

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from overnight import pools
    from overnight.pools import autoscale as autoscale_decision

__all__ = ["ControlPlane"]

PARAMETERS = tuple(field.name for field in dataclasses.fields(Request))
STRINGS = ("acquired_by", "acquired_for", "idempotency_key")
NUMBERS = ("count", "lease_seconds", "priority")
OPTIONAL = ("idempotency_key", "lease_seconds")
PRIORITIES = range(-1_000_000, 1_000_001)


class ControlPlane:
    def __init__(
        self,
        where: database.Database,
        providers: Mapping[str, pools.Provider],
        *,
        clock: Callable[[], int] = context.now_us,
    ) -> None:
        self.context = context.make(where, providers, clock=clock)
        self._maintenance = maintenance.Maintenance(self.context)
        self._admin = admin.PoolAdmin(self.context, self._maintenance)
        self._autoscaler = autoscaler.Autoscaler(self.context, self._admin)
        self._claims = claims.ClaimBroker(self.context, self.replenish)
        self._members = members.MemberActions(self.context, self._maintenance)
        self._reconciler = reconciler.Reconciler(self.context)
        self.enrolment = enrolment.Enrolment(self.context)

    # pools

    def create(self, **given: object) -> Pool:
        """Create a pool: name, template and target_size are required; `admin.CREATE` lists the rest."""
        return self._admin.create(given)

    def list(self, *, archived: bool = False) -> tuple[PoolDetails, ...]:
        """Return the pools with their counts, without archived ones by default."""
        return self._admin.list(archived=archived)

    def show(self, name: str, *, recent: int = admin.RECENT) -> PoolDetails:
        """Return a pool with members, claims, waiting callers and recent events."""
        return self._admin.show(name, recent=recent)

    def past(self, name: str, seconds: int = 7 * 86400) -> Past:
        """Return when members were requested, missed claims too, and how long warm-ups took."""
        return self._admin.past(name, seconds)

    def update(self, name: str, /, **given: object) -> Pool:
        """Change sizes, settings, template, status (active, paused, archived); close_breaker=True.

        `target_size` is refused for a pool with an autoscale policy.
        """
        return self._admin.update(name, given)

    def check(self, name: str) -> None:
        """Raise if the provider would refuse every launch, e.g. for an endpoint that members cannot reach."""
        self._admin.check(name)

    def drain(self, name: str) -> dict[str, int]:
        """Terminate unclaimed members: `{drained, claimed_remaining}`."""
        return self._admin.drain(name)

    def delete(self, name: str) -> None:
        """Delete a pool that has no members."""
        self._admin.delete(name)

    # autoscale

    def autoscale(self, name: str, /, **given: object) -> Autoscale:
        """Give a pool a policy, or change the one it has; `policies.NAMES` lists the fields."""
        return self._autoscaler.set(name, given)

    def autoscale_off(self, name: str) -> bool:
        """Remove the policy, keeping the size; False if there was none."""
        return self._autoscaler.off(name)

    def outlook(self, name: str, /, **given: object) -> autoscaler.Outlook:
        """Return what the policy, with these changes, would decide now, and why; changes nothing."""
        return self._autoscaler.outlook(name, given)

    def scale(self, name: str) -> autoscale_decision.Decision | None:
        """Decide the size by the pool's policy now; None when there is nothing to decide."""
        return self._autoscaler.step(name)

    # claims

    def acquire(self, name: str, /, **request: object) -> tuple[Grant, ...]:
        """Claim ready members: as many as requested, or none."""
        return self._claims.acquire(name, _check_request(request))

    def renew(self, claim_id: str, lease_seconds: int) -> Claim:
        return self._members.renew(claim_id, lease_seconds)

    def give_back(self, claim_id: str) -> Member:
        """Return a member: it is reused where the pool allows it, otherwise recycled."""
        return self._members.give_back(claim_id)

    def terminate(self, member_id: str, *, forget: bool = False) -> Member:
        return self._members.terminate(member_id, forget=forget)

    def cordon(self, member_id: str) -> Member:
        """Hold a member for inspection."""
        return self._members.cordon(member_id)

    def uncordon(self, member_id: str) -> Member:
        """Release a cordoned member."""
        return self._members.cordon(member_id, held=False)

    def member(self, member_id: str) -> Member:
        """Return a member, also one that is gone."""
        with self.context.database.read() as connection:
            return member_rows.find(connection, member_id)

    def show_member(self, member_id: str, *, recent: int = admin.RECENT) -> MemberDetails:
        """Return a member with its claims and recent events, also one that is gone."""
        return self._admin.show_member(member_id, recent=recent)

    # maintenance

    def replenish(self, name: str) -> int:
        """Launch what is missing now; return how many were launched."""
        return self._maintenance.replenish(name, endpoint=self.endpoint)

    def recycle(self, name: str) -> int:
        """Retire what is stale now; return how many changed."""
        return self._maintenance.recycle(name)

    def terminate_due(self, name: str) -> int:
        """Terminate the machines that are due; return how many ended."""
        with self.context.database.read() as connection:
            pool = pool_rows.find(connection, name)
        return self._maintenance.terminate_due(pool)

    def sweep(self, provider: str) -> reconciler.SweepResult:
        """Compare a provider's machines with the rows."""
        return self._reconciler.run(provider)

    def orphans_left(self, provider: str) -> int:
        """Count the machines without a member that the last sweep could not terminate."""
        return int(self.get(reconciler.orphans_name(provider)) or 0)

    def providers_in_use(self) -> tuple[str, ...]:
        """Return the providers that a pool has ever named and this control plane has."""
        return tuple(n for n in self._admin.providers() if n in self.context.providers)

    # values that control planes share

    @property
    def endpoint(self) -> str:
        """The URL that members report to; '' if no reaper has ever served."""
        with self.context.database.read() as connection:
            return shared_values.get(connection, "endpoint")

    def set(self, name: str, value: str) -> None:
        """Save a named value for every control plane."""
        with self.context.database.write("set") as connection:
            shared_values.put(connection, name, value)

    def get(self, name: str) -> str:
        """Return a named value; '' if there is none."""
        with self.context.database.read() as connection:
            return shared_values.get(connection, name)


def _check_request(given: Mapping[str, object]) -> Request:
    for name, value in given.items():
        if name not in PARAMETERS:
            raise pool_errors.UnknownParameterError(name, PARAMETERS)
        if value is None and name in OPTIONAL:
            continue
        if name in STRINGS and not isinstance(value, str):
            raise pool_errors.BadKnobError(name, value, "a string")
        if name == "idempotency_key" and not value:
            # Typically an unset variable: all callers would share one claim.
            raise pool_errors.BadKnobError(name, value, "a non-empty string")
        if name in NUMBERS and (isinstance(value, bool) or not isinstance(value, int)):
            raise pool_errors.BadKnobError(name, value, "a whole number")
        if name == "priority" and value not in PRIORITIES:
            wanted = f"a whole number from {PRIORITIES[0]} to {PRIORITIES[-1]}"
            raise pool_errors.BadKnobError(name, value, wanted)
        if name == "cold" and not isinstance(value, bool):
            raise pool_errors.BadKnobError(name, value, "true or false")
        if name == "wait_seconds" and (
            isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 10**7
        ):
            raise pool_errors.BadKnobError(name, value, "seconds, 0 or more")
    return Request(**given)  # type: ignore[arg-type]  # each was checked
