"""Pools as OpenMetrics text. Few labels, and no message texts in them."""

from __future__ import annotations

import collections
import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from overnight.model import openmetrics
from overnight.model.pool import PoolStatus
from overnight.model.times import SECOND_US
from overnight.pools.sql import metric_rows, total_rows

if TYPE_CHECKING:
    from overnight.model.pool import PoolDetails
    from overnight.pools import control

STATES = ("ready", "warming", "claimed", "draining", "errored")
OUTCOMES = ("at_once", "waited", "missed")
HISTOGRAMS = (
    ("wait", "member_claimed", "Time from request to claim, of the claims that were served."),
    ("warm_up", "member_ready", "Time from the intent to launch until a member was first ready."),
    ("member_lifetime", "member_gone", "Time from the intent to launch until a member was gone."),
)


def render(plane: control.ControlPlane) -> str:
    """Return the page of all pools, archived ones too."""
    page = openmetrics.Page()
    add_pools(page, plane)
    return page.text()


def add_pools(page: openmetrics.Page, plane: control.ControlPlane) -> None:
    pools, now = plane.list(archived=True), plane.context.clock()
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
    gauge("empty_seconds", "Time since the last member was ready; 0 while one is, or none should be.", (_age(d.pool.empty_since_us, now) for d in pools))  # fmt: skip
    gauge(
        "active",
        "1 if members can be claimed.",
        (d.pool.status is PoolStatus.ACTIVE for d in pools),
    )
    gauge("breaker_open", "1 while launches are stopped after failures.", (d.pool.breaker_opened_us is not None for d in pools))  # fmt: skip
    _add_autoscale(page, pools, now)
    _add_counts(page, plane, pools)
    page.family(
        "overnight_pool_orphans", "gauge", "Machines without a member that could not be terminated.",
        [({"provider": n}, plane.orphans_left(n)) for n in plane.providers_in_use()],
    )  # fmt: skip
    seen = plane.reaper_us
    if seen is not None:
        age = (plane.context.clock() - seen) / SECOND_US
        page.family(
            "overnight_pool_reaper_age_seconds", "gauge", "Time since a reaper last reported.",
            [({}, round(age, 3))],
        )  # fmt: skip


def _age(since_us: int | None, now_us: int) -> float:
    return 0.0 if since_us is None else max(0, now_us - since_us) / SECOND_US


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


def _add_totals(
    page: openmetrics.Page, pools: Sequence[str], totals: Sequence[total_rows.Total]
) -> None:
    """Add the counters and histograms; a pool without claims has zeros, so that rates begin there."""
    events: collections.Counter[tuple[str, str, str]] = collections.Counter()
    claims = collections.Counter({(pool, outcome): 0 for pool in pools for outcome in OUTCOMES})
    for total in totals:
        events[total.pool, total.kind, total.reason] += total.number
        if total.kind == "claim_missed":
            claims[total.pool, "missed"] += total.number
        elif total.kind == "member_claimed":
            claims[total.pool, "waited" if total.limit_us > 0 else "at_once"] += total.number
    page.family(
        "overnight_pool_events", "counter", "Events by kind and reason; of claim_missed the requested members.",
        [({"pool": p, "kind": k, "reason": r}, n) for (p, k, r), n in sorted(events.items())],
    )  # fmt: skip
    page.family(
        "overnight_pool_claims", "counter", "Requested members by outcome: at_once, waited, missed.",
        [({"pool": pool, "outcome": outcome}, n) for (pool, outcome), n in claims.items()],
    )  # fmt: skip
    page.family(
        "overnight_pool_recycled", "counter", "Members that are gone, by the reason they ended for.",
        [
            ({"pool": pool, "reason": reason}, n)
            for (pool, kind, reason), n in sorted(events.items())
            if kind == "member_gone"
        ],
    )  # fmt: skip
    for name, kind, about in HISTOGRAMS:
        page.histogram(
            f"overnight_pool_{name}_seconds",
            about,
            [
                _histogram(pool, [t for t in totals if (t.pool, t.kind) == (pool, kind)])
                for pool in pools
            ],
        )


def _histogram(pool: str, totals: Iterable[total_rows.Total]) -> openmetrics.Histogram:
    counts = dict.fromkeys((*map(float, total_rows.LIMITS_S), math.inf), 0)
    took = 0
    for total in totals:
        if total.limit_us != total_rows.NO_DURATION:
            longer = total.limit_us == total_rows.LONGER
            limit = math.inf if longer else total.limit_us / SECOND_US
            counts[limit] = counts.get(limit, 0) + total.number
            took += total.took_us
    return openmetrics.Histogram({"pool": pool}, counts, took / SECOND_US)


def _add_counts(
    page: openmetrics.Page, plane: control.ControlPlane, pools: Iterable[PoolDetails]
) -> None:
    with plane.context.database.read() as connection:
        totals = total_rows.list_all(connection)
        stale = metric_rows.count_by_pool(connection, metric_rows.STALE_CLAIMS)
        abandoned = metric_rows.count_by_pool(connection, metric_rows.ABANDONED)
    _add_totals(page, [details.pool.name for details in pools], totals)
    for family, about, counts in (
        ("claims_stale", "Claims flagged as stale.", stale),
        ("members_abandoned", "Members that could not be terminated.", abandoned),
    ):
        rows = [({"pool": name}, count) for name, count in counts]
        page.family(f"overnight_pool_{family}", "gauge", about, rows)
