"""Autoscaling: the policy is checked, and the reaper applies each step once, also after restarts."""

from __future__ import annotations

import concurrent.futures
import contextlib
import itertools
import re

import pytest
from poolworld import START, S, State, World

from overnight import errors
from overnight.pools import autoscaler, metrics, pool_errors, reaper

HOUR = 3600


def miss_claims(world: World, times: int) -> None:
    """Make claims that all miss, as no member is ready."""
    while times:
        count = min(times, world.plane.show("ci").pool.max_size)
        with contextlib.suppress(pool_errors.NoReadyMembersError):
            world.plane.acquire("ci", count=count)
        times -= count


def target(world: World) -> int:
    return world.plane.show("ci").pool.target_size


def scaled(world: World) -> list[tuple[int, int]]:
    """Return every size change as (from, to), oldest first, and check that they join up."""
    changes = []
    for event in reversed(world.plane.show("ci", recent=1000).events):
        if event.kind == "pool_scaled":
            change = re.match(r"target_size: (\d+) -> (\d+); (up|down) to \2: ", event.detail)
            assert change, event.detail
            changes.append((int(change[1]), int(change[2])))
    for earlier, later in itertools.pairwise(changes):
        assert earlier[1] == later[0]
    return changes


def autoscaled_pool(world: World, size: int = 1, **policy: object) -> None:
    world.pool(target=size, max_size=40, heartbeat_stale_after_seconds=10**6)
    world.plane.autoscale("ci", **{"warm_up_seconds": 90, **policy})


def test_missed_claims_are_demand_and_grow_the_pool(world: World) -> None:
    autoscaled_pool(world)
    world.clock.forward(1200)
    miss_claims(world, 80)
    reaper.Reaper(world.plane).tick()
    # 80 claims at once count as one jump.
    [(before, after)] = scaled(world)
    assert (before, after) == (1, target(world))
    assert after >= 13
    details = world.plane.show("ci")
    assert details.counts.warming == after
    assert details.autoscale is not None
    assert details.autoscale.changed_us == details.autoscale.decided_us == world.clock.now_us
    assert details.autoscale.reason.startswith(f"up to {after}: 80 claims in ")
    assert world.reasons("pool_scaled") == ["demand"]


def test_an_unchanged_size_is_not_an_event(fast_world: World) -> None:
    world = fast_world
    autoscaled_pool(world)
    for _ in range(5):
        world.clock.forward(60)
        reaper.Reaper(world.plane).tick()
    assert scaled(world) == []
    policy = world.plane.show("ci").autoscale
    assert policy is not None
    assert policy.decided_us == world.clock.now_us
    assert policy.reason.startswith("stays at 1: ")


def test_waiting_callers_are_demand_too(world: World) -> None:
    autoscaled_pool(world, 0, zero_after_seconds=600)
    world.clock.forward(700)
    assert world.plane.scale("ci").reason == "stays at 0: no claim for 11 min 40 s"
    world.clock.forward(10)
    waiter, _pool = world.plane._claims._enter_queue("ci", _request(), world.clock.now_us)
    world.clock.forward(1)
    decision = world.plane.scale("ci")
    assert waiter
    assert decision.reason.startswith("up to 2: 1 claim in 11 min 51 s ")


def _request() -> object:
    from overnight.model.pool import Request

    return Request(wait_seconds=60)


def test_after_the_cooldown_the_oldest_idle_go_first_despite_restarts(world: World) -> None:
    autoscaled_pool(world, 9, cooldown_seconds=600, window_seconds=300)
    members = world.fill()
    world.clock.forward(590)
    assert world.another().scale("ci").size == 9
    assert len(world.members("ci", State.READY)) == 9
    world.clock.forward(20)
    decision = world.another().scale("ci")
    assert decision.size < 9
    left = {m.id for m in world.members("ci", State.READY)}
    oldest = sorted(members, key=lambda m: (m.ready_us, m.id))
    assert left == {m.id for m in oldest[9 - decision.size :]}
    assert world.reasons("member_draining") == ["pool_shrunk"] * (9 - decision.size)
    assert len(world.provider.machines) == decision.size


def test_a_restarted_control_plane_remembers_a_rise(fast_world: World) -> None:
    world = fast_world
    autoscaled_pool(world, cooldown_seconds=900, window_seconds=300)
    world.clock.forward(1200)
    miss_claims(world, 40)
    high = world.plane.scale("ci").size
    assert high > 5
    for _ in range(14):
        world.clock.forward(60)
        assert world.another().scale("ci").size == high
    # The window is empty and the cooldown over.
    world.clock.forward(400)
    assert world.another().scale("ci").size < high


def test_several_control_planes_take_a_step_once(world: World) -> None:
    autoscaled_pool(world)
    planes = [world.another() for _ in range(3)]
    decided = 0
    for claims in (0, 40, 60, 0, 0):
        world.clock.forward(1000)
        miss_claims(world, claims)
        with concurrent.futures.ThreadPoolExecutor(3) as threads:
            decisions = [
                answer
                for answer in threads.map(lambda p: p.scale("ci"), planes)
                if answer is not None
            ]
        assert len(decisions) == 1
        assert decisions[0].size == target(world)
        decided += 1
    changes = scaled(world)
    assert changes[-1][1] == target(world)
    assert len(changes) <= decided


def test_a_pool_is_scaled_at_most_every_few_seconds(fast_world: World) -> None:
    world = fast_world
    autoscaled_pool(world)
    assert world.plane.scale("ci") is not None
    world.clock.forward(autoscaler.EVERY_SECONDS - 1)
    assert world.plane.scale("ci") is None
    assert world.another().scale("ci") is None
    world.clock.forward(1)
    assert world.plane.scale("ci") is not None
    # But a new policy applies at once.
    world.plane.autoscale("ci", min_size=4)
    assert world.plane.scale("ci").reason == "up to 4: min is 4"


@pytest.mark.parametrize("status", ["paused", "draining", "archived"])
def test_only_an_active_pool_is_scaled(fast_world: World, status: str) -> None:
    world = fast_world
    autoscaled_pool(world, 3, cooldown_seconds=60)
    world.clock.forward(1000)
    miss_claims(world, 50)
    world.plane.update("ci", status=status)
    world.clock.forward(10)
    reaper.Reaper(world.plane).tick()
    assert world.plane.scale("ci") is None
    assert (target(world), scaled(world)) == (3, [])
    outlook = world.plane.outlook("ci")
    assert outlook.decision.reason == f"stays at 3: a pool with status {status} is not scaled"


def test_the_time_in_which_nobody_could_claim_is_not_a_lack_of_demand(fast_world: World) -> None:
    world = fast_world
    autoscaled_pool(world, 9, cooldown_seconds=600, window_seconds=300, zero_after_seconds=1800)
    world.clock.forward(1)
    world.plane.update("ci", status="paused")
    world.clock.forward(10 * HOUR)
    world.plane.update("ci", status="active")
    # The pool keeps its size for a cooldown, and shrinks only then.
    for seconds in (30, 560):
        world.clock.forward(seconds)
        assert world.plane.scale("ci").size == 9
    world.clock.forward(20)
    assert 0 < world.plane.scale("ci").size < 9


def test_an_autoscaled_target_cannot_be_set_but_bounds_move_it(world: World) -> None:
    autoscaled_pool(world, 6)
    with pytest.raises(pool_errors.AutoscaledError, match="cannot be set by hand") as caught:
        world.plane.update("ci", target_size=9)
    assert "overnight pool autoscale ci --off" in caught.value.todo
    assert world.plane.update("ci", max_size=4).target_size == 4
    assert world.plane.update("ci", max_size=40, min_size=7).target_size == 7
    with pytest.raises(pool_errors.BadSizeError):
        world.plane.update("ci", max_size=5)
    assert world.plane.autoscale_off("ci")
    assert not world.plane.autoscale_off("ci")
    assert world.plane.update("ci", target_size=9).target_size == 9
    assert world.plane.scale("ci") is None


def test_the_bounds_of_the_pool_override_the_policy(fast_world: World) -> None:
    world = fast_world
    autoscaled_pool(world, 5, min_size=5, max_size=30, openings=["* 00:00-24:00 = 25"])
    assert world.plane.scale("ci").size == 25
    world.plane.update("ci", max_size=3)
    world.clock.forward(10)
    assert world.plane.scale("ci").size == target(world) == 3
    world.plane.update("ci", max_size=20)
    world.clock.forward(10)
    assert world.plane.scale("ci").size == 20
    assert world.plane.outlook("ci").decision.reason.startswith("stays at 20: schedule")


def test_the_schedule_and_scaling_to_zero(fast_world: World) -> None:
    """The clock starts on Friday, 15 January 2027, at 08:00."""
    world = fast_world
    assert START == 1_800_000_000 * S
    autoscaled_pool(
        world, 0, zero_after_seconds=1800, cooldown_seconds=300,
        openings=["Mon-Fri 09:00-10:00 = 6"],
    )  # fmt: skip
    sizes = {}
    for minute in (*range(50, 60), 90, *range(117, 127)):
        world.clock.now_us = START + minute * 60 * S
        world.plane.scale("ci")
        sizes[minute] = target(world)
    # Before nine, as a member takes 90 s and the tick may be a minute late.
    assert (sizes[50], sizes[57], sizes[58], sizes[90]) == (0, 0, 6, 6)
    assert (sizes[119], sizes[123], sizes[124]) == (6, 6, 0)
    assert world.reasons("pool_scaled") == ["schedule", "quiet"]


def test_an_invalid_policy_is_refused_and_not_written(world: World) -> None:
    world.pool(target=3, min_size=2, max_size=12)
    for policy in (
        {"nonsense": 1}, {"miss": "1%"}, {"miss": 0}, {"miss": True}, {"min_size": 1.5},
        {"min_size": 1}, {"max_size": 13}, {"min_size": 9, "max_size": 8}, {"window_seconds": None},
        {"cooldown_seconds": float("nan")}, {"zero_after_seconds": 60}, {"openings": "mon"},
        {"openings": ["someday = 3"]}, {"openings": ["* 01:00-02:00 = 13"]}, {"burst_mean": 0.5},
        {"warm_up_seconds": 0}, {"since_us": 5},
    ):  # fmt: skip
        for call in (world.plane.autoscale, world.plane.outlook):
            with pytest.raises(errors.UsageError):
                call("ci", **policy)
    assert world.plane.show("ci").autoscale is None
    assert "autoscale_set" not in world.kinds()
    with pytest.raises(pool_errors.PoolNotFoundError):
        world.plane.autoscale("other")


def test_an_update_changes_only_the_given_fields(world: World) -> None:
    world.pool(target=3)
    world.plane.autoscale("ci", miss=0.05, openings=["* 08:00-09:00 = 5"])
    changed = world.plane.autoscale("ci", cooldown_seconds=60)
    assert (changed.miss, changed.cooldown_seconds) == (0.05, 60)
    assert changed.openings == ("* 08:00-09:00 = 5",)
    assert world.plane.autoscale("ci", cooldown_seconds=60) == changed
    details = [e.detail for e in world.plane.show("ci").events if e.kind == "autoscale_set"]
    assert details == ["cooldown_seconds: 60", "miss: 0.05, openings: * 08:00-09:00 = 5"]
    twice = ["* 08:00-09:00 = 5", "sun 08:00-09:00 = 2"]
    for openings, detail in ((twice, "; ".join(twice)), ([], "none")):
        world.plane.autoscale("ci", openings=openings)
        assert world.plane.show("ci").events[0].detail == f"openings: {detail}"
    world.plane.drain("ci")
    world.plane.delete("ci")
    assert world.plane.list() == ()


def test_an_outlook_changes_nothing_and_lists_its_assumptions(fast_world: World) -> None:
    world = fast_world
    world.pool(target=1, heartbeat_stale_after_seconds=10**6)
    world.clock.forward(1200)
    miss_claims(world, 30)
    before = world.plane.show("ci")
    outlook = world.plane.outlook("ci", miss=0.05)
    assert outlook.decision.reason.startswith("up to ")
    assert outlook.warm_up_s == 90
    assert "no member has become ready" in outlook.assumed[0]
    assert world.plane.show("ci") == before
    world.plane.replenish("ci")
    world.clock.forward(40)
    world.boot_all()
    outlook = world.plane.outlook("ci", miss=0.05)
    assert (outlook.warm_up_s, outlook.assumed) == (40, ())


def test_the_warm_up_is_measured_repeatedly(fast_world: World) -> None:
    world = fast_world
    world.pool(target=1, reuse_without_reset=True, heartbeat_stale_after_seconds=10**6)
    world.plane.autoscale("ci", max_size=1)
    for seconds, mean in ((40, 40), (80, 60)):
        world.plane.replenish("ci")
        world.clock.forward(seconds)
        world.boot_all()
        [grant] = world.plane.acquire("ci")
        world.clock.forward(700)
        world.plane.scale("ci")
        policy = world.plane.show("ci").autoscale
        assert policy is not None
        assert policy.measured_warm_up_seconds == mean
        world.plane.terminate(grant.member.id)


def test_the_window_is_no_longer_than_the_record_retention(fast_world: World) -> None:
    """A pool that keeps records for ten minutes cannot count twenty."""
    world = fast_world
    autoscaled_pool(world, 1, cooldown_seconds=1)
    world.plane.update("ci", record_retention_seconds=600)
    world.clock.forward(HOUR)
    miss_claims(world, 100)
    world.clock.forward(300)
    decision = world.plane.scale("ci")
    assert "100 claims in 10 min" in decision.reason


def test_the_metrics_have_the_wanted_size(fast_world: World) -> None:
    world = fast_world
    autoscaled_pool(world, max_size=5)
    assert "overnight_pool_autoscale" not in metrics.render(world.plane)
    world.clock.forward(1200)
    miss_claims(world, 80)
    world.plane.scale("ci")
    world.clock.forward(7)
    page = metrics.render(world.plane)
    wanted = re.search(
        r'^overnight_pool_autoscale_wanted_size\{pool="ci",cause="demand"\} (\d+)$',
        page,
        re.MULTILINE,
    )
    assert wanted
    assert int(wanted[1]) > 5 == target(world)
    assert 'overnight_pool_autoscale_decision_age_seconds{pool="ci"} 7\n' in page
    assert 'overnight_pool_autoscale_change_age_seconds{pool="ci"} 7\n' in page
