"""Pools as OpenMetrics text. Few labels, and no text of messages in them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import sqlalchemy as sa

from overnight.pools import decisions, reaper
from overnight.pools.sql import schema

if TYPE_CHECKING:
    from overnight.pools import admin, control

__all__ = ["render"]

RECENT = 10_000  # a scrape must not read a week of events
STATES = ("ready", "warming", "claimed", "draining", "errored")


def _escape(value: object) -> str:
    return str(value).replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


class _Page:
    def __init__(self) -> None:
        self._parts: list[str] = []

    def family(
        self, name: str, kind: str, about: str, rows: Iterable[tuple[Mapping[str, object], float]]
    ) -> None:
        """One family; without a row it is left out."""
        suffix = "_total" if kind == "counter" else ""
        lines = []
        for labels, value in rows:
            inside = ",".join(f'{key}="{_escape(one)}"' for key, one in labels.items())
            number = int(value) if float(value).is_integer() else value
            lines.append(
                f"{name}{suffix}{{{inside}}} {number}\n" if inside else f"{name}{suffix} {number}\n"
            )
        if lines:
            self._parts.append(f"# TYPE {name} {kind}\n# HELP {name} {about}\n")
            self._parts += lines

    def text(self) -> str:
        return "".join(self._parts) + "# EOF\n"


def render(plane: control.ControlPlane) -> str:
    """The page as things stand."""
    page = _Page()
    pools = plane.list(archived=True)
    page.family(
        "overnight_pool_members", "gauge", "Members of a pool by state.",
        [
            ({"pool": d.pool.name, "state": state}, getattr(d.counts, state))
            for d in pools
            for state in STATES
        ],
    )  # fmt: skip
    for name, about in (
        ("target_size", "Ready and warming members that a pool is to have."),
        ("min_size", "The floor of a pool."),
        ("max_size", "The ceiling of a pool, claimed members included."),
    ):
        page.family(
            f"overnight_pool_{name}", "gauge", about,
            [({"pool": d.pool.name}, getattr(d.pool, name)) for d in pools],
        )  # fmt: skip
    page.family(
        "overnight_pool_deficit", "gauge", "Members that are missing.",
        [({"pool": d.pool.name}, d.counts.deficit) for d in pools],
    )  # fmt: skip
    page.family(
        "overnight_pool_waiting", "gauge", "Members that those in the queue ask for.",
        [({"pool": d.pool.name}, d.counts.waiting) for d in pools],
    )  # fmt: skip
    page.family(
        "overnight_pool_active", "gauge", "1 for a pool that gives members out.",
        [({"pool": d.pool.name}, int(d.pool.refills)) for d in pools],
    )  # fmt: skip
    page.family(
        "overnight_pool_breaker_open", "gauge", "1 while nothing is launched after failures.",
        [({"pool": d.pool.name}, int(d.pool.breaker_opened_us is not None)) for d in pools],
    )  # fmt: skip
    _autoscale(page, pools, plane.context.clock())
    _from_rows(page, plane)
    page.family(
        "overnight_pool_orphans", "gauge", "Machines that no row stands for and that would not end.",
        [({"provider": n}, plane.orphans_left(n)) for n in plane.providers_in_use()],
    )  # fmt: skip
    seen = plane.get(reaper.SEEN)
    if seen:
        age = (plane.context.clock() - int(seen)) / decisions.SECOND
        page.family(
            "overnight_pool_reaper_age_seconds", "gauge", "Since the reaper was last at work.",
            [({}, round(age, 3))],
        )  # fmt: skip
    return page.text()


def _autoscale(page: _Page, pools: Iterable[admin.PoolDetails], now_us: int) -> None:
    """Only of pools whose size follows; and only once something was decided."""
    follow = [
        (d.pool.name, d.autoscale)
        for d in pools
        if d.autoscale is not None and d.autoscale.decided_us
    ]
    page.family(
        "overnight_pool_autoscale_wanted_size", "gauge",
        "What schedule and demand ask for, whatever max and cooldown make of it.",
        [({"pool": name, "cause": one.cause}, one.wanted_size) for name, one in follow],
    )  # fmt: skip
    page.family(
        "overnight_pool_autoscale_decision_age_seconds", "gauge", "Since the size was last decided.",
        [({"pool": name}, (now_us - one.decided_us) / decisions.SECOND) for name, one in follow],
    )  # fmt: skip
    page.family(
        "overnight_pool_autoscale_change_age_seconds", "gauge", "Since a decision last changed it.",
        [
            ({"pool": name}, (now_us - one.changed_us) / decisions.SECOND)
            for name, one in follow
            if one.changed_us is not None
        ],
    )  # fmt: skip


def _from_rows(page: _Page, plane: control.ControlPlane) -> None:
    events, claims, members = schema.events, schema.claims, schema.members
    with plane.context.database.read() as connection:
        last = int(connection.execute(sa.select(sa.func.max(events.c.id))).scalar() or 0)
        told = connection.execute(
            sa.select(events.c.pool, events.c.kind, events.c.reason, sa.func.count())
            .where(events.c.id > last - RECENT)
            .group_by(events.c.pool, events.c.kind, events.c.reason)
        ).all()
        stale = connection.execute(
            sa.select(schema.pools.c.name, sa.func.count(claims.c.id))
            .join(claims, claims.c.pool_id == schema.pools.c.id)
            .where(claims.c.released_us.is_(None), claims.c.stale_us.is_not(None))
            .group_by(schema.pools.c.name)
        ).all()
        abandoned = connection.execute(
            sa.select(schema.pools.c.name, sa.func.count(members.c.id))
            .join(members, members.c.pool_id == schema.pools.c.id)
            .where(members.c.gone_us.is_(None), members.c.abandoned_us.is_not(None))
            .group_by(schema.pools.c.name)
        ).all()
    page.family(
        "overnight_pool_events_recent", "gauge", f"Of the last {RECENT} events, those of a pool by kind and reason.",
        [({"pool": p, "kind": k, "reason": r}, int(n)) for p, k, r, n in sorted(map(tuple, told))],
    )  # fmt: skip
    page.family(
        "overnight_pool_claims_stale", "gauge", "Claims that look forgotten.",
        [({"pool": name}, int(n)) for name, n in sorted(map(tuple, stale))],
    )  # fmt: skip
    page.family(
        "overnight_pool_members_abandoned", "gauge", "Machines that would not end.",
        [({"pool": name}, int(n)) for name, n in sorted(map(tuple, abandoned))],
    )  # fmt: skip
