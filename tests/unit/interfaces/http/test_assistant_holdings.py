"""The hosts that an assistant already has count for the limit above which a person must confirm."""

from __future__ import annotations

import pathlib
from collections.abc import Iterator
from typing import Any

import assistants
import pytest
import serverworld

from overnight.app import guards
from overnight.model.control_plane import Role
from overnight.pools import reaper

ASSISTANT = "admin, assistant"
MANY = guards.MANY_HOSTS


@pytest.fixture
def world(tmp_path: pathlib.Path) -> Iterator[assistants.World]:
    made = assistants.World(tmp_path)
    yield made
    made.close()


def asks(answer: Any) -> str:
    """Return what a person has to confirm; '' for a call that was made."""
    if answer.status_code == 200:
        return ""
    document = serverworld.problem(answer)
    assert document["kind"] == "confirmation-needed", document
    return str(document["confirmation"]["effect"]["summary"])


def claim(world: assistants.World, role: str = ASSISTANT, count: int = 1, **more: Any) -> Any:
    sent = {"request": {"acquired_by": f"job-{count}", "count": count}}
    return world.ask("POST", "/api/v1/pools/ci/claims", role=role, json=sent, **more)


def named_alike(world: assistants.World, *, assistant: bool) -> str:
    """Return a new token with the name of the assistant's."""
    world.token(ASSISTANT)
    expires_us = world.now_us() + serverworld.YEAR_US
    made = world.fleet.tokens.create(
        Role.OPERATOR, name="admin-assistant", expires_us=expires_us, assistant=assistant
    )
    return str(made.text)


def order(world: assistants.World, count: int) -> Any:
    kind = {"template": "runner", "provider": "scripted"}
    sent = {"order": {**kind, "count": count}, "confirmed": False}
    return world.ask("POST", "/api/v1/clusters", role=ASSISTANT, json=sent)


def create(world: assistants.World, name: str, most: int) -> Any:
    change = {"template": "runner", "target_size": 1, "max_size": most}
    sent = {"name": name, "provider": "scripted", "change": change}
    return world.ask("POST", "/api/v1/pools", role=ASSISTANT, json=sent)


def test_claims_count_until_they_end(world: assistants.World) -> None:
    world.filled(target=2 * MANY)
    assert asks(claim(world, count=MANY - 1)) == ""
    last = claim(world).json()["items"][0]["claim"]["id"]
    named = f"claim 1 member of pool ci; the caller would have more than {MANY} hosts"
    assert asks(claim(world)) == named
    assert asks(claim(world, role="operator, assistant")) == ""  # of another name
    again = named_alike(world, assistant=True)  # the same caller
    assert asks(claim(world, role="", bearer=again)) == named
    world.ask("POST", f"/api/v1/pool-claims/{last}/return", role=ASSISTANT)
    assert asks(claim(world)) == ""
    assert asks(claim(world)) == named
    world.confirm()  # the newest request
    assert asks(claim(world, role="", bearer=again)) == ""


def test_hosts_of_a_person_of_the_same_name_do_not_count(world: assistants.World) -> None:
    world.filled(target=2 * MANY)
    person = named_alike(world, assistant=False)
    assert asks(claim(world, role="", bearer=person, count=MANY)) == ""
    assert asks(claim(world, role="", bearer=person)) == ""
    assert asks(claim(world)) == ""


def test_clusters_count_until_their_machines_are_gone(world: assistants.World) -> None:
    reaper.Reaper(world.pools.plane).tick()
    made = order(world, MANY - 1).json()["cluster"]["id"]
    assert asks(order(world, 2)).endswith(f"; the caller would have more than {MANY} hosts")
    assert asks(order(world, 1)) == ""
    world.ask("POST", f"/api/v1/clusters/{made}/cancel", role=ASSISTANT)
    reaper.Reaper(world.pools.plane).tick()
    assert asks(order(world, 2)) == ""


def test_pools_count_with_their_limit(world: assistants.World) -> None:
    assert asks(create(world, "ci", MANY)) == ""
    assert "the caller would have more" in asks(create(world, "more", 1))
    world.pools.fill("ci")
    assert asks(claim(world)) == ""  # its members are counted
    world.pools.pool("other", 1)
    change = {"change": {"max_size": 12}}  # one more than it had
    raised = world.ask("PATCH", "/api/v1/pools/other", role=ASSISTANT, json=change)
    assert asks(raised) == "raise the limit of pool other from 11 to 12 hosts"


def test_the_lease_of_a_large_cluster_is_renewed_by_people(world: assistants.World) -> None:
    reaper.Reaper(world.pools.plane).tick()
    for count, named in ((2, ""), (MANY + 1, f"keep {MANY + 1} hosts of cluster ")):
        name = world.pools.cluster(count).id
        for _ in range(2):
            world.pools.fill(name)
            reaper.Reaper(world.pools.plane).tick()
        path, sent = f"/api/v1/clusters/{name}/renew", {"lease_seconds": 3600}
        assert asks(world.ask("POST", path, role=ASSISTANT, json=sent)).startswith(named)
        assert asks(world.ask("POST", path, role="operator", json=sent)) == ""
