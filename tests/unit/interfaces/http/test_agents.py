"""Requests of agents share a few threads: one agent does not take them from the others."""

from __future__ import annotations

import concurrent.futures
import pathlib
import threading
import time
from typing import TYPE_CHECKING, Any

import serverworld

from overnight.interfaces.http import agents

if TYPE_CHECKING:
    import pytest


def test_one_agent_with_many_connections_does_not_keep_others_waiting(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Eight connections with large snapshots took all threads, and 800 MB; other hosts waited for 10 s."""
    world = serverworld.World(tmp_path)
    evil, good = world.enrol("evil"), world.enrol("good")
    stored, free, begun = world.server.agents.report, threading.Event(), list[str]()

    def report(credential: str, *arguments: Any) -> bytes:
        begun.append(credential)
        if credential == evil:
            assert free.wait(60)
        return stored(credential, *arguments)

    monkeypatch.setattr(agents.fleet_agents.Agents, "report", lambda _, *rest: report(*rest))
    with concurrent.futures.ThreadPoolExecutor(20) as many:
        asked = [many.submit(world.report, evil) for _ in range(20)]
        deadline = time.monotonic() + 30
        while sum(each.done() for each in asked) < 20 - agents.AGENT_JOBS:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        assert world.report(good).status_code == 200
        free.set()
        answers = [each.result() for each in asked]
    assert begun.count(evil) == agents.AGENT_JOBS
    assert sorted(each.status_code for each in answers) == [200] * 2 + [503] * 18
    refused = next(each for each in answers if each.status_code == 503)
    assert serverworld.problem(refused)["title"] == "the server is overloaded"
    assert world.report(evil).status_code == 200
    world.close()
