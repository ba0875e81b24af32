"""Members of a warm pool (`where`). The mark is the pool's claim, whose lease the pool's reaper ends.

The reaper of the pool (`overnight pool serve`) is the janitor here: a claim whose lease is over ends, and its member is
recycled, without anything of reservations. The claim's key is LEASE/MEMBER, which is how marks of ours are found.
"""

from __future__ import annotations

import dataclasses
import functools
import os
import pathlib
import re
import shutil
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from overnight import errors, reservations
from overnight.model.pool import Claim, Member, MemberState, Pool, PoolStatus
from overnight.model.reservation import LEASE_ID, Candidate, Held, HostPlan, Lease, Order, Workload
from overnight.reservations.providers import _local_recorder, _machine_agent

if TYPE_CHECKING:
    from overnight.pools import control

NAME = "pool"
PREFIX = "reservation"  # of a claim's purpose
KEY = re.compile(rf"({LEASE_ID.pattern})/(.+)")
NSPAWN, PROCESS = "nspawn", "process"  # providers of pools on whose members an agent can be started


def create(settings: reservations.Settings) -> reservations.Provider:
    return PoolMembers(settings)


class PoolMembers(reservations.Provider):
    name = NAME
    ignores = frozenset({"region", "zone", "evict", "no_execute", "detach"})

    def __init__(self, settings: reservations.Settings) -> None:
        self._settings = settings

    @functools.cached_property
    def _plane(self) -> control.ControlPlane:
        assert self._settings.pools is not None
        return self._settings.pools()

    # members

    def list_hosts(self, order: Order) -> Sequence[Candidate]:
        from overnight.pools import pool_errors

        details = self._plane.show(_pool(order))
        if details.pool.status is not PoolStatus.ACTIVE:
            raise pool_errors.PoolNotActiveError(details.pool.name, details.pool.status)
        owners = {claim.member_id: _owner(claim) for claim in details.claims if not claim.released_us}  # fmt: skip
        return [_candidate(details.pool, member, owners) for member in details.members]

    def plan(self, host: Candidate, order: Order) -> HostPlan:
        details = self._plane.show(_pool(order))
        pool, room = details.pool, details.pool.max_size - details.counts.claimed - 1
        if order.agent_tasks and pool.provider == NSPAWN:
            return HostPlan(host=host, blockers=(_machine_agent.NO_TASKS,))
        if room >= pool.target_size:
            return HostPlan(host=host)
        kept = f"{max(0, room)} of {pool.target_size} ready members"
        return HostPlan(
            host=host, warnings=(f"pool {pool.name} keeps {kept}: its maximum is {pool.max_size}",)
        )

    # the claim

    def claim(self, host: str, order: Order, lease: Lease) -> None:
        from overnight.pools import pool_errors

        try:
            self._plane.reserved.reserve(
                _pool(order), host, key=f"{lease.id}/{host}", by=lease.owner,
                purpose=f"{PREFIX} {lease.id} {lease.purpose}".rstrip(), until_us=lease.until_us,
            )  # fmt: skip
        except (
            pool_errors.MemberStateError,
            pool_errors.MemberNotFoundError,
            pool_errors.ClaimEndedError,
        ) as error:
            raise reservations.TakenError(error.what, why=error.why, todo=error.todo) from error
        except (pool_errors.PoolNotActiveError, pool_errors.PoolNotFoundError) as error:
            raise reservations.PlatformError(
                error.what, why=error.why, todo=error.todo, retry=False
            ) from error

    def mark(self, host: str, order: Order, lease: Lease) -> None:
        """Check the claim, which is the mark."""
        if not self.renew(host, order, lease):
            raise reservations.TakenError(
                f"the claim on {host} has ended",
                why="the pool's reaper or an operator ended it",
                todo=f"overnight pool member {host}",
            )

    def empty(
        self,
        host: str,  # noqa: ARG002
        order: Order,  # noqa: ARG002
        lease: Lease,  # noqa: ARG002
        progress: reservations.Progress,  # noqa: ARG002
    ) -> bool:
        return True  # a ready member was used by nobody

    def renew(self, host: str, order: Order, lease: Lease) -> bool:
        claim = self._find_claim(host, order, lease.id)
        if claim is None or claim.released_us is not None:
            return False
        return self._plane.reserved.extend(claim.id, lease.until_us) is not None

    def release(self, host: str, order: Order, lease_id: str) -> None:
        claim = self._find_claim(host, order, lease_id)
        clean = True
        try:
            self.stop_agent(host, order, lease_id)
        except errors.OvernightError:
            clean = False
        if claim is None or claim.released_us is not None:
            return
        try:
            if clean:
                self._plane.give_back(claim.id)
            else:  # nobody else may get it
                self._plane.terminate(host)
        except errors.OvernightError:
            # The claim ends before the member is terminated, which the reaper tries again.
            claim = self._find_claim(host, order, lease_id)
            if claim is not None and claim.released_us is None:
                raise

    def list_held(self, order: Order) -> Sequence[Held]:
        """List open claims of reservations; none for a pool that was deleted, which needs all of them ended."""
        from overnight.pools import pool_errors

        try:
            claims = self._plane.reserved.list_open(_pool(order))
        except pool_errors.PoolNotFoundError:
            return []
        return [held for claim in claims if (held := parse_claim(claim)) is not None]

    def _find_claim(self, host: str, order: Order, lease_id: str) -> Claim | None:
        from overnight.pools import pool_errors

        try:
            return self._plane.reserved.find(_pool(order), f"{lease_id}/{host}")
        except pool_errors.PoolNotFoundError:  # deleted after its last member, so it has no claims
            return None

    def list_workloads(self, host: str, order: Order, lease: Lease) -> Sequence[Workload]:  # noqa: ARG002
        return ()  # only the holder of the claim uses a member

    # the agent

    def hear(self, host: str, order: Order) -> reservations.Heard | None:
        member = self._plane.member(host)
        if not self._is_here(member):
            return None
        if member.provider == PROCESS:
            # With a server each has an agent of its own, under its own name.
            return None if order.agent_server and os.geteuid() == 0 else _local_recorder.hear()
        return _machine_agent.hear(self._leader(member))

    def start_agent(
        self, host: str, order: Order, lease: Lease, setup: reservations.AgentSetup
    ) -> None:
        member = self._plane.member(host)
        if not self._is_here(member):
            raise reservations.PlatformError(
                f"cannot start an agent on member {host}",
                why=f"it runs on {member.host}, and is reached from there only"
                if member.provider in (NSPAWN, PROCESS)
                else f"members of provider {member.provider} are not reached from here",
                todo="reserve there, or put the agent into the pool's template",
                retry=False,
            )
        if member.provider == NSPAWN:
            _machine_agent.start(self._leader(member), lease, setup)
        elif not (heard := self.hear(host, order)) or heard.agent_us is None:
            own = bool(setup.server) and os.geteuid() == 0  # root can give it a name
            settings = self._settings
            if setup.tasks:  # a change would be one of the host that has all members
                setup = dataclasses.replace(setup, tasks=dataclasses.replace(setup.tasks, changes=()))  # fmt: skip
            _local_recorder.start(
                dataclasses.replace(settings, home=self._find_home(host)) if own else settings,
                lease, setup, belongs_to=self._find_process(member),
                mark=f"{lease.id}/{host}", host=host if own else "",
            )  # fmt: skip

    def stop_agent(self, host: str, order: Order, lease_id: str) -> None:  # noqa: ARG002
        member = self._plane.member(host)
        if self._is_here(member) and member.gone_us is None:
            if member.provider == NSPAWN:
                _machine_agent.stop(self._leader(member), lease_id)
            else:
                _local_recorder.stop(f"{lease_id}/{host}")
                shutil.rmtree(self._find_home(host), ignore_errors=True)

    def _find_home(self, host: str) -> pathlib.Path:
        """Return the data home of the agent of a member that is a process."""
        return self._settings.home / "pools/machines" / host / "reserved-agent"

    def _is_here(self, member: Member) -> bool:
        known = member.provider in (NSPAWN, PROCESS)
        return known and member.host == self._plane.context.provider(member.provider).provider.host()  # fmt: skip

    def _find_process(self, member: Member) -> tuple[pathlib.Path, str]:
        """Return the state file and the start time of a member that is a process."""
        try:
            written = self._settings.home / "pools/machines" / member.id / "process"
            pid, started = written.read_text().split()
        except (OSError, ValueError) as error:
            raise reservations.PlatformError(
                f"cannot start an agent on member {member.id}",
                why="its process is not known",
                todo=f"overnight pool member {member.id}",
            ) from error
        return pathlib.Path(f"/proc/{pid}/stat"), started

    def _leader(self, member: Member) -> int:
        """Return the host PID of the PID 1 of a member that is a machine."""
        machines = self._plane.context.provider(member.provider).provider
        for machine in machines.inventory(self._plane.context.owner):
            if machine.member_id == member.id:
                return int(machine.address.partition("#")[2] or 0)
        return 0


def _pool(order: Order) -> str:
    if not order.where:
        raise errors.UsageError(
            "no pool was named",
            why="provider pool reserves members of one",
            todo="add --where POOL",
        )
    return order.where


def _owner(claim: Claim) -> str:
    return claim.acquired_by or claim.acquired_for or claim.id


def parse_claim(claim: Claim) -> Held | None:
    """Return the mark that a claim is; None for a claim of another caller."""
    named = KEY.fullmatch(claim.idempotency_key or "")
    words = claim.acquired_for.split(" ", 2)
    if named is None or named[2] != claim.member_id or words[:2] != [PREFIX, named[1]]:
        return None
    # The pool has no cap of its own; the lease is what counts.
    until_us = claim.lease_until_us or 0
    lease = Lease(named[1], claim.acquired_by, until_us, until_us, " ".join(words[2:]))
    return Held(claim.member_id, named[1], lease, since_us=claim.acquired_us)


def _candidate(pool: Pool, member: Member, owners: Mapping[str, str]) -> Candidate:
    state, unhealthy = member.state, ""
    if state not in (MemberState.READY, MemberState.CLAIMED):
        unhealthy = f"it is {state}"
    elif member.cordoned or member.missing_us is not None:
        unhealthy = "cordoned" if member.cordoned else "its machine is missing"
    return Candidate(
        name=member.id,
        labels=dict(pool.labels),
        instance_type=pool.instance_type,
        booted_us=member.launched_us,
        unhealthy=unhealthy,
        taken=owners.get(member.id, ""),
        facts={"template": pool.template, "generation": str(member.generation)},
    )
