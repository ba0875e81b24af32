"""Compare the provider's machines with the rows of members, in both directions.

A machine without a row is terminated at once: the row is written before the machine is launched, so it will
not appear later. A row without a machine stops counting as capacity at the first sweep and is given up at a
later one, but only on its own host. The order of reads is rows, inventory, rows, so that a change in between
is seen by one of them.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from overnight import pools
from overnight.model.pool import Member, MemberState, Pool, Reason
from overnight.model.times import SECOND_US
from overnight.pools import maintenance
from overnight.pools.sql import claim_rows, event_rows, member_rows, pool_rows, shared_values

if TYPE_CHECKING:
    from overnight.pools import context

INVENTORY_SECONDS = 60.0
# Clocks differ a little; a heartbeat further ahead was received before our clock was set back.
HEARTBEAT_AHEAD_US = 60 * SECOND_US


@dataclasses.dataclass
class SweepResult:
    machines: int = 0
    orphans: int = 0
    orphans_left: int = 0  # could not be terminated
    adopted: int = 0
    missing: int = 0
    gone: int = 0


def sweep(control: context.Context, provider: str) -> SweepResult:
    """Sweep one provider; raises ProviderError if its inventory cannot be read."""
    return _Sweep(control, provider).run()


class _Sweep:
    def __init__(self, control: context.Context, provider: str) -> None:
        self._control = control
        self._database = control.database
        self._provider = provider
        self._client = control.provider(provider)
        self._result = SweepResult()

    def run(self) -> SweepResult:
        result = self._result
        before = self._rows()
        try:
            host = self._client.provider.host(create=True)
            machines = self._client.inventory(self._control.owner, INVENTORY_SECONDS)
        except pools.ProviderError as error:
            self._add_event("inventory_failed", reason=error.reason, detail=error.what)
            raise
        after = self._rows()
        result.machines = len(machines)
        for machine in machines:
            # A row that ended since the first read: its machine was ending during the inventory.
            if machine.member_id in after or machine.member_id not in before:
                self._match(host, machine, after.get(machine.member_id))
        ids = {machine.id for machine in machines}
        for member in before.values():
            listed = member.machine_id is None or member.machine_id in ids
            if member.host == host and not listed:
                self._handle_missing(member)
        self._save_orphans(shared_values.orphans_name(self._provider, host), result.orphans_left)
        return result

    def _save_orphans(self, name: str, left: int) -> None:
        """Save the count for alerts and metrics, when it changes."""
        with self._database.read() as connection:
            if shared_values.get(connection, name) == str(left):
                return
        with self._database.write("note orphans") as connection:
            shared_values.put(connection, name, str(left))

    def _rows(self) -> dict[str, Member]:
        with self._database.read() as connection:
            return member_rows.list_of_provider(connection, self._provider)

    def _match(self, host: str | None, machine: pools.Machine, member: Member | None) -> None:
        if member is None or (member.machine_id is not None and member.machine_id != machine.id):
            self._end_orphan(machine)
        elif member.machine_id is None or (machine.address and not member.address):
            self._adopt(member, machine)
        elif member.missing_us is not None or member.host != host:
            # It is here, whatever its row says: an older version wrote none, or this host has a new name.
            self._mark(dataclasses.replace(member, host=host), None, "member_found")

    def _end_orphan(self, machine: pools.Machine) -> None:
        """Report and terminate a machine that has no row."""
        self._result.orphans += 1
        self._add_event("orphan_found", member_id=machine.member_id, detail=machine.id)
        try:
            self._client.terminate(machine.id, INVENTORY_SECONDS)
        except pools.ProviderError as error:
            self._result.orphans_left += 1
            self._add_event(
                "orphan_terminate_failed",
                member_id=machine.member_id,
                reason=error.reason,
                detail=f"{machine.id}: {error.what}",
            )
            return
        self._add_event("orphan_terminated", member_id=machine.member_id, detail=machine.id)

    def _adopt(self, member: Member, machine: pools.Machine) -> None:
        """Give a row its machine: its launch was interrupted before it could."""
        now = self._control.clock()
        with self._database.write("adopt") as connection:
            pool = pool_rows.find(connection, member.pool_id, deleted=True)
            self._result.adopted += member_rows.add_machine(connection, pool, machine, now)

    def _handle_missing(self, member: Member) -> None:
        now = self._control.clock()
        lag = int(self._client.provider.inventory_lag_seconds * SECOND_US)
        # In both directions: a clock that was set back must not hide it for that long.
        if abs(now - (member.launched_us or now)) < lag:
            return
        if member.missing_us is None:
            self._result.missing += self._mark(member, now, "member_missing")
            return
        if _has_reported(member, now):
            # The inventory is wrong, not the member.
            self._mark(member, None, "member_found")
            return
        with self._database.read() as connection:
            pool = pool_rows.find(connection, member.pool_id, deleted=True)
        wait = lag
        if member.state is MemberState.CLAIMED:
            # In use: make sure.
            wait = max(lag, pool.settings.heartbeat_stale_after_seconds * SECOND_US)
        if abs(now - member.missing_us) >= wait:
            reason = self._client.why_gone(str(member.machine_id), INVENTORY_SECONDS)
            self._result.gone += self._give_up(pool, member, reason, now)

    def _give_up(self, pool: Pool, member: Member, reason: Reason, now: int) -> bool:
        with self._database.write("machine gone") as connection:
            pool = pool_rows.lock(connection, pool.id, deleted=True)
            member = member_rows.find(connection, member.id)
            if member.missing_us is None or _has_reported(member, now):
                return False  # found since the first read
            claim_rows.end_of_member(connection, pool, member.id, reason=reason, now_us=now)
            gone = member_rows.set_gone(connection, pool, member.id, reason=reason, now_us=now)
            if gone and member.state is MemberState.WARMING:
                maintenance.count_failure(connection, pool, reason, now)
        self._control.notifier.notify()
        return gone

    def _mark(self, member: Member, missing_us: int | None, kind: str) -> bool:
        now = self._control.clock()
        with self._database.write("mark missing") as connection:
            if not member_rows.set_missing(connection, member, missing_us):
                return False
            pool = pool_rows.find(connection, member.pool_id)
            event_rows.add(
                connection, kind, now, pool=pool, member_id=member.id,
                reason="not_in_inventory" if missing_us else "", detail=str(member.machine_id),
            )  # fmt: skip
        return True

    def _add_event(
        self, kind: str, *, member_id: str = "", reason: str = "", detail: str = ""
    ) -> None:
        with self._database.write("sweep") as connection:
            pool = pool_rows.find_of_member(connection, member_id)
            event_rows.add(
                connection, kind, self._control.clock(), pool=pool, member_id=member_id,
                reason=reason, detail=detail,
            )  # fmt: skip


def _has_reported(member: Member, now: int) -> bool:
    """Whether the agent of a missing member has reported since it was missed."""
    return (member.missing_us or 0) < (member.beat_us or 0) < now + HEARTBEAT_AHEAD_US
