"""The metrics page is valid OpenMetrics and has the state of the pools."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import sqlalchemy as sa
from poolworld import START
from prometheus_client.openmetrics import parser

from overnight import pools
from overnight.pools import metrics, pool_errors, reaper
from overnight.pools.sql import event_rows, schema, total_rows

if TYPE_CHECKING:
    from poolworld import World

    from overnight.pools import control


class Page:
    """A scrape, parsed."""

    def __init__(self, plane: control.ControlPlane) -> None:
        self.samples = {
            (sample.name, tuple(sorted(sample.labels.items()))): sample.value
            for family in parser.text_string_to_metric_families(metrics.render(plane))
            for sample in family.samples
        }

    def value(self, name: str, **labels: str) -> float:
        return self.samples[f"overnight_pool_{name}", tuple(sorted(labels.items()))]

    def buckets(self, name: str, **labels: str) -> dict[str, float]:
        """Return the buckets of a histogram above the one before."""
        counts = {
            dict(found)["le"]: value
            for (metric, found), value in self.samples.items()
            if metric == f"overnight_pool_{name}_bucket" and labels.items() <= dict(found).items()
        }
        values = [0.0, *counts.values()]
        return {
            le: new - old
            for le, old, new in zip(counts, values, values[1:], strict=False)
            if new > old
        }


def test_the_page_has_the_counts_of_the_pools(world: World) -> None:
    world.pool(target=3, breaker_failures=1)
    world.pool('other"\n'.strip('"\n'), target=0)
    world.fill()
    world.plane.acquire("ci")
    reaper.Reaper(world.plane).tick()
    world.clock.forward(7)
    page = Page(world.plane)
    assert page.value("members", pool="ci", state="ready") == 2
    assert page.value("members", pool="ci", state="claimed") == 1
    assert page.value("members", pool="ci", state="warming") == 1
    assert page.value("target_size", pool="ci") == 3
    assert page.value("target_size", pool="other") == 0
    assert page.value("breaker_open", pool="ci") == 0
    assert page.value("orphans", provider="scripted") == 0
    assert page.value("reaper_age_seconds") == 7
    assert page.value("events_total", pool="ci", kind="member_claimed", reason="claimed") == 1
    # Zeros from the beginning: the first miss is a rise.
    assert page.value("claims_total", pool="other", outcome="missed") == 0
    assert page.value("wait_seconds_count", pool="other") == 0


def play(world: World) -> None:
    """One member that warms up for 45 s and lives for 400 s; claims at once, after 20 s, and missed."""
    world.pool(target=1, ready_ttl_seconds=600)
    world.plane.replenish("ci")
    world.clock.forward(45)
    world.boot_all()
    [at_once] = world.plane.acquire("ci")
    with pytest.raises(pool_errors.NoReadyMembersError):
        world.plane.acquire("ci", count=3)

    def come_up(step: str) -> None:
        if step == "queue up: after commit":
            world.clock.forward(20)
            world.fill()

    world.another(come_up).acquire("ci", wait_seconds=60)
    world.clock.forward(335)
    world.plane.give_back(at_once.claim.id)


def check_play(page: Page) -> None:
    assert page.value("claims_total", pool="ci", outcome="at_once") == 1
    assert page.value("claims_total", pool="ci", outcome="waited") == 1
    assert page.value("claims_total", pool="ci", outcome="missed") == 3
    assert (
        page.value("events_total", pool="ci", kind="claim_missed", reason="no_ready_members") == 3
    )
    assert page.buckets("wait_seconds", pool="ci") == {"0.0": 1, "30.0": 1}
    assert page.value("wait_seconds_sum", pool="ci") == 20
    assert page.buckets("warm_up_seconds", pool="ci") == {"0.0": 1, "60.0": 1}
    assert page.value("warm_up_seconds_sum", pool="ci") == 45
    assert page.buckets("member_lifetime_seconds", pool="ci") == {"600.0": 1}
    assert page.value("member_lifetime_seconds_sum", pool="ci") == 400
    assert page.value("recycled_total", pool="ci", reason="returned") == 1


def test_the_page_counts_claims_misses_durations_and_reasons(world: World) -> None:
    play(world)
    check_play(Page(world.plane))


def test_counters_outlive_their_events_and_count_each_once(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(total_rows, "BATCH", 3)
    play(world)
    other = world.another()
    for _ in range(3):
        world.clock.forward(20)  # some of the events are in the totals, some are not
        world.plane.recycle("ci")
        other.recycle("ci")
        check_play(Page(world.plane))
    world.clock.forward(8 * 86400)
    world.beat_all()
    world.plane.recycle("ci")
    assert world.kinds().count("claim_missed") == 0
    page = Page(other)
    assert page.value("claims_total", pool="ci", outcome="missed") == 3
    assert page.buckets("wait_seconds", pool="ci") == {"0.0": 1, "30.0": 1}


def test_an_event_is_kept_until_it_is_counted(world: World) -> None:
    world.pool(target=1, record_retention_seconds=1)
    for number in (1, 2):
        with pytest.raises(pool_errors.NoReadyMembersError):
            world.plane.acquire("ci")
        for _ in range(2):
            world.clock.forward(20)
            world.plane.recycle("ci")
            page = Page(world.plane)
            assert page.value("claims_total", pool="ci", outcome="missed") == number
    assert "pool_created" not in world.kinds()


def test_events_are_counted_after_all_others_were_deleted(world: World) -> None:
    """SQLite would use the id of a deleted last event again."""
    world.pool(target=0)
    world.clock.forward(60)
    world.plane.recycle("ci")
    world.plane.delete("ci")
    world.clock.forward(8 * 86400)
    reaper.Reaper(world.plane).tick()
    world.pool(target=0)
    world.clock.forward(60)
    world.plane.recycle("ci")
    page = Page(world.plane)
    assert page.value("events_total", pool="ci", kind="pool_created", reason="") == 1


def test_a_transaction_that_commits_late_is_counted(world: World) -> None:
    """On PostgreSQL the event with the smaller id may be visible last."""
    pool = world.pool(target=0)
    with world.plane.context.database.write("late") as connection:
        event_rows.add(connection, "claim_missed", world.clock(), pool=pool, detail="1")
        if connection.dialect.name == "postgresql":  # SQLite has one writer at a time
            other = world.another()
            with other.context.database.write("early") as second:
                event_rows.add(second, "claim_missed", world.clock(), pool=pool, detail="1")
            other.recycle("ci")
        else:
            event_rows.add(connection, "claim_missed", world.clock(), pool=pool, detail="1")
    world.clock.forward(60)
    world.plane.recycle("ci")
    assert Page(world.plane).value("claims_total", pool="ci", outcome="missed") == 2


def test_a_deleted_pool_leaves_the_page(world: World) -> None:
    pool = world.pool(target=0)
    world.clock.forward(60)
    world.plane.recycle("ci")
    world.plane.delete("ci")
    world.clock.forward(60)
    world.pool("other", target=0)
    world.plane.recycle("other")
    assert {
        labels for name, labels in Page(world.plane).samples if ("pool", "ci") in labels
    } == set()
    with world.plane.context.database.read() as connection:
        assert pool.id not in connection.execute(sa.select(schema.totals.c.pool_id)).scalars().all()


def test_the_page_has_the_time_without_a_ready_member(world: World) -> None:
    world.pool(target=1)
    assert Page(world.plane).value("empty_seconds", pool="ci") == 0
    world.plane.replenish("ci")
    world.clock.forward(40)
    world.plane.replenish("ci")
    assert Page(world.plane).value("empty_seconds", pool="ci") == 40
    assert world.plane.show("ci").pool.empty_since_us == START
    world.fill()
    world.plane.replenish("ci")
    assert Page(world.plane).value("empty_seconds", pool="ci") == 0
    world.plane.acquire("ci")
    world.plane.replenish("ci")
    world.clock.forward(5)
    assert Page(world.plane).value("empty_seconds", pool="ci") == 5
    world.plane.update("ci", status="paused")
    world.plane.replenish("ci")
    assert world.plane.show("ci").pool.empty_since_us is None
    world.pool("none", target=0)
    world.plane.replenish("none")
    assert world.plane.show("none").pool.empty_since_us is None


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
