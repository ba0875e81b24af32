"""Holds the provider's machines against the rows, both ways.

A machine without a row is ended at once: its row was written before it was made, so a row that is not
there will not come. A row without a machine is no capacity from the first look on, and given up at the
second. For the order of looks: rows, inventory, rows; what one of them is too early for, the other sees.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import sqlalchemy as sa

from overnight import pools
from overnight.model.pool import Member, MemberState, Pool, member_of
from overnight.pools import decisions, maintenance, pool_errors
from overnight.pools.sql import records, schema, statements

if TYPE_CHECKING:
    from collections.abc import Sequence

    from overnight.pools import context, provider_client

__all__ = ["Reconciler", "SweepResult", "orphans_setting"]

SECOND = decisions.SECOND
INVENTORY_SECONDS = 60.0
HEARD_AHEAD = 60 * SECOND  # clocks differ; what is further ahead was heard before ours was set back
members = schema.members


def orphans_setting(provider: str) -> str:
    """Under which name the count of orphans that would not end is kept."""
    return f"orphans_left {provider}"


@dataclasses.dataclass
class SweepResult:
    """What one sweep of a provider came to."""

    machines: int = 0
    orphans: int = 0
    orphans_left: int = 0  # that would not end
    adopted: int = 0
    missing: int = 0
    gone: int = 0


class Reconciler:
    """The reconciling of one control plane."""

    def __init__(self, control: context.Context) -> None:
        self._control = control
        self._database = control.database

    def run(self, provider: str) -> SweepResult:
        """One look at one provider; raises ProviderError where its inventory cannot be had."""
        caller = self._control.provider(provider)
        before = self._rows(provider)
        try:
            machines = caller.inventory(self._control.owner, INVENTORY_SECONDS)
        except pools.ProviderError as error:
            self._tell("inventory_failed", reason=error.reason, detail=error.what)
            raise
        after = self._rows(provider)
        found = SweepResult(machines=len(machines))
        for machine in machines:
            # One whose row has ended since the first look was ending as we looked.
            if machine.member_id in after or machine.member_id not in before:
                self._place(caller, machine, after, found)
        ids = {machine.id for machine in machines}
        for member in before.values():
            if member.machine_id is not None and member.machine_id not in ids:
                self._missing(caller, member, found)
        self._note(provider, found.orphans_left)
        return found

    def _note(self, provider: str, left: int) -> None:
        """How many machines nobody stands for, for alerts and metrics; written when it changes."""
        name = orphans_setting(provider)
        with self._database.read() as connection:
            if records.setting(connection, name) == str(left):
                return
        with self._database.write("note orphans") as connection:
            records.set_setting(connection, name, str(left))

    def _rows(self, provider: str) -> dict[str, Member]:
        live = statements.with_beats().where(
            members.c.provider == provider, members.c.gone_us.is_(None)
        )
        with self._database.read() as connection:
            rows: Sequence[sa.RowMapping] = connection.execute(live).mappings().all()
        return {str(row["id"]): member_of(row) for row in rows}

    def _place(
        self,
        caller: provider_client.ProviderClient,
        machine: pools.Machine,
        rows: dict[str, Member],
        found: SweepResult,
    ) -> None:
        member = rows.get(machine.member_id)
        if member is None or (member.machine_id is not None and member.machine_id != machine.id):
            self._orphan(caller, machine, found)
        elif member.machine_id is None:
            self._adopt(member, machine, found)
        elif member.missing_us is not None:
            self._mark(member, None, "member_found")

    def _orphan(
        self, caller: provider_client.ProviderClient, machine: pools.Machine, found: SweepResult
    ) -> None:
        """A machine that no row stands for: told, and ended."""
        found.orphans += 1
        self._tell("orphan_found", member_id=machine.member_id, detail=machine.id)
        try:
            caller.terminate(machine.id, INVENTORY_SECONDS)
        except pools.ProviderError as error:
            found.orphans_left += 1
            self._tell(
                "orphan_terminate_failed",
                member_id=machine.member_id,
                reason=error.reason,
                detail=f"{machine.id}: {error.what}",
            )
            return
        self._tell("orphan_terminated", member_id=machine.member_id, detail=machine.id)

    def _adopt(self, member: Member, machine: pools.Machine, found: SweepResult) -> None:
        """A row whose launch was cut off before it got its machine."""
        now = self._control.clock()
        with self._database.write("adopt") as connection:
            pool = records.find_pool(connection, member.pool_id)
            found.adopted += maintenance.record_machine(connection, pool, machine, now)

    def _missing(
        self, caller: provider_client.ProviderClient, member: Member, found: SweepResult
    ) -> None:
        now = self._control.clock()
        lag = int(caller.provider.inventory_lag_seconds * SECOND)
        # Either way: a clock that was set back must not hide it for as long.
        if abs(now - (member.launched_us or now)) < lag:
            return
        if member.missing_us is None:
            found.missing += 1
            self._mark(member, now, "member_missing")
            return
        if member.missing_us < (member.beat_us or 0) < now + HEARD_AHEAD:
            # Its agent was heard since: the inventory is wrong, not the member.
            self._mark(member, None, "member_found")
            return
        with self._database.read() as connection:
            try:
                pool = records.find_pool(connection, member.pool_id)
            except pool_errors.PoolNotFoundError:
                return
        wait = lag
        if member.state is MemberState.CLAIMED:
            # Somebody works on it: be sure.
            wait = max(lag, pool.settings.heartbeat_stale_after_seconds * SECOND)
        if abs(now - member.missing_us) >= wait:
            why = caller.why_gone(str(member.machine_id), INVENTORY_SECONDS)
            found.gone += self._give_up(pool, member, why, now)

    def _give_up(self, pool: Pool, member: Member, why: str, now: int) -> bool:
        with self._database.write("machine gone") as connection:
            pool = records.lock_pool(connection, pool.id)
            open_claim = sa.select(schema.claims).where(
                schema.claims.c.member_id == member.id, schema.claims.c.released_us.is_(None)
            )
            row = connection.execute(open_claim).mappings().first()
            if row is not None:
                claim = records.claim_of(row)
                records.end_claim(connection, pool, claim, reason=why, now_us=now)
            done = records.gone(connection, pool, member.id, reason=why, now_us=now)
            if done and member.state is MemberState.WARMING:
                maintenance.apply_failure(connection, pool, why, now)
        self._control.notifier.notify()
        return done

    def _mark(self, member: Member, missing_us: int | None, kind: str) -> None:
        now = self._control.clock()
        with self._database.write("mark missing") as connection:
            connection.execute(
                sa.update(members).where(members.c.id == member.id).values(missing_us=missing_us)
            )
            pool = records.find_pool(connection, member.pool_id)
            records.add_event(
                connection, kind, now, pool=pool, member_id=member.id,
                reason="not_in_inventory" if missing_us else "", detail=str(member.machine_id),
            )  # fmt: skip

    def _tell(self, kind: str, *, member_id: str = "", reason: str = "", detail: str = "") -> None:
        with self._database.write("sweep") as connection:
            row = (
                connection.execute(
                    sa.select(schema.pools)
                    .join(members, members.c.pool_id == schema.pools.c.id)
                    .where(members.c.id == member_id)
                )
                .mappings()
                .first()
            )
            pool = None if row is None else records.pool_of(row)
            records.add_event(
                connection, kind, self._control.clock(), pool=pool, member_id=member_id,
                reason=reason, detail=detail,
            )  # fmt: skip
