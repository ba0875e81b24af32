"""When a cluster is handed over, and how it ends."""

from __future__ import annotations

import dataclasses

import pytest
from poolviews import NOW, S, State, Status, claim, pool, some, view

from overnight.model.cluster import Cluster
from overnight.pools import cluster_steps


def cluster(**fields: int | str | None) -> Cluster:
    plain = {"count": 5, "at_least": 3, "lease_seconds": 60}
    return Cluster(id="cluster-1", template="t", provider="x", **plain | fields)


@pytest.mark.parametrize(
    ("ready", "until_us", "breaker_us", "warming", "step"),
    [
        (5, NOW + S, None, 0, cluster_steps.Hold(5)),
        (4, NOW + S, None, 1, None),
        (4, NOW + 1, None, 0, None),
        (4, NOW, None, 1, cluster_steps.Hold(4)),
        (3, NOW, None, 2, cluster_steps.Hold(3)),
        (2, NOW, None, 3, cluster_steps.End("provider_quota_exceeded")),
        (3, NOW + S, NOW, 0, cluster_steps.Hold(3)),
        (2, NOW + S, NOW, 1, None),
        (2, NOW + S, NOW, 0, cluster_steps.End("provider_quota_exceeded")),
    ],
)
def test_when_a_cluster_is_handed_over(
    ready: int, until_us: int, breaker_us: int | None, warming: int, step: object
) -> None:
    assembling = pool(
        status=Status.PAUSED, assemble_until_us=until_us, breaker_opened_us=breaker_us,
        last_failure="provider_quota_exceeded",
    )  # fmt: skip
    members = [*some(State.READY, ready), *some(State.WARMING, warming)]
    assert cluster_steps.decide(cluster(), view(assembling, *members), ready) == step


def test_how_a_cluster_ends() -> None:
    held, archived = cluster(held_us=NOW - 60 * S), pool(status=Status.ARCHIVED)
    claimed = view(archived, *some(State.CLAIMED, 1), claims=[claim()])
    assert cluster_steps.decide(held, claimed, 0) is None
    empty = view(archived)
    expired = cluster_steps.decide(held, empty, 0, expired=True)
    assert expired == cluster_steps.End("lease_expired")
    assert cluster_steps.decide(held, empty, 0) == cluster_steps.End("claims_ended")
    ended = dataclasses.replace(held, ended_us=NOW)
    assert cluster_steps.decide(ended, view(archived, *some(State.DRAINING, 1)), 0) is None
    assert cluster_steps.decide(ended, empty, 0) == cluster_steps.Forget()
    timed_out = view(pool(status=Status.PAUSED, assemble_until_us=NOW))
    assert cluster_steps.decide(cluster(), timed_out, 0) == cluster_steps.End("assembly_timeout")
