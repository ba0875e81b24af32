"""Pools as OpenMetrics text. Few labels, and no message texts in them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from overnight.model import openmetrics
from overnight.model.times import SECOND_US
from overnight.pools import reaper
from overnight.pools.sql import metric_rows

if TYPE_CHECKING:
    from overnight.model.pool import PoolDetails
    from overnight.pools import control

STATES = ("ready", "warming", "claimed", "draining", "errored")


def render(plane: control.ControlPlane) -> str:
    """Return the page of all pools, archived ones too."""
    page = openmetrics.Page()
    pools = plane.list(archived=True)
    page.family(
        "overnight_pool_members", "gauge", "Members by state.",
        [
            ({"pool": details.pool.name, "state": state}, getattr(details.counts, state))
            for details in pools
            for state in STATES
        ],
    )  # fmt: skip

    def gauge(name: str, about: str, values: Iterable[float]) -> None:
        rows = [
            ({"pool": details.pool.name}, value)
            for details, value in zip(pools, values, strict=True)
        ]
        page.family(f"overnight_pool_{name}", "gauge", about, rows)

    gauge("target_size", "Members to keep ready or warming.", (d.pool.target_size for d in pools))
    gauge("min_size", "Minimum number of ready members.", (d.pool.min_size for d in pools))
    gauge("max_size", "Maximum number of members, claimed ones included.", (d.pool.max_size for d in pools))  # fmt: skip
    gauge("deficit", "Members missing from the target.", (d.counts.deficit for d in pools))
    gauge("waiting", "Members that callers in the queue ask for.", (d.counts.waiting for d in pools))  # fmt: skip
    gauge("active", "1 if members can be claimed.", (d.pool.refills for d in pools))
    gauge("breaker_open", "1 while launches are stopped after failures.", (d.pool.breaker_opened_us is not None for d in pools))  # fmt: skip
    _add_autoscale(page, pools, plane.context.clock())
    _add_counts(page, plane)
    page.family(
        "overnight_pool_orphans", "gauge", "Machines without a member that could not be terminated.",
        [({"provider": n}, plane.orphans_left(n)) for n in plane.providers_in_use()],
    )  # fmt: skip
    seen = plane.get(reaper.SEEN)
    if seen:
        age = (plane.context.clock() - int(seen)) / SECOND_US
        page.family(
            "overnight_pool_reaper_age_seconds", "gauge", "Time since a reaper last reported.",
            [({}, round(age, 3))],
        )  # fmt: skip
    return page.text()


def _add_autoscale(page: openmetrics.Page, pools: Iterable[PoolDetails], now_us: int) -> None:
    """Add the pools whose policy has decided at least once."""
    decided = [
        (details.pool.name, policy)
        for details in pools
        if (policy := details.autoscale) is not None and policy.decided_us
    ]
    page.family(
        "overnight_pool_autoscale_wanted_size", "gauge",
        "Size for schedule and demand, before maximum and cooldown.",
        [({"pool": name, "cause": p.cause}, p.wanted_size) for name, p in decided],
    )  # fmt: skip
    page.family(
        "overnight_pool_autoscale_decision_age_seconds", "gauge", "Time since the last decision.",
        [({"pool": name}, (now_us - p.decided_us) / SECOND_US) for name, p in decided],
    )  # fmt: skip
    page.family(
        "overnight_pool_autoscale_change_age_seconds", "gauge", "Time since the last change of size.",
        [
            ({"pool": name}, (now_us - p.changed_us) / SECOND_US)
            for name, p in decided
            if p.changed_us is not None
        ],
    )  # fmt: skip


def _add_counts(page: openmetrics.Page, plane: control.ControlPlane) -> None:
    with plane.context.database.read() as connection:
        events = metric_rows.count_events(connection)
        stale = metric_rows.count_stale_claims(connection)
        abandoned = metric_rows.count_abandoned_members(connection)
    page.family(
        "overnight_pool_events_recent", "gauge",
        f"Events by kind and reason, among the last {metric_rows.RECENT}.",
        [({"pool": p, "kind": k, "reason": r}, count) for p, k, r, count in events],
    )  # fmt: skip
    page.family(
        "overnight_pool_claims_stale", "gauge", "Claims flagged as stale.",
        [({"pool": name}, count) for name, count in stale],
    )  # fmt: skip
    page.family(
        "overnight_pool_members_abandoned", "gauge", "Members that could not be terminated.",
        [({"pool": name}, count) for name, count in abandoned],
    )  # fmt: skip
