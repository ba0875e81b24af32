"""The load of `benchmarks/fleet.py`, small: a few agents for a few seconds, with a server that is killed meanwhile."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from benchmarks.support import agents_load, fleet_filled, fleet_site

if TYPE_CHECKING:
    import pathlib


@pytest.mark.long  # 14 s; of the load of benchmarks
def test_agents_deliver_every_event_once_through_a_killed_server(tmp_path: pathlib.Path) -> None:
    with fleet_site.running(tmp_path) as site:
        plan = {"warm": 0.5, "seconds": 3.0, "interval": 0.5, "event_seconds": 0.5, "cores": 4}
        outcome, used = site.load(4, site.kill_server, **plan)
        stored = site.stored_events(agents_load.KIND)
        fleet_filled.fill(site.plane.context.database, hosts=40, events=20)
        filled = site.plane.fleet([fleet_filled.KIND])
    assert outcome.events
    assert sorted(outcome.events) == sorted(stored)
    assert outcome.failures  # the server was away
    assert outcome.undelivered == 0
    assert outcome.posts == len(outcome.waits_ms) > 0
    assert 0 < outcome.wait(0.5) <= outcome.wait(1)
    assert used.at > 0
    sick = [host for host in filled.hosts if host.places(fleet_filled.KIND)]
    assert sick
    assert {host.labels["zone"] for host in sick} == {fleet_filled.SICK_ZONE}
