"""A pool's history becomes a demand, or the answer that there is too little of it."""

from __future__ import annotations

import json
import pathlib

import jsonschema
import numpy as np
import pytest
from poolworld import World

from overnight import errors
from overnight.app import pool_sizing
from overnight.interfaces import cli
from overnight.pools import bursts

SCHEMA = pathlib.Path(__file__).parents[3] / "docs/schemas/pool-size-1.json"


@pytest.fixture
def world(tmp_path: pathlib.Path) -> World:
    made = World(f"sqlite:///{tmp_path / 'pools.db'}")
    made.pool(target=2, heartbeat_stale_after_seconds=10**6)
    return made


def played(world: World, claims: int, every_s: float = 30, *, together: int = 1) -> None:
    """Claims at even times, bursts at random ones, none served; members came up in 45 s."""
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


def known(world: World, **told: object) -> pool_sizing.MeasuredDemand:
    request = pool_sizing.SizeRequest(pool="ci", over_s=86400, **told)  # type: ignore[arg-type]
    return pool_sizing.measure_demand(world.plane, request)


def test_missed_claims_are_demand_and_the_warm_up_is_measured(world: World) -> None:
    played(world, 120)
    found = known(world)
    assert found.claims_per_minute == pytest.approx(2, rel=0.05)
    assert found.measured.low < 2 < found.measured.high
    assert found.warm_up_s == 45
    assert (found.past.missed, found.measured.claims) == (120, 120)
    assert found.burst == bursts.SINGLE
    assert found.assumed == (
        "future claims are like the measured ones",
        "claims arrive one by one",
    )


def test_bursts_are_measured(world: World) -> None:
    played(world, 100, 60, together=8)
    assert known(world).burst.mean > 3
    assert known(world, burst=(2, 0)).burst == bursts.Burst(2, 0)


def test_too_little_history_says_how_much_is_needed(world: World) -> None:
    played(world, 19)
    with pytest.raises(errors.CannotError, match="too little history: 19 claims in 10m") as caught:
        known(world)
    assert "20 claims are needed" in caught.value.why
    assert "--claims-per-minute" in caught.value.todo
    found = known(world, claims_per_minute=4.0)
    assert (found.claims_per_minute, found.warm_up_s) == (4, 45)
    assert found.assumed[0] == "4 claims a minute (given)"
    assert "too short to show bursts" in found.assumed[1]
    assert known(world, claims_per_minute=4.0, warm_up_s=90.0).warm_up_s == 90


def test_a_warm_up_that_nobody_saw_is_asked_for(world: World) -> None:
    world.clock.forward(60)
    with pytest.raises(errors.CannotError, match="the warm-up time of pool ci is not known"):
        known(world, claims_per_minute=4.0)
    assert known(world, claims_per_minute=4.0, warm_up_s=90.0).measured.warm_up is None


@pytest.mark.parametrize("over", [0.0, 1e9, float("nan")])
def test_a_span_that_makes_no_sense_is_refused(world: World, over: float) -> None:
    with pytest.raises(errors.UsageError):
        pool_sizing.measure_demand(world.plane, pool_sizing.SizeRequest(pool="ci", over_s=over))


def test_from_the_command_line(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    made = World(f"sqlite:///{home / 'pools/pools.db'}")
    made.pool(target=2, heartbeat_stale_after_seconds=10**6)
    played(made, 120)
    # The command goes by the real clock, which has to find this past.
    monkeypatch.setattr("overnight.pools.control.ControlPlane.__init__.__kwdefaults__", {"clock": made.clock})  # fmt: skip
    monkeypatch.setenv("COLUMNS", "100")

    def ask(*words: str) -> tuple[int, str, str]:
        code = cli.main(["--home", str(home), "pool", "size", "--pool", "ci", *words])
        out, err = capsys.readouterr()
        return code, out, err

    code, out, _ = ask()
    assert code == 0
    assert "pool ci in the last 1h45s: 120 claims, 120 of them missed; target 2" in out
    assert "claims a minute (95 % confidence: 1.6" in out
    assert "warm-up   mean 45s of 2" in out
    assert "assumed   claims arrive one by one" in out
    code, out, _ = ask("-O", "json")
    told = json.loads(out)
    jsonschema.validate(told, json.loads(SCHEMA.read_text()))
    assert told["measured"]["claims"] == 120
    assert told["claims_per_minute"] == told["measured"]["claims_per_minute"]
    assert told["recommended_event_driven"] <= told["recommended"]
    code, out, err = ask("--over", "5m")
    assert (code, out) == (3, "")
    assert "too little history: 11 claims in 5m" in err
    code, out, _ = ask("--over", "5m", "--claims-per-minute", "4", "--warmup", "90s", "-O", "json")
    assert json.loads(out)["recommended"] == 17
    made.close()
