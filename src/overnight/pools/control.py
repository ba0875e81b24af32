"""The control plane as Python: every operation of a pool, by the names that operators use.

    plane = control.ControlPlane(database.Database("sqlite:////var/lib/overnight/pools.db"), providers)
    plane.create(name="ci", template="runner", target_size=5)
    [grant] = plane.acquire("ci", acquired_by="job-17", wait_seconds=60)
    plane.give_back(grant.claim.id)

Several may work on one database at once, in one process or in many.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from overnight.model.pool import Autoscale, Claim, Grant, Member, Past, Pool, Request
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
from overnight.pools.sql import records

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from overnight import pools
    from overnight.pools import autoscale as following

__all__ = ["ControlPlane"]

ASKED = tuple(field.name for field in dataclasses.fields(Request))
WORDS = ("acquired_by", "acquired_for", "idempotency_key")
NUMBERS = ("count", "lease_seconds", "priority")
OPTIONAL = ("idempotency_key", "lease_seconds")
PRIORITIES = range(-1_000_000, 1_000_001)


class ControlPlane:
    """Everything that can be done with pools."""

    def __init__(
        self,
        where: database.Database,
        providers: Mapping[str, pools.Provider],
        *,
        clock: Callable[[], int] = context.now_us,
    ) -> None:
        self.context = context.make(where, providers, clock=clock)
        self._upkeep = maintenance.Maintenance(self.context)
        self._admin = admin.PoolAdmin(self.context, self._upkeep)
        self._scaling = autoscaler.Autoscaler(self.context, self._admin)
        self._claiming = claims.ClaimBroker(self.context, self.replenish)
        self._returning = members.MemberActions(self.context, self._upkeep)
        self._sweep = reconciler.Reconciler(self.context)
        self.door = enrolment.Enrolment(self.context)

    # pools

    def create(self, **given: object) -> Pool:
        """A new pool: name, template and target_size, and whatever `admin.CREATE` lists."""
        return self._admin.create(given)

    def list(self, *, archived: bool = False) -> tuple[admin.PoolDetails, ...]:
        """Pools with their counts; archived ones only where asked for."""
        return self._admin.list(archived=archived)

    def show(self, name: str, *, recent: int = admin.RECENT) -> admin.PoolDetails:
        """One pool with members, claims, waiters and recent events."""
        return self._admin.show(name, recent=recent)

    def past(self, name: str, seconds: int = 7 * 86400) -> Past:
        """When members were asked for, missed claims too, and how long warm-ups took."""
        return self._admin.past(name, seconds)

    def update(self, name: str, /, **given: object) -> Pool:
        """Sizes, knobs, template, status (active, paused, archived), close_breaker=True.

        The target of a pool with an autoscale policy is refused.
        """
        return self._admin.update(name, given)

    def check(self, name: str) -> None:
        """Raises where its provider would refuse every launch: an endpoint that members cannot reach."""
        self._admin.check(name)

    def drain(self, name: str) -> dict[str, int]:
        """End what nobody claimed: `{drained, claimed_remaining}`."""
        return self._admin.drain(name)

    def delete(self, name: str) -> None:
        """Remove a pool that has no members."""
        self._admin.delete(name)

    # sizes that follow

    def autoscale(self, name: str, /, **given: object) -> Autoscale:
        """Give a pool a policy, or change the one it has: what `policies.NAMES` lists."""
        return self._scaling.set(name, given)

    def autoscale_off(self, name: str) -> bool:
        """Take it away; the size stays as it is. False: there was none."""
        return self._scaling.off(name)

    def outlook(self, name: str, /, **given: object) -> autoscaler.Outlook:
        """What the policy, with those changes, would decide now, and why. Nothing is changed."""
        return self._scaling.outlook(name, given)

    def follow(self, name: str) -> following.Decision | None:
        """Decide the size by the pool's policy, now; None when there is nothing to decide."""
        return self._scaling.step(name)

    # claims

    def acquire(self, name: str, /, **asked: object) -> tuple[Grant, ...]:
        """Claim ready members: all that were asked for, or none."""
        return self._claiming.acquire(name, _request(asked))

    def renew(self, claim_id: str, lease_seconds: int) -> Claim:
        """Extend a lease."""
        return self._returning.renew(claim_id, lease_seconds)

    def give_back(self, claim_id: str) -> Member:
        """Return a member: reused where the pool allows it, else recycled."""
        return self._returning.give_back(claim_id)

    def terminate(self, member_id: str, *, forget: bool = False) -> Member:
        """End one member."""
        return self._returning.terminate(member_id, forget=forget)

    def cordon(self, member_id: str) -> Member:
        """Hold a member back, to look at it."""
        return self._returning.cordon(member_id)

    def uncordon(self, member_id: str) -> Member:
        """Let it be given out again."""
        return self._returning.cordon(member_id, held=False)

    def member(self, member_id: str) -> Member:
        """One member, gone ones too."""
        with self.context.database.read() as connection:
            return records.find_member(connection, member_id)

    def show_member(self, member_id: str, *, recent: int = admin.RECENT) -> admin.MemberDetails:
        """One member with its claims and recent events, gone ones too."""
        return self._admin.show_member(member_id, recent=recent)

    # upkeep

    def replenish(self, name: str) -> int:
        """Launch what is missing, now; how many."""
        return self._upkeep.replenish(name, endpoint=self.endpoint)

    def recycle(self, name: str) -> int:
        """End what is stale, now; how many changed."""
        return self._upkeep.recycle(name)

    def end_due(self, name: str) -> int:
        """Ask the provider to end what is on its way out; how many ended."""
        with self.context.database.read() as connection:
            pool = records.find_pool(connection, name)
        return self._upkeep.end(pool)

    def sweep(self, provider: str) -> reconciler.SweepResult:
        """Hold a provider's machines against the rows."""
        return self._sweep.run(provider)

    def orphans_left(self, provider: str) -> int:
        """Machines that no row stands for and that would not end, at the last sweep."""
        return int(self.get(reconciler.orphans_setting(provider)) or 0)

    def providers_in_use(self) -> tuple[str, ...]:
        """Those that a pool has ever named and this control plane has."""
        return tuple(n for n in self._admin.providers() if n in self.context.providers)

    # settings that control planes share

    @property
    def endpoint(self) -> str:
        """Where members post; '' when no reaper has ever served."""
        with self.context.database.read() as connection:
            return records.setting(connection, "endpoint")

    def set(self, name: str, value: str) -> None:
        """Keep a word in the database, for every control plane."""
        with self.context.database.write("set") as connection:
            records.set_setting(connection, name, value)

    def get(self, name: str) -> str:
        """That word; '' when there is none."""
        with self.context.database.read() as connection:
            return records.setting(connection, name)


def _request(asked: Mapping[str, object]) -> Request:
    """What was asked for, checked at the door."""
    for name, value in asked.items():
        if name not in ASKED:
            raise pool_errors.UnknownParameterError(name, ASKED)
        if value is None and name in OPTIONAL:
            continue
        if name in WORDS and not isinstance(value, str):
            raise pool_errors.BadKnobError(name, value, "a word")
        if name == "idempotency_key" and not value:
            # A variable that was not set: everybody's claim would be the same one.
            raise pool_errors.BadKnobError(name, value, "a word that is not empty")
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
    return Request(**asked)  # type: ignore[arg-type]  # each was checked
