"""A plan on members of a warm pool, with a real server, real agents, and the real command line."""

from __future__ import annotations

import contextlib
import json
import pathlib
from collections.abc import Iterator

import plannednights
import pytest
from realmachines import drained, until

from overnight.app import agent, pools

pytestmark = [pytest.mark.needs_root, pytest.mark.needs_perf, pytest.mark.alone]

PLAN = """\
name: two arms on members
hosts: {provider: pool, where: ci}
arms:
  - {kind: cold, hosts: 1}
  - {kind: hot, hosts: 1}
load: {kind: cpu, duty: 10%, cores: "0"}
record: {segment: 5s, frequency: 19}
wait: {for: 7s, events: [job.failed]}
budget: {hours: 0.2}
"""


@pytest.fixture
def night(tmp_path: pathlib.Path) -> Iterator[plannednights.Night]:
    """A server with a pool of two members, which is drained at the end."""
    assert not agent.CONFIG.exists()  # it would decide, not the plan
    made = plannednights.Night(tmp_path)
    where = pools.Pools(made.home, made.database)
    with contextlib.closing(where.plane.context.database):
        where.plane.create(name="ci", template="plain", target_size=2, provider="process")
        until(lambda: where.plane.show("ci").counts.ready == 2)
        try:
            yield made
        finally:
            until(lambda: drained(where.plane))
            made.close()
    until(lambda: not plannednights.list_processes(str(tmp_path)))


@pytest.mark.long  # 41 s on two quiet cores
@pytest.mark.timeout(120)
def test_arms_on_members_of_a_pool(night: plannednights.Night) -> None:
    with night.start("run", night.write_plan(PLAN), "--yes", "-O", "json") as command:
        output, notes = command.communicate(timeout=100)
    assert command.returncode == 1, (output, notes)  # it did not reproduce
    ended = json.loads(output)
    assert (ended["outcome"], ended["reason"]) == ("not-reproduced", "")
    assert ended["notes"][-1]["text"] == "every host is given back"
    assert len({host for arm in ended["arms"] for host in arm["hosts"]}) == 2
    for arm in ended["arms"]:
        [host] = arm["hosts"]
        assert [task["kind"] for task in arm["tasks"]] == ["age", "record", "load", "age"]
        assert {task["state"] for task in arm["tasks"]} == {"done"}, arm["tasks"]
        assert arm["doses"][host].keys() >= {"load", "cores", "uptime_s"}
        assert plannednights.list_processes(host) == []
        until(lambda host=host: not (night.home / "pools/machines" / host).exists())  # type: ignore[misc]
    assert "Did not reproduce" in night.read(f"/investigations/{ended['id']}/report.txt").decode()
    assert b"provider: pool" in night.read(f"/investigations/{ended['id']}/report-next-plan.yaml")
