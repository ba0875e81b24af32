"""A machine enrols once, in time, and only hashes of its secrets are stored."""

from __future__ import annotations

import concurrent.futures
import secrets
import time
from typing import TYPE_CHECKING

import noise
import pooldatabases
import pytest
import sqlalchemy as sa
from poolworld import State, World

from overnight.database import tables
from overnight.pools import pool_errors, problems
from overnight.pools.sql import pool_rows, schema

if TYPE_CHECKING:
    from overnight import pools


def test_a_member_is_ready_when_its_agent_reports_it(world: World) -> None:
    world.pool(target=1)
    world.plane.replenish("ci")
    [member] = world.members()
    assert member.state is State.WARMING
    world.boot(member.id, "pulling_modules")
    assert world.members()[0].state is State.WARMING
    world.boot(member.id)
    assert world.members()[0].state is State.READY
    world.boot(member.id)  # a repeated report changes nothing
    assert world.kinds().count("member_ready") == 1


def test_a_token_is_used_once_and_only_hashes_are_stored(world: World) -> None:
    world.pool(target=1)
    world.plane.replenish("ci")
    [member] = world.members()
    token = world.provider.tokens[member.id]
    assert len(bytes.fromhex(token)) == 32
    credential, other = secrets.token_hex(32), secrets.token_hex(32)
    assert world.plane.enrolment.enrol(token, credential) == member.id
    # After a lost answer the same machine may retry, no other one.
    assert world.plane.enrolment.enrol(token, credential) == member.id
    with pytest.raises(pool_errors.EnrolmentRefusedError) as caught:
        world.plane.enrolment.enrol(token, other)
    assert caught.value.reason == "bootstrap_token_used"
    with world.plane.context.database.read() as connection:
        stored = str(
            [connection.execute(sa.select(t)).all() for t in tables.METADATA.sorted_tables]
        )
    assert token not in stored
    assert credential not in stored


def test_an_expired_token_fails_its_member(world: World) -> None:
    world.pool(target=1, bootstrap_token_seconds=60)
    world.plane.replenish("ci")
    [member] = world.members()
    world.clock.forward(60)
    with pytest.raises(pool_errors.EnrolmentRefusedError) as caught:
        world.boot(member.id)
    assert caught.value.reason == "bootstrap_token_expired"
    failed = world.plane.member(member.id)
    assert (failed.state, failed.reason) == (State.ERRORED, "bootstrap_token_expired")
    assert world.plane.show("ci").pool.failures == 1


@pytest.mark.parametrize("token", ["", "abc", "g" * 64, "0" * 64])
def test_a_token_that_was_never_issued_is_refused(world: World, token: str) -> None:
    with pytest.raises(pool_errors.EnrolmentRefusedError):
        world.plane.enrolment.enrol(token, secrets.token_hex(32))
    with pytest.raises(pool_errors.EnrolmentRefusedError):
        world.plane.enrolment.beat(token)


def test_a_member_that_is_no_longer_wanted_cannot_join(world: World) -> None:
    world.pool(target=1)
    world.plane.replenish("ci")
    [member] = world.members()
    world.plane.drain("ci")
    with pytest.raises(pool_errors.EnrolmentRefusedError):
        world.boot(member.id)


def test_an_agent_faster_than_its_launch_has_to_retry(world: World) -> None:
    world.pool(target=1)
    refusals: list[BaseException] = []

    def at_once(order: pools.Order) -> None:
        try:
            world.boot(order.member_id)
        except pool_errors.TooEarlyError as error:
            refusals.append(error)

    world.provider.after_launch = at_once
    world.plane.replenish("ci")
    assert len(refusals) == 1
    [member] = world.members()
    world.boot(member.id)
    assert world.members()[0].state is State.READY


def test_a_failed_bootstrap_is_recorded_with_its_reason(world: World) -> None:
    world.pool(target=1)
    world.plane.replenish("ci")
    [member] = world.members()
    world.boot(member.id, "failed", "module_pull_failed", "modules: HTTP 404")
    assert world.plane.member(member.id).reason == "module_pull_failed"
    assert world.reasons("member_errored") == ["module_pull_failed"]
    details = world.plane.show("ci")
    assert details.events[0].detail == "modules: HTTP 404"
    assert details.pool.last_failure == "module_pull_failed"
    [failing] = [
        problem
        for problem in problems.find_problems(
            details,
            now_us=world.clock(),
            reaper_us=world.clock(),
            past=world.plane.past("ci"),
        )
        if problem.name == "launches_fail"
    ]
    assert (failing.why, failing.host_text) == ("module_pull_failed", "modules: HTTP 404")
    world.plane.recycle("ci")
    assert world.provider.machines == {}


def test_a_ready_member_that_fails_is_replaced_and_a_claimed_one_is_not(world: World) -> None:
    world.pool(target=2, breaker_failures=1)
    world.fill()
    [grant] = world.plane.acquire("ci")
    [other] = world.members("ci", State.READY)
    for member_id in (grant.member.id, other.id):
        world.boot(member_id, "failed", "unit_failed", "runner.service")
    assert world.plane.member(grant.member.id).state is State.CLAIMED
    failed = world.plane.member(other.id)
    assert (failed.state, failed.reason) == (State.ERRORED, "unit_failed")
    assert world.reasons("breaker_opened") == ["unit_failed"]
    with pytest.raises(pool_errors.NoReadyMembersError):
        world.plane.acquire("ci")


def test_a_reason_must_be_one_word(world: World) -> None:
    world.pool(target=1)
    world.plane.replenish("ci")
    [member] = world.members()
    with pytest.raises(pool_errors.BadKnobError, match="phase"):
        world.boot(member.id, "failed", "no such module; DROP TABLE pools")


def test_a_heartbeat_returns_the_state_of_the_member(world: World) -> None:
    world.pool(target=1)
    [member] = world.fill()
    credential = world.credentials[member.id]
    assert world.plane.enrolment.beat(credential) == {
        "member_id": member.id, "state": "ready", "gone": False,
    }  # fmt: skip
    world.plane.drain("ci")
    assert world.plane.enrolment.beat(credential)["gone"] is True


def test_enrol_and_delete_lock_in_one_order(postgresql: str) -> None:
    """`delete` locks the pool, then the enrolments of its members: `enrol` must not hold one meanwhile."""
    world = World(pooldatabases.emptied(postgresql))
    world.pool(target=1)
    world.plane.replenish("ci")
    [member] = world.members()
    token, agent = world.provider.tokens[member.id], world.another()
    blocked = sa.text(
        "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' "
        "AND datname = current_database()"
    )
    with concurrent.futures.ThreadPoolExecutor(1) as threads:
        with world.plane.context.database.write("delete") as connection:
            pool_rows.lock(connection, "ci")
            enrolling = threads.submit(agent.enrolment.enrol, token, secrets.token_hex(32))
            deadline = time.monotonic() + noise.HANG_SECONDS
            waits, watching = 0, world.another().context.database
            while not waits:
                assert time.monotonic() < deadline
                # A new transaction each time: within one, pg_stat_activity stays as it was.
                with watching.read() as other:
                    waits = other.execute(blocked).scalar_one()
            deleting = sa.delete(schema.members).where(schema.members.c.id == member.id)
            connection.execute(deleting)
        with pytest.raises(pool_errors.EnrolmentRefusedError) as caught:
            enrolling.result()
    assert caught.value.reason == "bootstrap_token_unknown"
    world.close()
