"""What an assistant already has: its hosts count for the limit of 20, and claims of other callers are not its own."""

from __future__ import annotations

import concurrent.futures
import datetime
import pathlib
from collections.abc import Iterator
from typing import Any

import assistants
import pytest
import serverworld

from overnight.app import pool_guards
from overnight.model.control_plane import Role
from overnight.pools import reaper

ASSISTANT = "admin, assistant"
MANY = pool_guards.MANY_HOSTS


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
    change = {"template": "runner", "target_size": min(1, most), "max_size": most}
    sent = {"name": name, "provider": "scripted", "change": change}
    return world.ask("POST", "/api/v1/pools", role=ASSISTANT, json=sent)


def test_a_pool_for_no_hosts_is_direct_whatever_the_caller_has(
    world: assistants.World, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert asks(create(world, "many", MANY)) == ""
    monkeypatch.setattr(pool_guards, "MANY_HOSTS", MANY - 1)
    assert asks(create(world, "none", 0)) == ""
    assert "would have more" in asks(create(world, "one", 1))


def test_claiming_a_member_stays_direct(world: assistants.World) -> None:
    world.filled(target=2 * MANY)
    assert asks(claim(world, count=MANY)) == ""
    assert asks(claim(world)) == ""


def test_the_claim_of_another_caller_is_ended_by_people(world: assistants.World) -> None:
    world.filled(target=5)
    of_a_person = named_alike(world, assistant=False)
    again = named_alike(world, assistant=True)  # the same caller
    for made, owned in (
        (claim(world), True),
        (claim(world, count=2), True),  # a batch
        (claim(world, role="", bearer=again), True),
        (claim(world, role="", bearer=of_a_person), False),
    ):
        grant = made.json()["items"][0]
        by_member = f"/api/v1/pools/ci/members/{grant['member']['id']}/return"
        by_claim = f"/api/v1/pool-claims/{grant['claim']['id']}/return"
        for path in (by_member, by_claim):
            asked = asks(world.ask("POST", path, role=ASSISTANT))
            assert asked.endswith("" if owned else "end the claim of another caller")
            assert bool(asked) is not owned
    last = world.get("/api/v1/pools/ci")["details"]["claims"]
    assert grant["claim"]["id"] in {each["id"] for each in last if each["released_us"] is None}


def test_clusters_count_until_their_machines_are_gone(world: assistants.World) -> None:
    reaper.Reaper(world.pools.plane).tick()
    made = order(world, MANY - 1).json()["cluster"]["id"]
    assert asks(order(world, 2)).endswith(f"; the caller would have more than {MANY} hosts")
    assert asks(order(world, 1)) == ""
    world.ask("POST", f"/api/v1/clusters/{made}/cancel", role=ASSISTANT)
    reaper.Reaper(world.pools.plane).tick()
    assert asks(order(world, 2)) == ""


def test_the_cluster_of_another_caller_is_cancelled_by_people(world: assistants.World) -> None:
    reaper.Reaper(world.pools.plane).tick()
    own = order(world, 2).json()["cluster"]["id"]
    for name, named in ((world.pools.cluster(2).id, "cancel cluster "), (own, "")):
        path = f"/api/v1/clusters/{name}/cancel"
        for _ in range(2):
            asked = asks(world.ask("POST", path, role=ASSISTANT))
            assert asked.startswith(named)
            assert bool(asked) is bool(named)


def test_a_cluster_is_released_by_people_until_it_has_ended(world: assistants.World) -> None:
    name = world.pools.cluster(2).id
    path = f"/api/v1/clusters/{name}/release"
    assert asks(world.ask("POST", path, role=ASSISTANT)).startswith(f"release cluster {name}: ")
    for _ in range(2):
        world.pools.fill(name)
        reaper.Reaper(world.pools.plane).tick()
    assert asks(world.ask("POST", path, role=ASSISTANT)).endswith(": terminate 2 members")
    world.confirm()
    assert asks(world.ask("POST", path, role=ASSISTANT)) == ""
    assert asks(world.ask("POST", path, role=ASSISTANT)) == ""  # nothing is left to do


def test_pools_count_with_their_limit(world: assistants.World) -> None:
    assert asks(create(world, "ci", MANY)) == ""
    assert "the caller would have more" in asks(create(world, "more", 1))
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


def test_limits_that_are_raised_step_by_step_count(world: assistants.World) -> None:
    """Three pools went from 1 to 20 hosts each, without a person."""
    for name in ("one", "two", "three"):
        world.pools.pool(name, 1)  # with a limit of 11

    def step(name: str, most: int) -> str:
        sent = {"change": {"max_size": most}}
        return asks(world.ask("PATCH", f"/api/v1/pools/{name}", role=ASSISTANT, json=sent))

    assert [step("one", most) for most in (12, 15, 18, 20)] == [""] * 4
    assert [step("two", most) for most in (14, 20)] == [""] * 2
    assert step("three", 13) == ""  # 9 + 9 + 2
    assert step("three", 14) == "raise the limit of pool three from 13 to 14 hosts"
    assert step("one", 21) == "raise the limit of pool one from 20 to 21 hosts"
    assert "the caller would have more" in asks(create(world, "more", 1))
    assert step("two", 1) == ""  # its 9 hosts are free again, and no more than these
    assert step("three", 20) == ""  # 9 + 9
    assert step("three", 23) == "raise the limit of pool three from 20 to 23 hosts"
    assert step("one", 11) == ""
    assert asks(create(world, "more", 11)) == ""


def test_a_lower_limit_does_not_hide_members_that_the_caller_added(world: assistants.World) -> None:
    """A pool went from 1 host to 46 without a person: between two steps its limit was lowered by as much."""
    world.pools.pool("one", 1, max_size=100)

    def step(change: dict[str, int], path: str = "") -> str:
        sent = {"change": change}
        return asks(world.ask("PATCH", f"/api/v1/pools/one{path}", role=ASSISTANT, json=sent))

    assert step({"target_size": 16}) == ""
    assert step({"max_size": 85}) == ""
    assert step({"target_size": 31}) == "raise the size of pool one from 16 to 31 hosts"
    assert step({"max_size": 70}) == ""
    assert step({"min_size": 31}, "/autoscale") == "raise the size of pool one from 16 to 31 hosts"


def test_a_repeated_call_counts_once(world: assistants.World) -> None:
    world.pools.pool("one", 1, max_size=100)
    for least in (10, 10, 10, 20):  # the reaper has not followed it yet
        sent = {"change": {"min_size": least}}
        path = "/api/v1/pools/one/autoscale"
        assert asks(world.ask("PATCH", path, role=ASSISTANT, json=sent)) == ""
    sent = {"change": {"min_size": 22}}
    answer = world.ask("PATCH", "/api/v1/pools/one/autoscale", role=ASSISTANT, json=sent)
    assert asks(answer) == "raise the size of pool one from 20 to 22 hosts"


def test_calls_at_the_same_moment_count_each_other(world: assistants.World) -> None:
    """Ten calls of 20 hosts each, sent together, were all direct."""
    world.token(ASSISTANT)
    with concurrent.futures.ThreadPoolExecutor(10) as many:
        asked = [*many.map(lambda n: asks(create(world, f"p{n}", MANY)), range(10))]
    assert asked.count("") == 1


def test_the_size_of_another_pool_counts_when_it_is_raised(world: assistants.World) -> None:
    world.pools.pool("one", 1, max_size=100)
    world.pools.pool("two", 1, max_size=100)
    for name, change, named in (
        ("one", {"target_size": 16}, ""),
        ("two", {"target_size": 7}, "raise the size of pool two from 1 to 7 hosts"),
        ("two", {"target_size": 6}, ""),
        ("two", {"min_size": 7, "target_size": 7}, "raise the size of pool two from 6 to 7 hosts"),
    ):
        sent = {"change": change}
        answer = world.ask("PATCH", f"/api/v1/pools/{name}", role=ASSISTANT, json=sent)
        assert asks(answer) == named
    policy = {"change": {"min_size": 90}}
    path = "/api/v1/pools/two/autoscale"
    sized = asks(world.ask("PATCH", path, role=ASSISTANT, json=policy))
    assert sized == "raise the size of pool two from 6 to 90 hosts"


def test_a_schedule_counts_before_it_begins(world: assistants.World) -> None:
    """An assistant had 90 hosts launched in the night, by a schedule of another day."""
    world.pools.pool("one", 1, max_size=100)
    path = "/api/v1/pools/one/autoscale"
    today = datetime.datetime.fromtimestamp(world.pools.plane.context.clock() / 1e6, datetime.UTC)
    day = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")[(today.weekday() + 3) % 7]

    def schedule(size: int) -> str:
        sent = {"change": {"openings": [f"{day} 02:00-03:00 = {size}"]}}
        return asks(world.ask("PATCH", path, role=ASSISTANT, json=sent))

    assert schedule(90) == "raise the size of pool one from 1 to 90 hosts"
    assert schedule(10) == ""
    assert schedule(10) == ""
    assert schedule(20) == ""
    assert schedule(22) == "raise the size of pool one from 20 to 22 hosts"
    world.pools.pool("two", 1, max_size=100)
    sent = {"change": {"target_size": 4}}
    answer = world.ask("PATCH", "/api/v1/pools/two", role=ASSISTANT, json=sent)
    assert asks(answer) == "raise the size of pool two from 1 to 4 hosts"


def test_a_pool_with_the_name_of_a_claim_does_not_give_it_away(world: assistants.World) -> None:
    """The audit log had the name of the pool and the id of the claim in one text, which was split into words."""
    world.filled(target=2)
    victim = claim(world, role="operator").json()["items"][0]["claim"]["id"]
    assert asks(create(world, victim, 3)) == ""
    world.pools.fill(victim)
    own = {"request": {"acquired_by": victim, "acquired_for": victim}}
    got = world.ask("POST", f"/api/v1/pools/{victim}/claims", role=ASSISTANT, json=own)
    assert got.status_code == 200, got.text
    ended = world.ask("POST", f"/api/v1/pool-claims/{victim}/return", role=ASSISTANT)
    assert asks(ended).endswith("end the claim of another caller")


def test_a_repeated_key_does_not_make_the_claim_of_another_caller_ones_own(
    world: assistants.World,
) -> None:
    """Viewers see the keys of claims: with the same key and caller, an assistant got a claim, and ended it."""
    world.filled(target=3)
    sent = {"request": {"acquired_by": "job-17", "idempotency_key": "ci-17"}}
    claims, own = (
        "/api/v1/pools/ci/claims",
        {"request": {"acquired_by": "x", "idempotency_key": "y"}},
    )
    for body, role, owned in ((sent, "operator", False), (own, ASSISTANT, True)):
        victim = world.ask("POST", claims, role=role, json=body).json()["items"][0]["claim"]["id"]
        repeated = world.ask("POST", claims, role=ASSISTANT, json=body)
        assert repeated.json()["items"][0]["claim"]["id"] == victim
        ended = asks(world.ask("POST", f"/api/v1/pool-claims/{victim}/return", role=ASSISTANT))
        assert ended.endswith("" if owned else "end the claim of another caller")
        assert bool(ended) is not owned


def test_a_repeated_key_does_not_make_the_cluster_of_another_caller_ones_own(
    world: assistants.World,
) -> None:
    reaper.Reaper(world.pools.plane).tick()
    sent = {"order": {"template": "runner", "provider": "scripted", "count": 2}, "confirmed": True, "idempotency_key": "train-17"}  # fmt: skip
    made = [
        world.ask("POST", "/api/v1/clusters", role=role, json=sent).json()["cluster"]["id"]
        for role in ("admin", ASSISTANT)
    ]
    assert made[0] == made[1]
    ended = world.ask("POST", f"/api/v1/clusters/{made[0]}/cancel", role=ASSISTANT)
    assert asks(ended).startswith("cancel cluster ")


def test_a_pool_that_is_made_again_is_not_the_caller_s(world: assistants.World) -> None:
    assert asks(create(world, "ci", MANY)) == ""
    world.pools.plane.drain("ci")
    world.pools.plane.delete("ci")
    world.pools.pool("ci", 1, max_size=MANY)
    assert asks(create(world, "more", MANY)) == ""


def test_members_are_held_back_one_at_a_time(world: assistants.World) -> None:
    one, two, three = world.filled(target=3)

    def cordon(member: str, role: str = "operator, assistant", *, cordoned: bool = True) -> str:
        sent = {"cordoned": cordoned}
        return asks(world.ask("PUT", f"/api/v1/pool-members/{member}/cordoned", role=role, json=sent))  # fmt: skip

    assert cordon(one) == ""
    assert cordon(one) == ""
    assert cordon(two) == f"hold another member back: {two} of pool ci"
    assert cordon(one, cordoned=False) == ""
    assert cordon(three, "operator") == ""
    assert cordon(three, cordoned=False) == f"release what another caller holds: {three} of pool ci"


def test_a_lease_of_more_than_a_day_is_renewed_by_people(world: assistants.World) -> None:
    world.filled(target=2)
    got = claim(world, role="operator, assistant").json()["items"][0]
    path = f"/api/v1/pool-claims/{got['claim']['id']}/renew"
    for seconds, named in ((3600, ""), (90_000, f"keep member {got['member']['id']} for 1 d 1 h")):
        sent = {"lease_seconds": seconds}
        assert asks(world.ask("POST", path, role="operator, assistant", json=sent)) == named
