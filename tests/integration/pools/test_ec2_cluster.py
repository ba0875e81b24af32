"""A cluster of EC2 instances on a real moto server: all, as many as the quota allows, or none."""

from __future__ import annotations

import contextlib
import io
import itertools
from typing import TYPE_CHECKING

import pytest
import urllib3
from botocore import awsrequest
from ec2world import REGION, State, World
from realmachines import until

from overnight.model.cluster import ClusterOrder, ClusterState
from overnight.model.pool import Reason
from overnight.pools import reaper

if TYPE_CHECKING:
    from collections.abc import Iterator

    from overnight.pools.providers import ec2

LIMIT = b"<Response><Errors><Error><Code>VcpuLimitExceeded</Code></Error></Errors></Response>"


@contextlib.contextmanager
def quota(provider: ec2.Instances, most: int) -> Iterator[None]:
    """Refuse all launches after that many with the answer of EC2: moto has no quotas."""
    launches = itertools.count()

    def refuse(request: awsrequest.AWSPreparedRequest, **_: object) -> object:
        if next(launches) < most:
            return None
        body = urllib3.HTTPResponse(io.BytesIO(LIMIT), preload_content=False)
        return awsrequest.AWSResponse(request.url, 400, {}, body)

    events = provider._aws.get("ec2", REGION).meta.events
    events.register("before-send.ec2.RunInstances", refuse)
    try:
        yield
    finally:
        events.unregister("before-send.ec2.RunInstances", refuse)


@pytest.mark.parametrize(
    ("most", "at_least", "reason"),
    [(3, None, ""), (2, 2, ""), (2, None, Reason.QUOTA)],
    ids=["all", "at least two", "all or nothing"],
)
def test_what_a_quota_leaves_is_held_or_ended(
    world: World, most: int, at_least: int | None, reason: str
) -> None:
    clusters, tick = world.plane.clusters, reaper.Reaper(world.plane).tick
    order = ClusterOrder(
        count=3, at_least=at_least, template="runner", provider="ec2", region=REGION,
        settings={"breaker_failures": 1},
    )  # fmt: skip
    name = clusters.create(order).id
    with quota(world.provider, most):
        assert tick() == {}
        launched = world.account.instances()
        assert len(launched) == most
        world.fleet.boot()
        until(lambda: len(world.ready(name)) == most)
        for _ in range(
            2
        ):  # the first may find the quota again: members that came up closed the breaker
            assert tick() == {}
    cluster, details = clusters.show(name, recent=0)
    assert cluster.reason == reason
    if not reason:
        assert cluster.state is ClusterState.HELD
        claimed = {m.address for m in details.members if m.state is State.CLAIMED}
        assert claimed == {instance["PrivateIpAddress"] for instance in launched.values()}
        clusters.end(name, ClusterState.HELD, "released")
    assert world.account.instances() == {}
    assert set(world.account.instances("terminated")) == set(launched)
    assert tick() == {}
    assert clusters.list() == []
    assert world.plane.sweep("ec2").orphans == 0
