"""Demand measured from the history of a pool, or an error when it is too short."""

from __future__ import annotations

import json
import pathlib

import jsonschema
import numpy as np
import pytest
from poolworld import World

from overnight import errors
from overnight.app import pool_sizing, pools
from overnight.interfaces import cli
from overnight.pools import bursts

SCHEMA = pathlib.Path(__file__).parents[3] / "docs/schemas/pool-size-1.json"


@pytest.fixture
def world(tmp_path: pathlib.Path) -> World:
    created = World(f"sqlite:///{tmp_path / 'pools.db'}")
    created.pool(target=2, heartbeat_stale_after_seconds=10**6)
    return created


def play(world: World, claims: int, every_s: float = 30, *, together: int = 1) -> None:
    """Play claims that are never served; members warm up in 45 s.

    Single claims arrive at even intervals, bursts at random ones.
    """
    world.plane.replenish("ci")
    world.clock.forward(45)
    world.boot_all()
    for member in world.members():
        world.plane.terminate(member.id)
    gaps = np.random.default_rng(1).exponential(every_s, claims).tolist()
    for gap in gaps:
        world.clock.forward(gap if together > 1 else every_s)
        with pytest.raises(errors.OvernightError):
            world.plane.acquire("ci", count=together)


def opened(world: World) -> pools.Pools:
    where = pools.Pools(pathlib.Path("unused"), "unused")
    where.__dict__["plane"] = world.plane
    return where


def measure(world: World, **options: object) -> pool_sizing.MeasuredDemand:
    request = pool_sizing.SizeRequest(pool="ci", over_s=86400, **options)  # type: ignore[arg-type]
    return pool_sizing.measure_demand(opened(world), request)


def test_missed_claims_are_demand_and_the_warm_up_is_measured(world: World) -> None:
    play(world, 120)
    demand = measure(world)
    assert demand.claims_per_minute == pytest.approx(2, rel=0.05)
    assert demand.measured.low < 2 < demand.measured.high
    assert demand.warm_up_s == 45
    assert (demand.past.missed, demand.measured.claims) == (120, 120)
    assert demand.burst == bursts.SINGLE
    assert demand.assumed == (
        "future claims are like the measured ones",
        "claims arrive one by one",
    )


def test_bursts_are_measured(world: World) -> None:
    play(world, 100, 60, together=8)
    assert measure(world).burst.mean > 3
    assert measure(world, burst=(2, 0)).burst == bursts.Burst(2, 0)


def test_too_little_history_says_how_much_is_needed(world: World) -> None:
    play(world, 19)
    with pytest.raises(
        errors.CannotError, match="too little history: 19 claims in 10 min"
    ) as caught:
        measure(world)
    assert "20 claims are needed" in caught.value.why
    assert "--claims-per-minute" in caught.value.todo
    demand = measure(world, claims_per_minute=4.0)
    assert (demand.claims_per_minute, demand.warm_up_s) == (4, 45)
    assert demand.assumed[0] == "4 claims a minute (given)"
    assert "too short to show bursts" in demand.assumed[1]
    assert measure(world, claims_per_minute=4.0, warm_up_s=90.0).warm_up_s == 90


def test_an_unknown_warm_up_is_an_error(world: World) -> None:
    world.clock.forward(60)
    with pytest.raises(errors.CannotError, match="the warm-up time of pool ci is not known"):
        measure(world, claims_per_minute=4.0)
    assert measure(world, claims_per_minute=4.0, warm_up_s=90.0).measured.warm_up is None


@pytest.mark.parametrize("over", [0.0, 1e9, float("nan")])
def test_an_invalid_span_is_refused(world: World, over: float) -> None:
    with pytest.raises(errors.UsageError):
        pool_sizing.measure_demand(opened(world), pool_sizing.SizeRequest(pool="ci", over_s=over))


def test_pool_size_on_the_command_line(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    world = World(f"sqlite:///{home / 'pools/pools.db'}")
    world.pool(target=2, heartbeat_stale_after_seconds=10**6)
    play(world, 120)
    # The command uses the real clock; replace it so that it sees this history.
    monkeypatch.setattr("overnight.pools.control.ControlPlane.__init__.__kwdefaults__", {"clock": world.clock})  # fmt: skip
    monkeypatch.setenv("COLUMNS", "100")

    def run(*words: str) -> tuple[int, str, str]:
        code = cli.main(["--home", str(home), "pool", "size", "--pool", "ci", *words])
        out, err = capsys.readouterr()
        return code, out, err

    code, out, _ = run()
    assert code == 0
    assert "pool ci in the last 1 h 45 s: 120 claims, 120 of them missed; target 2" in out
    assert "claims a minute (95 % confidence: 1.6" in out
    assert "warm-up   mean 45 s of 2" in out
    assert "assumed   claims arrive one by one" in out
    code, out, _ = run("-O", "json")
    document = json.loads(out)
    jsonschema.validate(document, json.loads(SCHEMA.read_text()))
    assert document["measured"]["claims"] == 120
    assert document["claims_per_minute"] == document["measured"]["claims_per_minute"]
    assert document["recommended_event_driven"] <= document["recommended"]
    code, out, err = run("--over", "5m")
    assert (code, out) == (3, "")
    assert "too little history: 11 claims in 5 min" in err
    code, out, _ = run("--over", "5m", "--claims-per-minute", "4", "--warmup", "90s", "-O", "json")
    assert json.loads(out)["recommended"] == 17
    world.close()


def test_hold_baseline_and_bursts_are_measured(world: World) -> None:
    """A claim an hour for two days, each held for ten minutes, and one burst of three."""
    world.plane.update("ci", target_size=4, ready_ttl_seconds=10**6)
    world.plane.replenish("ci")
    world.clock.forward(45)
    world.boot_all()
    for hour in range(48):
        world.clock.forward(600)
        grants = world.plane.acquire("ci", count=3 if hour == 20 else 1)
        world.clock.forward(600)
        for grant in grants:
            world.plane.give_back(grant.claim.id)
        world.plane.replenish("ci")
        world.clock.forward(45)
        world.boot_all()
        world.clock.forward(2355)
    request = pool_sizing.SizeRequest(pool="ci", over_s=7 * 86400)
    usage = pool_sizing.size_pool(opened(world), request).advice.usage
    assert usage.hold_s == 600
    assert usage.baseline_per_minute == pytest.approx(1 / 60)
    assert usage.together == 3
    given = pool_sizing.SizeRequest(pool="ci", hold_s=60, baseline_per_minute=1)
    usage = pool_sizing.size_pool(opened(world), given).advice.usage
    assert (usage.hold_s, usage.baseline_per_minute) == (60, 1)


def test_less_than_a_day_shows_no_quiet_hours(world: World) -> None:
    play(world, 40)
    request = pool_sizing.SizeRequest(pool="ci")
    usage = pool_sizing.size_pool(opened(world), request).advice.usage
    assert (usage.hold_s, usage.baseline_per_minute) == (None, None)


def test_the_price_of_waiting_needs_that_of_a_host(world: World) -> None:
    request = pool_sizing.SizeRequest(claims_per_minute=1, warm_up_s=90, wait_cost_per_hour=9)
    with pytest.raises(errors.UsageError, match="--wait-cost needs --cost"):
        pool_sizing.size_pool(opened(world), request)
