"""Machines inside this host, each booted for one lease from a template of pools (`where`), and deleted with it.

A machine has a folder, LEASE/MACHINE among those of pools, with the lease in the file `lease`. The lease is the owner of
its machines, so no pool touches them. The file is there before the machine, and deleted last.
"""

from __future__ import annotations

import contextlib
import pathlib
import platform
import re
import secrets
from collections.abc import Iterator, Sequence

from overnight import errors, pools, reservations
from overnight.model import files
from overnight.model.pool import Reason
from overnight.model.reservation import LEASE_ID, Candidate, Held, HostPlan, Lease, Order, Workload
from overnight.pools.providers import nspawn
from overnight.reservations.providers import _machine_agent

NAME = "nspawn"
PLAIN = "plain"
FILE = "lease"
BOOTED = "booted"  # a file: the machine was up, and is not booted again
MACHINE = re.compile(r"overnight-(h-[0-9a-f]{12})")  # host name of a machine
READY = ("running", "degraded")
# What will not help if tried again.
FINAL = (Reason.NOT_AVAILABLE, Reason.TEMPLATE_NOT_FOUND, Reason.INSTANCE_TYPE_UNKNOWN)


def create(settings: reservations.Settings) -> reservations.Provider:
    return Nspawn(settings)


class Nspawn(reservations.Provider):
    name = NAME
    ignores = frozenset(
        {
            "region",
            "hosts",
            "labels",
            "zone",
            "min_uptime_seconds",
            "max_uptime_seconds",
            "evict",
            "no_execute",
            "detach",
        }
    )

    def __init__(self, settings: reservations.Settings) -> None:
        self._steps = settings.steps
        self._machines = nspawn.Machines(settings.home / "pools", settings.steps)
        self._members = self._machines.members

    # machines

    def list_hosts(self, order: Order) -> Sequence[Candidate]:
        """List the machines of leases, and names of new ones; uses `count` and `instance_type`."""
        facts = {"template": order.where or PLAIN, "kernel": platform.release()}
        held = [
            Candidate(name=each.host, taken=each.lease.owner or each.id if each.lease else each.id)
            for each in self.list_held(order)
        ]
        new = [
            Candidate(
                name=f"overnight-h-{secrets.token_hex(6)}",
                instance_type=order.instance_type,
                facts=facts,
            )
            for _ in range(order.count)
        ]
        return [*held, *new]

    def plan(self, host: Candidate, order: Order) -> HostPlan:
        try:
            self._machines.require(_build_order(host.name, "", order))
        except pools.ProviderError as error:
            return HostPlan(host=host, blockers=(error.message,))
        return HostPlan(host=host, blockers=(_machine_agent.NO_TASKS,) if order.agent_tasks else ())

    # the lease

    def claim(self, host: str, order: Order, lease: Lease) -> None:  # noqa: ARG002  one place
        place = self._place(host, lease.id)
        with self._locked():
            for other in self._members.glob(f"*/{place.name}"):
                if other != place:
                    raise reservations.TakenError(
                        f"{host} belongs to {other.parent.name}",
                        why=f"its folder is {other}",
                        todo="`overnight janitor` removes it when its lease has expired",
                    )
            for folder in (place.parent, place):
                folder.mkdir(mode=0o700, exist_ok=True)
            self._steps("write lease: before")
            files.write_atomically(place / FILE, lease.text())

    def mark(self, host: str, order: Order, lease: Lease) -> None:
        """Boot the machine; uses `instance_type`."""
        place = self._place(host, lease.id)
        if self._find_leader(place) is None and (place / BOOTED).exists():
            raise reservations.PlatformError(
                f"{host} has ended",
                why="it was shut down from inside, or killed",
                todo=f"`overnight release {lease.id}`; its log: {place / 'log'}",
                retry=False,
            )
        self.claim(host, order, lease)  # a failed boot deletes the folder
        with _translated():
            self._machines.launch(_build_order(host, lease.id, order))

    def empty(self, host: str, order: Order, lease: Lease, progress: reservations.Progress) -> bool:
        """Return whether the machine is up; uses `allow_unhealthy`."""
        place = self._place(host, lease.id)
        leader = self._find_leader(place)
        if leader is None:
            raise reservations.PlatformError(
                f"{host} ended while it booted",
                why=(place / "log").read_text(errors="replace")[-nspawn.TAIL :].strip(),
                todo="check the template, and the requirements: `overnight doctor`",
                retry=False,
            )
        state = leader and _machine_agent.run_inside(leader, "systemctl", "is-system-running", check=False)  # fmt: skip
        if state not in READY:
            progress(f"booting ({state or 'no systemd yet'})")
            return False
        if state != READY[0] and not order.allow_unhealthy:
            failed = _machine_agent.run_inside(leader, "systemctl", "--failed", "--plain", "--no-legend")  # fmt: skip
            raise reservations.PlatformError(
                f"units of {host} have failed",
                why=", ".join(line.split()[0] for line in failed.splitlines() if line),
                todo="repair the template, or add --allow-unhealthy",
                retry=False,
            )
        (place / BOOTED).touch()
        return True

    def renew(self, host: str, order: Order, lease: Lease) -> bool:  # noqa: ARG002  one place
        place = self._place(host, lease.id)
        if not (place / FILE).exists() or self._find_leader(place) is None:
            return False
        with self._locked():
            if not place.exists():
                return False
            files.write_atomically(place / FILE, lease.text())
        return True

    def release(self, host: str, order: Order, lease_id: str) -> None:  # noqa: ARG002  one place
        place = self._place(host, lease_id)
        if place.exists():
            with _translated():
                self._machines.terminate(place.name)

    def list_held(self, order: Order) -> Sequence[Held]:  # noqa: ARG002  one place
        """List every machine of a lease in this data home; one without its lease is not claimed."""
        held = []
        for place in sorted(self._members.glob("r-*/h-*")):
            if not LEASE_ID.fullmatch(place.parent.name):
                continue
            with contextlib.suppress(FileNotFoundError):  # released meanwhile
                since_us = place.stat().st_mtime_ns // 1000
                claimed = (place / FILE).exists()
                lease = Lease.parse((place / FILE).read_text(errors="replace")) if claimed else None
                host = f"overnight-{place.name}"
                held.append(Held(host, place.parent.name, lease, claimed, since_us))
        return held

    def list_workloads(self, host: str, order: Order, lease: Lease) -> Sequence[Workload]:  # noqa: ARG002
        return ()  # a machine was booted for its lease, and nobody else reaches it

    def _place(self, host: str, lease_id: str) -> pathlib.Path:
        named = MACHINE.fullmatch(host)
        if named is None or not LEASE_ID.fullmatch(lease_id):
            raise errors.UsageError(
                f"{host!r} is not a machine of {lease_id!r}", why="its name is overnight-h-…", todo=""
            )  # fmt: skip
        return self._members / lease_id / named[1]

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        try:
            # Nobody else may enter: a program in a machine may have set-user-ID root.
            for folder in (*reversed(self._members.parents[:2]), self._members):
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            with files.locked(self._members):
                yield
        except OSError as error:
            raise reservations.PlatformError(
                f"cannot use {self._members}", why=errors.reason(error), todo="run as root"
            ) from error

    def _find_leader(self, place: pathlib.Path) -> int | None:
        """Return the host PID of the machine's PID 1, 0 if it has none yet; None if nothing of it runs."""
        machine = nspawn.find_machine(place)
        return None if machine is None else int(machine.address.partition("#")[2] or 0)

    # the agent

    def hear(self, host: str, order: Order) -> reservations.Heard:  # noqa: ARG002  one place
        for place in self._members.glob(f"r-*/{host.removeprefix('overnight-')}"):
            return _machine_agent.hear(self._find_leader(place) or 0)
        return reservations.Heard()

    def start_agent(
        self, host: str, order: Order, lease: Lease, setup: reservations.AgentSetup  # noqa: ARG002
    ) -> None:  # fmt: skip
        leader = self._find_leader(self._place(host, lease.id))
        if not leader:
            raise reservations.PlatformError(
                f"cannot start an agent on {host}", why="it does not run", todo=f"overnight release {lease.id}"
            )  # fmt: skip
        _machine_agent.start(leader, lease, setup)

    def stop_agent(self, host: str, order: Order, lease_id: str) -> None:  # noqa: ARG002  one place
        _machine_agent.stop(self._find_leader(self._place(host, lease_id)) or 0, lease_id)


def _build_order(host: str, owner: str, order: Order) -> pools.Order:
    return pools.Order(
        owner=owner, member_id=host.removeprefix("overnight-"), pool=NAME,
        template=order.where or PLAIN, instance_type=order.instance_type,
    )  # fmt: skip


@contextlib.contextmanager
def _translated() -> Iterator[None]:
    """Raise what pools report as what reservations report."""
    try:
        yield
    except pools.ProviderError as error:
        raise reservations.PlatformError(
            error.message, why=error.reason, todo=error.todo, retry=error.reason not in FINAL
        ) from error
