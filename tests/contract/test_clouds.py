"""A provider with regions: the check of an order, its regions, and why a machine is gone."""

from __future__ import annotations

from typing import TYPE_CHECKING

import poolprovider
import pytest

from overnight import errors, pools
from overnight.database import engine
from overnight.pools import control

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import poolworld


class CloudProvider(poolprovider.Scripted, pools.Cloud):
    """A cloud of two regions."""

    def __init__(self) -> None:
        super().__init__()
        self.inventoried: list[tuple[str, ...]] = []
        self.why = ""

    def check(self, order: pools.Order) -> None:
        if "nowhere" in order.regions or "127.0.0.1" in order.endpoint:
            raise errors.CannotError("not there", why="no such region", todo="choose another")

    def inventory(self, owner: str, regions: Sequence[str] = ()) -> Sequence[pools.Machine]:
        self.inventoried.append(tuple(regions))
        return super().inventory(owner)

    def why_gone(self, machine_id: str) -> str:
        if self.why == "hang up":
            raise pools.ProviderError("provider_error", "no")
        return self.why


class CloudWorld:
    """A second control plane for the same database, on a cloud provider."""

    def __init__(self, world: poolworld.World) -> None:
        self.clock = world.clock
        self.cloud = CloudProvider()
        self.database = engine.Database(world.url)
        self.plane = control.ControlPlane(self.database, {"cloudy": self.cloud}, clock=self.clock)

    def pool(self, name: str = "ci", **changes: object) -> None:
        plain: dict[str, object] = {"template": "t", "target_size": 1, "provider": "cloudy"}
        self.plane.create(name=name, **plain | {"region": "here"} | changes)


@pytest.fixture
def cloud_world(world: poolworld.World) -> Iterator[CloudWorld]:
    cloud_world = CloudWorld(world)
    yield cloud_world
    cloud_world.database.close()


def test_only_a_provider_with_regions_is_a_cloud() -> None:
    assert not isinstance(poolprovider.Scripted(), pools.Cloud)
    assert isinstance(CloudProvider(), pools.Cloud)


def test_an_order_the_provider_refuses_is_not_written(cloud_world: CloudWorld) -> None:
    with pytest.raises(errors.CannotError, match="not there"):
        cloud_world.pool(region="nowhere")
    assert cloud_world.plane.list() == ()
    cloud_world.pool()
    with pytest.raises(errors.CannotError, match="not there"):
        cloud_world.plane.update("ci", preferred_regions=["nowhere"])
    assert cloud_world.plane.show("ci").pool.preferred_regions == ()
    cloud_world.plane.set("endpoint", "http://127.0.0.1:1")
    with pytest.raises(errors.CannotError, match="not there"):
        cloud_world.plane.check("ci")
    cloud_world.plane.update("ci", target_size=2)  # other fields can be changed


def test_every_region_that_was_ever_named_is_inventoried(cloud_world: CloudWorld) -> None:
    cloud_world.pool(target_size=0)
    cloud_world.pool(
        "other", target_size=0, region="there", preferred_regions=["here", "and_there"]
    )
    cloud_world.plane.sweep("cloudy")
    cloud_world.plane.update("ci", region="elsewhere")
    for name in ("ci", "other"):
        cloud_world.plane.drain(name)
        cloud_world.plane.delete(name)
    cloud_world.plane.sweep("cloudy")
    assert cloud_world.cloud.inventoried == [
        ("and_there", "here", "there"),
        ("and_there", "elsewhere", "here", "there"),
    ]


@pytest.mark.parametrize(
    ("answer", "reason"),
    [("spot_interrupted", "spot_interrupted"), ("", "machine_gone"), ("hang up", "machine_gone")],
)
def test_why_a_machine_is_gone(answer: str, reason: str, cloud_world: CloudWorld) -> None:
    cloud_world.pool()
    cloud_world.plane.replenish("ci")
    cloud_world.cloud.machines.clear()
    cloud_world.cloud.why = answer
    cloud_world.plane.sweep("cloudy")
    cloud_world.clock.forward(1)
    assert cloud_world.plane.sweep("cloudy").gone == 1
    events = cloud_world.plane.show("ci").events
    assert [e.reason for e in events if e.kind == "member_gone"] == [reason]
    assert cloud_world.plane.show("ci").pool.last_failure == reason


def test_a_failed_launch_has_the_hint_of_the_provider(cloud_world: CloudWorld) -> None:
    cloud_world.pool()

    def refuse(order: pools.Order) -> None:
        raise pools.ProviderError("provider_quota_exceeded", "full", todo="ask for more")

    cloud_world.cloud.on_launch = refuse
    cloud_world.plane.replenish("ci")
    [errored] = [e for e in cloud_world.plane.show("ci").events if e.kind == "member_errored"]
    assert errored.detail == "the provider failed: full; ask for more"
