"""A platform whose hosts are values: claims, marks and workloads, of us and of others. Tests make it fail.

A claim and a mark are separate, as on Kubernetes, so that a crash between two of their changes matters.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import pooldatabases
import poolworld

from overnight import reservations
from overnight.model.reservation import (
    Candidate,
    Held,
    HostPlan,
    Lease,
    Order,
    Reservation,
    Workload,
)
from overnight.reservations import context, control, janitor

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from overnight.database import engine

S = poolworld.S
ORDER = Order(provider="played", count=2, seconds=3600, owner="ops@desk", purpose="night 4")
OTHERS = ("cordoned by team-b", "label tier=gold")


@dataclasses.dataclass
class Host:
    claim: Lease | None = None
    mark: str | None = None  # the text of a lease
    marked_us: int = 0
    agent: str = ""  # the lease that started it
    others: tuple[str, ...] = OTHERS  # marks of others: never touched
    workloads: list[Workload] = dataclasses.field(default_factory=list)
    facts: dict[str, str] = dataclasses.field(default_factory=lambda: {"kernel": "6.1"})
    labels: dict[str, str] = dataclasses.field(default_factory=dict)
    unhealthy: str = ""
    booted_us: int = 0


class Platform(reservations.Provider):
    """Outlives the control planes that use it, as a cluster does."""

    name = "played"
    ignores = frozenset({"detach"})

    def __init__(self, clock: Callable[[], int], *names: str) -> None:
        self.clock = clock
        self.hosts = {name: Host() for name in names}
        self.steps: Callable[[str], None] = lambda _: None
        self.error: Exception | None = None  # of every call
        self.before: Callable[[str, str], object] = lambda what, host: None
        self.calls: list[tuple[str, str]] = []

    def go_away(self) -> None:
        self.error = reservations.PlatformError("no answer", why="timed out", todo="wait")

    def expire_credentials(self) -> None:
        self.error = reservations.PlatformError(
            "not allowed", why="the credentials have expired", todo="log in again", retry=False
        )

    def _enter(self, what: str, host: str = "") -> Host:
        self.calls.append((what, host))
        self.before(what, host)
        if self.error is not None:
            raise self.error
        return self.hosts.get(host, Host())

    def list_hosts(self, order: Order) -> Sequence[Candidate]:
        self._enter("list_hosts")
        return [
            Candidate(
                name=name,
                labels=host.labels,
                booted_us=host.booted_us,
                unhealthy=host.unhealthy,
                taken=host.claim.owner or host.claim.id if host.claim else "",
                facts=host.facts,
            )
            for name, host in self.hosts.items()
        ]

    def plan(self, host: Candidate, order: Order) -> HostPlan:
        found = self._enter("plan", host.name)
        return HostPlan(host=host, workloads=tuple(found.workloads))

    def claim(self, host: str, order: Order, lease: Lease) -> None:
        found = self._enter("claim", host)
        if found.claim is not None and found.claim.id != lease.id:
            raise reservations.TakenError(f"{found.claim.owner} has {host}", why="", todo="")
        found.claim = lease

    def mark(self, host: str, order: Order, lease: Lease) -> None:
        found = self._enter("mark", host)
        if found.claim is None or found.claim.id != lease.id:
            raise reservations.TakenError(f"another reservation has {host}", why="", todo="")
        found.mark, found.marked_us = lease.text(), self.clock()

    def empty(self, host: str, order: Order, lease: Lease, progress: Callable[[str], None]) -> bool:
        found = self._enter("empty", host)
        leaving = [work for work in found.workloads if not work.stays]
        for work in leaving:
            progress(f"{work.name} still runs")
        if order.evict and leaving and not leaving[0].blocked:
            found.workloads.remove(leaving[0])
        return not leaving

    def renew(self, host: str, order: Order, lease: Lease) -> bool:
        found = self._enter("renew", host)
        marked = Lease.parse(found.mark or "")
        if found.claim is None or found.claim.id != lease.id or marked is None:
            return False
        if marked.id != lease.id:
            return False
        found.claim = lease
        self.steps(f"played: renewed the claim of {host}")
        found.mark = lease.text()
        return True

    def release(self, host: str, order: Order, lease_id: str) -> None:
        found = self._enter("release", host)
        if found.agent == lease_id:
            found.agent = ""
        self.steps(f"played: stopped the agent of {host}")
        marked = Lease.parse(found.mark or "")
        if found.mark is not None and (marked.id if marked else "") == lease_id:
            found.mark = None
        self.steps(f"played: unmarked {host}")
        if found.claim is not None and found.claim.id == lease_id:
            found.claim = None

    def list_held(self, order: Order) -> Sequence[Held]:
        self._enter("list_held")
        held = []
        for name, host in self.hosts.items():
            lease = Lease.parse(host.mark or "")
            if host.mark is not None:
                claimed = lease is None or (host.claim is not None and host.claim.id == lease.id)
                since = host.marked_us or None
                held.append(Held(name, lease.id if lease else "", lease, claimed, since))
            elif host.claim is not None:
                held.append(Held(name, host.claim.id, host.claim))
        return held

    def list_workloads(self, host: str, order: Order, lease: Lease) -> Sequence[Workload]:
        return tuple(self._enter("list_workloads", host).workloads)

    def start_agent(
        self, host: str, order: Order, lease: Lease, setup: reservations.AgentSetup
    ) -> None:
        self._enter("start_agent", host).agent = lease.id

    def stop_agent(self, host: str, order: Order, lease_id: str) -> None:
        found = self._enter("stop_agent", host)
        found.agent = "" if found.agent == lease_id else found.agent

    # what a test asks

    @property
    def marked(self) -> list[str]:
        """The hosts with anything of ours."""
        return [n for n, h in self.hosts.items() if h.claim or h.mark is not None or h.agent]

    def check_others(self) -> None:
        assert all(host.others == OTHERS for host in self.hosts.values())


class World:
    """One database and one platform with a made-up clock; `another` adds control planes."""

    def __init__(self, url: str, *names: str) -> None:
        pooldatabases.prepare(url)
        self.url = url
        self.clock = poolworld.Clock()
        self.platform = Platform(self.clock, *(names or ("a", "b", "c")))
        self.heard: dict[str, reservations.Heard] = {}
        self._open: list[engine.Database] = []
        self.plane = self.another()

    def another(self, steps: Callable[[str], None] = lambda _: None) -> control.ControlPlane:
        db = pooldatabases.opened(self.url, steps=steps)
        self._open.append(db)
        return control.ControlPlane(
            context.Context(
                db,
                {"played": self.platform},
                clock=self.clock,
                sleep=self.clock.forward,
                hooks=context.Hooks(heard=self.heard.get),
            )
        )

    def reserve(self, **changes: object) -> Reservation:
        order = dataclasses.replace(ORDER, **changes)
        return self.plane.reserve(self.plane.preflight(order))

    def tick_until(self, seconds: float, every: float = 60) -> None:
        """Tick as a server does, for so long."""
        for _ in range(int(seconds / every)):
            self.clock.forward(every)
            self.plane.tick()

    def clean(self) -> tuple[janitor.Cleaned, ...]:
        return janitor.clean(self.platform, ORDER, clock=self.clock, sleep=self.clock.forward)

    def kinds(self, reservation_id: str) -> list[str]:
        return [event.kind for event in self.plane.events(reservation_id, 1000)]

    def close(self) -> None:
        for db in self._open:
            db.close()
