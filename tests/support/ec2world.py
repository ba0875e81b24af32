"""A pool of EC2 instances on a moto server: a control plane with its member API, and the machines of its instances."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

import bootedagents
import motoserver
from realmachines import until

from overnight.database import engine
from overnight.model import times
from overnight.model.pool import Member, MemberState, Pool
from overnight.pools import control, member_api

if TYPE_CHECKING:
    import pathlib

    from overnight.pools.providers import ec2

REGION = motoserver.REGION
S = 1_000_000
State = MemberState


class Clock:
    """The wall clock plus an offset that a test can increase."""

    ahead_us = 0

    def __call__(self) -> int:
        return times.now_us() + self.ahead_us

    def forward(self, seconds: float) -> None:
        self.ahead_us += int(seconds * S)


class World:
    """A control plane that serves its member API, and the machines of its instances."""

    def __init__(
        self, account: motoserver.Account, provider: ec2.Instances, folder: pathlib.Path
    ) -> None:
        self.account, self.provider, self.folder = account, provider, folder
        self.clock = Clock()
        self.database = engine.Database(f"sqlite:///{folder / 'pools.db'}")
        self.plane = control.ControlPlane(self.database, {"ec2": provider}, clock=self.clock)
        self.server = member_api.serve(self.plane.enrolment, address="0.0.0.0")
        # An instance would get the name of the host.
        self.plane.set("endpoint", f"http://{socket.gethostname()}:{self.server.port}")
        self.fleet = bootedagents.Fleet(account, folder)

    def close(self) -> None:
        self.fleet.switch_off()
        self.server.close()
        self.database.close()

    def pool(self, **changes: object) -> Pool:
        return self.plane.create(
            **{"name": "ci", "template": "runner", "target_size": 3, "provider": "ec2", "region": REGION}
            | changes
        )  # fmt: skip

    def ready(self, name: str = "ci") -> list[Member]:
        return [m for m in self.plane.show(name).members if m.state is State.READY]

    def fill(self) -> list[Member]:
        self.plane.replenish("ci")
        self.fleet.boot()
        until(lambda: len(self.ready()) == self.plane.show("ci").pool.target_size)
        return self.ready()

    def reasons(self, kind: str) -> list[str]:
        return [e.reason for e in self.plane.show("ci", recent=500).events if e.kind == kind]


def instance_of(member: Member) -> str:
    return str(member.machine_id).partition("/")[2]
