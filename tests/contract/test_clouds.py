"""What a provider in regions is asked besides: a check at the door, its regions, and why one is gone."""

from __future__ import annotations

from typing import TYPE_CHECKING

import poolprovider
import pytest

from overnight import errors, pools
from overnight.pools import control, database

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import poolworld


class Cloudy(poolprovider.Scripted):
    """A cloud of two regions."""

    def __init__(self) -> None:
        super().__init__()
        self.looked_at: list[tuple[str, ...]] = []
        self.why = ""

    def check(self, order: pools.Order) -> None:
        if "nowhere" in order.regions or "127.0.0.1" in order.endpoint:
            raise errors.CannotError("not there", why="no such region", todo="choose another")

    def inventory(self, owner: str, regions: Sequence[str] = ()) -> Sequence[pools.Machine]:
        self.looked_at.append(tuple(regions))
        return super().inventory(owner)

    def why_gone(self, machine_id: str) -> str:
        if self.why == "hang up":
            raise pools.ProviderError("provider_error", "no")
        return self.why


class Sky:
    """A control plane on a cloud, beside the world's own."""

    def __init__(self, world: poolworld.World) -> None:
        self.clock = world.clock
        self.cloud = Cloudy()
        self.database = database.Database(world.url)
        self.plane = control.ControlPlane(self.database, {"cloudy": self.cloud}, clock=self.clock)

    def pool(self, name: str = "ci", **given: object) -> None:
        plain: dict[str, object] = {"template": "t", "target_size": 1, "provider": "cloudy"}
        self.plane.create(name=name, **plain | {"region": "here"} | given)


@pytest.fixture
def sky(world: poolworld.World) -> Iterator[Sky]:
    made = Sky(world)
    yield made
    made.database.close()


def test_scripted_is_no_cloud_and_cloudy_is() -> None:
    assert not isinstance(poolprovider.Scripted(), pools.Cloud)
    assert isinstance(Cloudy(), pools.Cloud)


def test_what_it_would_never_launch_is_not_written(sky: Sky) -> None:
    with pytest.raises(errors.CannotError, match="not there"):
        sky.pool(region="nowhere")
    assert sky.plane.list() == ()
    sky.pool()
    with pytest.raises(errors.CannotError, match="not there"):
        sky.plane.update("ci", preferred_regions=["nowhere"])
    assert sky.plane.show("ci").pool.preferred_regions == ()
    sky.plane.set("endpoint", "http://127.0.0.1:1")
    with pytest.raises(errors.CannotError, match="not there"):
        sky.plane.check("ci")
    sky.plane.update("ci", target_size=2)  # what has nothing to do with it can be changed


def test_every_region_that_was_ever_named_is_looked_at(sky: Sky) -> None:
    sky.pool(target_size=0)
    sky.pool("other", target_size=0, region="there", preferred_regions=["here", "and_there"])
    sky.plane.sweep("cloudy")
    sky.plane.update("ci", region="elsewhere")
    for name in ("ci", "other"):
        sky.plane.drain(name)
        sky.plane.delete(name)
    sky.plane.sweep("cloudy")
    assert sky.cloud.looked_at == [
        ("and_there", "here", "there"),
        ("and_there", "elsewhere", "here", "there"),
    ]


@pytest.mark.parametrize(
    ("said", "told"),
    [("spot_interrupted", "spot_interrupted"), ("", "machine_gone"), ("hang up", "machine_gone")],
)
def test_why_a_machine_is_gone(said: str, told: str, sky: Sky) -> None:
    sky.pool()
    sky.plane.replenish("ci")
    sky.cloud.machines.clear()
    sky.cloud.why = said
    sky.plane.sweep("cloudy")
    sky.clock.forward(1)
    assert sky.plane.sweep("cloudy").gone == 1
    events = sky.plane.show("ci").events
    assert [e.reason for e in events if e.kind == "member_gone"] == [told]
    assert sky.plane.show("ci").pool.last_failure == told


def test_what_to_do_is_told_with_a_launch_that_failed(sky: Sky) -> None:
    sky.pool()

    def refuse(order: pools.Order) -> None:
        raise pools.ProviderError("provider_quota_exceeded", "full", todo="ask for more")

    sky.cloud.on_launch = refuse
    sky.plane.replenish("ci")
    [errored] = [e for e in sky.plane.show("ci").events if e.kind == "member_errored"]
    assert errored.detail == "the provider failed: full; ask for more"
