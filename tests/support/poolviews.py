"""Pools, members and claims for tests, without a database."""

from __future__ import annotations

from typing import Any

from overnight.model.pool import Claim, Member, MemberState, Pool, PoolStatus
from overnight.pools import decisions, settings

S = 1_000_000
NOW = 1_000_000 * S
Status, State = PoolStatus, MemberState


def pool(**fields: Any) -> Pool:
    tuned = settings.changed(settings.DEFAULTS, fields.pop("tuned", {}))
    target = fields.pop("target", 5)
    plain: dict[str, Any] = {
        "id": "p-1", "name": "ci", "template": "t", "target_size": target, "min_size": 0,
        "max_size": target + 10, "settings": tuned,
    }  # fmt: skip
    return Pool(**{**plain, **fields})


def member(name: str, state: State, *, age: float = 60, **fields: Any) -> Member:
    began = NOW - int(age * S)
    plain: dict[str, Any] = {
        "id": name, "pool_id": "p-1", "state": state, "machine_id": f"i-{name}",
        "warming_started_us": began, "launched_us": began,
    }  # fmt: skip
    if state is not State.WARMING:
        plain |= {"ready_us": began, "beat_us": NOW - S}
    return Member(**{**plain, **fields})


def some(state: State, count: int, **fields: Any) -> list[Member]:
    return [member(f"{state}-{n}", state, age=100 - n, **fields) for n in range(count)]


def view(held: Pool, *members: Member, **fields: Any) -> decisions.View:
    return decisions.View(pool=held, members=members, now_us=NOW, **fields)


def claim(name: str = "c-1", member_id: str = "m", **fields: Any) -> Claim:
    return Claim(id=name, pool_id="p-1", member_id=member_id, **fields)
