"""A simulated day on the real control plane: rise, fall, a night at zero, the first claim after it;
and the wanted miss rate.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import poollife
import pytest

if TYPE_CHECKING:
    from poolworld import World

HOUR = 3600.0


def arrivals(per_minute: float, begin_s: float, end_s: float, seed: int = 1) -> list[float]:
    random = np.random.default_rng(seed)
    count = random.poisson(per_minute * (end_s - begin_s) / 60)
    return sorted(random.uniform(begin_s, end_s, count).tolist())


def test_the_size_follows_the_demand_of_a_day(fast_world: World) -> None:
    world = fast_world
    world.pool(target=1, max_size=30, **poollife.LASTING)
    world.plane.autoscale("ci", zero_after_seconds=1800, cooldown_seconds=600)
    life = poollife.Life(world, warm_up_s=90)
    # A quiet morning, a busy hour, a quiet afternoon, and the night.
    life.run(arrivals(0.1, 0, HOUR), HOUR, tick_s=300)
    quiet = life.target
    life.run(arrivals(1.5, HOUR, 1.7 * HOUR), 1.7 * HOUR, tick_s=300)
    busy = life.target
    life.run(arrivals(0.1, 1.7 * HOUR, 3 * HOUR), 3 * HOUR, tick_s=300)
    evening = life.target
    assert 1 <= quiet <= 4
    assert busy >= 7  # 1.5 a minute, 90 s: what `overnight pool size` says, woken
    assert 1 <= evening <= 4
    life.run([], 12 * HOUR, tick_s=1800)
    assert life.target == 0
    assert world.members() == []
    assert world.provider.machines == {}
    # Only changes are events, each with its reason.
    events = [e for e in world.plane.show("ci", recent=1000).events if e.kind == "pool_scaled"]
    assert len(events) == len(life.sizes) - 1
    assert events[0].reason == "quiet"
    # The first claim after the night launches its own member, and the pool grows again.
    grant = life.claim_cold()
    assert grant.claim.cold
    world.clock.forward(10)
    decision = world.plane.scale("ci")
    assert decision.size >= 1
    assert decision.reason.startswith("up to ")
    life.run([], 12.1 * HOUR, tick_s=60)
    assert world.plane.show("ci").counts.ready == life.target >= 1
    world.check()


@pytest.mark.long
@pytest.mark.timeout(600)
def test_the_wanted_miss_rate_is_kept(fast_world: World) -> None:
    """Two claims a minute for half a day, from a pool that begins with one host."""
    world = fast_world
    world.pool(target=1, max_size=40, **poollife.LASTING)
    world.plane.autoscale("ci", miss=0.02)
    life = poollife.Life(world, warm_up_s=90)
    life.run(arrivals(2, 0, HOUR, seed=3), HOUR, tick_s=60)
    life.served = life.missed = 0
    life.run(arrivals(2, HOUR, 13 * HOUR, seed=4), 13 * HOUR, tick_s=300)
    assert life.served + life.missed > 1300
    assert life.missed / (life.served + life.missed) <= 0.02
    assert max(size for when, size in life.sizes if when > HOUR) <= 16
