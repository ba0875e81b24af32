"""The metrics page is valid OpenMetrics and has the state of the pools."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client.openmetrics import parser

from overnight import pools
from overnight.pools import metrics, reaper

if TYPE_CHECKING:
    from poolworld import World


def test_the_page_has_the_counts_of_the_pools(world: World) -> None:
    world.pool(target=3, breaker_failures=1)
    world.pool('other"\n'.strip('"\n'), target=0)
    world.fill()
    world.plane.acquire("ci")
    reaper.Reaper(world.plane).tick()
    world.clock.forward(7)
    page = metrics.render(world.plane)
    samples = {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in parser.text_string_to_metric_families(page)
        for sample in family.samples
    }

    def value(name: str, **labels: str) -> float:
        return samples[f"overnight_pool_{name}", tuple(sorted(labels.items()))]

    assert value("members", pool="ci", state="ready") == 2
    assert value("members", pool="ci", state="claimed") == 1
    assert value("members", pool="ci", state="warming") == 1
    assert value("target_size", pool="ci") == 3
    assert value("target_size", pool="other") == 0
    assert value("breaker_open", pool="ci") == 0
    assert value("orphans", provider="scripted") == 0
    assert value("reaper_age_seconds") == 7
    assert value("events_recent", pool="ci", kind="member_claimed", reason="claimed") == 1


def test_the_page_has_the_metrics_for_alerts(world: World) -> None:
    world.pool(target=1, breaker_failures=1, claimed_ttl_seconds=60)
    world.fill()
    world.plane.acquire("ci")

    def refuse(_: object) -> None:
        raise pools.ProviderError("provider_quota_exceeded", "no", nothing_made=True)

    world.provider.on_launch = refuse
    world.provider.on_terminate = refuse  # type: ignore[assignment]
    world.provider.machines["i-lost"] = pools.Machine(id="i-lost", member_id="m-none")
    world.provider.owners["i-lost"] = world.plane.context.owner
    world.clock.forward(60)
    reaper.Reaper(world.plane).tick()
    page = metrics.render(world.plane)
    assert 'overnight_pool_breaker_open{pool="ci"} 1' in page
    assert 'overnight_pool_claims_stale{pool="ci"} 1' in page
    assert 'overnight_pool_orphans{provider="scripted"} 1' in page
