"""Host statuses for tests of outlets."""

from __future__ import annotations

import dataclasses

from overnight.agent import outlets
from overnight.model import clock
from overnight.model.event import Event

__all__ = ["make_event", "make_status"]

WALL = 1_700_000_000 * 1_000_000_000


def make_event(kind: str = "net.driver_reset", **changes: object) -> Event:
    """Return an event on core 39."""
    event = Event(
        time_us=WALL // 1000,
        kind=kind,
        text="core 39 was pinned",
        host="db-7",
        core=39,
        severity="critical",
        id=f"{kind}-0123abcd",
        until_us=WALL // 1000 + 6_000_000,
        count=3,
    )
    return dataclasses.replace(event, **changes)


def make_status(**changes: object) -> outlets.HostStatus:
    """Return the status of the reference incident's host."""
    status = outlets.HostStatus(
        host="db-7",
        clock=clock.Clock(WALL, 5),
        rows={
            "memory-cgroups": {"": (68_680, 240, 68_440, 0)},
            "unit-restarts": {"ecs.service": (17,), "ssh.service": (0,)},
        },
        facts={"host": {"": {"zone": "us-east-1a", "image": 'dl"ami\n', "kernel": "5.4.0"}}},
        counts={("net.driver_reset", "critical"): 2, ("memory.zombie_cgroups", "critical"): 1},
        rules={"ena-tx-paused": 2},
        saturated={39: 6.0},
        open=(make_event("memory.zombie_cgroups"),),
        agent={"cpu_seconds": 1.25, "rss_bytes": 20e6, "seconds": 600.0},
    )
    return dataclasses.replace(status, **changes)
