"""Two servers on different hosts, one database, and a provider whose machines only their host can reach."""

from __future__ import annotations

from typing import TYPE_CHECKING

import poolprovider
import pytest
import sqlalchemy as sa
from poolworld import State, World

from overnight import pools
from overnight.pools import pool_errors, problems
from overnight.pools.sql import schema

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def hosts(fast_world: World) -> Iterator[tuple[World, World]]:
    """Two ready members on each host; those of alpha are older."""
    alpha, beta = (
        World(fast_world.url, provider=poolprovider.OnHost(name), clock=fast_world.clock)
        for name in ("alpha", "beta")
    )
    alpha.pool(target=2, max_size=6)
    alpha.fill()
    alpha.clock.forward(1)
    alpha.plane.update("ci", target_size=4)
    beta.fill()
    yield alpha, beta
    alpha.close()
    beta.close()


def test_no_server_gives_up_the_members_of_another_host(hosts: tuple[World, World]) -> None:
    alpha, beta = hosts
    # Claims are served from anywhere: two members of alpha, one of beta, and one stays ready.
    claims = [grant.claim.id for grant in beta.plane.acquire("ci", count=3)]
    before = alpha.members()
    for _ in range(3):
        for world in hosts:
            result = world.plane.sweep("scripted")
            assert (result.machines, result.missing, result.gone, result.orphans) == (2, 0, 0, 0)
        alpha.clock.forward(200)  # without a heartbeat
    assert alpha.members() == before
    assert {m.machine_id for m in before} == {*alpha.provider.machines, *beta.provider.machines}
    assert all(alpha.plane.renew(claim, 60).released_us is None for claim in claims)
    # One that is really gone is noticed, on its own host.
    alpha.provider.machines.pop("alpha-0001")
    assert beta.plane.sweep("scripted").missing == 0
    assert alpha.plane.sweep("scripted").missing == 1
    alpha.clock.forward(200)
    assert alpha.plane.sweep("scripted").gone == 1


def test_only_a_server_on_its_host_terminates_a_member(hosts: tuple[World, World]) -> None:
    alpha, beta = hosts
    first, second = beta.plane.acquire("ci", count=2)
    ending = [beta.plane.give_back(first.claim.id), beta.plane.terminate(second.member.id)]
    beta.plane.recycle("ci")
    assert [beta.plane.member(m.id) for m in ending] == ending
    assert {(m.state, m.attempts, m.gone_us) for m in ending} == {(State.DRAINING, 0, None)}
    assert set(alpha.provider.machines) == {"alpha-0001", "alpha-0002"}
    assert alpha.plane.terminate_due("ci") == 2
    assert alpha.provider.machines == {}
    assert {m.host for m in beta.members()} == {"beta"}


def test_a_host_that_is_gone_for_good_is_forgotten(hosts: tuple[World, World]) -> None:
    alpha, beta = hosts
    beta.plane.acquire("ci")  # of alpha
    beta.clock.forward(179)
    for member_id, credential in beta.credentials.items():
        assert beta.plane.enrolment.beat(credential)["member_id"] == member_id
    beta.clock.forward(1)
    beta.plane.recycle("ci")  # alpha is silent
    beta.clock.forward(181)
    details, now = beta.plane.show("ci"), beta.clock.now_us
    [problem] = (
        problem
        for problem in problems.find_problems(
            details, now_us=now, reaper_us=now, past=beta.plane.past("ci")
        )
        if problem.name == "host_not_served"
    )
    assert problem.what == "1 member waits to be terminated on alpha"
    assert problem.alert
    assert "overnight pool forget alpha" in problem.todo
    with pytest.raises(pool_errors.ClaimsAffectedError, match="alpha has 2 members, 1 claimed"):
        beta.plane.forget("alpha", confirmed=False)
    assert len(beta.members()) == 4
    with pytest.raises(pool_errors.BadKnobError, match="gamma"):
        beta.plane.forget("gamma")
    assert beta.plane.forget("alpha") == 2
    assert [m.host for m in beta.members()] == ["beta", "beta"]
    assert beta.reasons("claim_ended") == ["terminated"]
    # Should it run all the same, its machines are not left behind.
    assert alpha.plane.sweep("scripted").orphans == 2
    assert alpha.provider.machines == {}


def test_the_server_that_lists_a_machine_records_its_host(hosts: tuple[World, World]) -> None:
    """Members of an older version have no host; a host may get another name."""
    alpha, beta = hosts
    for name in (None, "old-name"):
        with alpha.plane.context.database.write("before") as connection:
            connection.execute(sa.update(schema.members).values(host=name))
        for _ in range(2):
            assert beta.plane.sweep("scripted").missing == 0
            beta.clock.forward(200)
        assert [m.host for m in alpha.members()] == [name, name, "beta", "beta"]
        alpha.plane.sweep("scripted")
        assert [m.host for m in alpha.members()] == ["alpha", "alpha", "beta", "beta"]


def test_machines_that_stay_are_counted_on_every_host(hosts: tuple[World, World]) -> None:
    alpha, beta = hosts

    def refuse(_: str) -> None:
        raise pools.ProviderError("provider_error", "no")

    alpha.provider.on_terminate = refuse
    beta.plane.terminate(alpha.members()[0].id, forget=True)
    for world in hosts:
        world.plane.sweep("scripted")
    assert beta.plane.orphans_left("scripted") == 1
    beta.plane.forget("alpha")
    assert beta.plane.orphans_left("scripted") == 0
