"""Pools of EC2 instances on a real moto server: real boto3, real HTTP; AWS itself is never called.

The instances of moto do not run, so the tests run their user data: the script with the agent, which
enrols at the endpoint of the pool.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import bootedagents
import motoserver
import pytest
from ec2world import World, instance_of
from realmachines import until

from overnight import errors, pools
from overnight.pools import pool_errors, reaper
from overnight.pools.providers import ec2

if TYPE_CHECKING:
    import pathlib

REGION, ELSEWHERE = motoserver.REGION, motoserver.ELSEWHERE


def order(member: str = "m-1", **changes: Any) -> pools.Order:
    plain = {
        "owner": "me", "member_id": member, "pool": "ci", "template": "runner",
        "regions": (REGION,), "endpoint": "http://pools.internal:8417", "token": "5" * 64,
    }  # fmt: skip
    return pools.Order(**{**plain, **changes})


def tags(resource: dict[str, Any]) -> dict[str, str]:
    return {tag["Key"]: tag["Value"] for tag in resource["Tags"]}


# the provider


def test_an_instance_and_its_volumes_are_tagged_with_their_owner(
    provider: ec2.Instances, account: motoserver.Account
) -> None:
    machine = provider.launch(order())
    [instance] = account.instances().values()
    expected = {"overnight:owner": "me", "overnight:pool": "ci", "overnight:member": "m-1"}
    assert machine.id == f"{REGION}/{instance['InstanceId']}"
    assert machine.address == instance["PrivateIpAddress"]
    assert expected.items() <= tags(instance).items()
    [volume] = account.ec2.describe_volumes()["Volumes"]
    assert expected.items() <= tags(volume).items()
    assert instance["MetadataOptions"]["HttpTokens"] == "required"
    assert instance["ClientToken"] == "m-1"
    assert instance["InstanceType"] == "t3.micro"  # from the template
    assert instance.get("InstanceLifecycle") is None


def test_a_spot_instance_of_another_type_and_template_version(
    provider: ec2.Instances, account: motoserver.Account
) -> None:
    account.ec2.create_launch_template_version(
        LaunchTemplateName="runner", SourceVersion="1", LaunchTemplateData={"KeyName": "second"}
    )
    provider.launch(order(template="runner:2", lifecycle_class="spot", instance_type="c7i.large"))
    [instance] = account.instances().values()
    assert instance["InstanceLifecycle"] == "spot"
    assert instance["InstanceType"] == "c7i.large"
    assert tags(instance)["aws:ec2launchtemplate:version"] == "2"


def test_the_same_member_twice_is_the_same_instance(
    provider: ec2.Instances, account: motoserver.Account, tmp_path: pathlib.Path
) -> None:
    first = provider.launch(order())
    assert provider.launch(order()) == first
    assert ec2.create(tmp_path).launch(order()) == first  # also from another host
    assert len(account.instances()) == 1


def test_an_inventory_lists_the_live_instances_of_its_owner(
    provider: ec2.Instances, account: motoserver.Account
) -> None:
    running, stopped, ended = (provider.launch(order(f"m-{n}")) for n in range(3))
    provider.launch(order("m-9", owner="you"))
    account.ec2.stop_instances(InstanceIds=[stopped.id.partition("/")[2]])
    account.ec2.terminate_instances(InstanceIds=[ended.id.partition("/")[2]])
    listed = {machine.id: machine for machine in provider.inventory("me", [REGION])}
    assert listed == {
        running.id: running,
        stopped.id: stopped,
    }  # a stopped instance still costs its volumes
    assert len(provider.inventory("you", [REGION, ELSEWHERE])) == 1
    assert provider.inventory("me", []) == []


def test_terminate_ends_the_instance_and_can_be_repeated(
    provider: ec2.Instances, account: motoserver.Account
) -> None:
    machine = provider.launch(order())
    provider.terminate(machine.id)
    provider.terminate(machine.id)
    assert account.instances() == {}
    assert provider.inventory("me", [REGION]) == []
    provider.terminate(f"{REGION}/i-0123456789abcdef0")


@pytest.mark.parametrize("template", ["nobody", "runner:9"])
def test_a_missing_template_is_an_error(
    template: str, provider: ec2.Instances, account: motoserver.Account
) -> None:
    with pytest.raises(pools.ProviderError) as caught:
        provider.launch(order(template=template))
    assert (caught.value.reason, caught.value.nothing_made) == ("template_invalid", True)
    assert account.instances() == {}


def test_a_profile_in_a_file_works_like_the_environment(
    moto: str, account: motoserver.Account, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in motoserver.environment(moto):
        monkeypatch.delenv(name)
    for name, value in motoserver.write_configuration(tmp_path, moto).items():
        monkeypatch.setenv(name, value)
    ec2.create(tmp_path).launch(order())
    assert len(account.instances()) == 1


# a pool of instances


def test_the_life_of_a_pool(world: World) -> None:
    world.pool()
    members = world.fill()
    assert {instance_of(m) for m in members} == set(world.account.instances())
    assert {m.region for m in members} == {REGION}
    [grant] = world.plane.acquire("ci", acquired_by="job-1")
    [instance] = [i for n, i in world.account.instances().items() if n == instance_of(grant.member)]
    assert grant.member.address == instance["PrivateIpAddress"]
    world.fill()
    assert len(world.account.instances()) == 4
    world.plane.give_back(grant.claim.id)
    assert instance_of(grant.member) not in world.account.instances()
    assert world.plane.sweep("ec2").orphans == 0
    assert world.plane.drain("ci") == {"drained": 3, "claimed_remaining": 0}
    assert world.account.instances() == {}
    world.plane.delete("ci")


def test_a_token_works_once(world: World, tmp_path: pathlib.Path) -> None:
    world.pool(target_size=1)
    [member] = world.fill()
    text = world.account.user_data(instance_of(member))
    thief = bootedagents.Booted(tmp_path / "thief", text).boot()
    assert thief.agent is not None
    assert thief.agent.wait(20) == 1
    assert "bootstrap_token_used" in (thief.root / "log").read_text()
    assert [m.id for m in world.ready()] == [member.id]
    # The machine itself may be rebooted.
    machine = world.fleet.machines[instance_of(member)]
    machine.switch_off()
    world.clock.forward(100)
    machine.start()
    before = world.plane.member(member.id).beat_us or 0
    until(lambda: (world.plane.member(member.id).beat_us or 0) > before)


def test_an_instance_terminated_elsewhere_is_noticed(world: World) -> None:
    world.pool()
    members = world.fill()
    [grant] = world.plane.acquire("ci", acquired_by="job-1")
    lost = next(m for m in members if m.id != grant.member.id)
    gone = [instance_of(lost), instance_of(grant.member)]
    world.account.ec2.terminate_instances(InstanceIds=gone)
    world.fleet.boot()
    assert world.plane.sweep("ec2").missing == 0  # lists may lag behind a launch
    world.clock.forward(ec2.LAG_SECONDS + 1)
    assert world.plane.sweep("ec2").missing == 2
    assert lost.id not in [m.id for m in world.plane.show("ci").members if m.serves]
    world.clock.forward(ec2.LAG_SECONDS + 1)
    assert world.plane.sweep("ec2").gone == 1
    world.clock.forward(180)  # the other one is claimed: wait until it is certain
    assert world.plane.sweep("ec2").gone == 1
    assert world.reasons("member_gone") == ["terminated_elsewhere"] * 2
    [ended] = [c for c in world.plane.show("ci").claims if c.id == grant.claim.id]
    assert ended.release_reason == "terminated_elsewhere"


def test_machines_without_a_row_are_ended(world: World) -> None:
    world.pool()
    members = world.fill()
    provider = world.provider
    owner = world.plane.context.owner
    orphan = provider.launch(order("m-nobody", owner=owner))
    foreign = provider.launch(order("m-other", owner="overnight-other"))
    # A second instance of a member, from an interrupted launch in another region.
    world.plane.update("ci", preferred_regions=[ELSEWHERE])
    twin = provider.launch(order(members[0].id, owner=owner, regions=(ELSEWHERE,)))
    result = world.plane.sweep("ec2")
    assert (result.machines, result.orphans, result.orphans_left) == (5, 2, 0)
    left = {machine.id for machine in provider.inventory(owner, [REGION, ELSEWHERE])}
    assert left == {m.machine_id for m in members}
    assert orphan.id not in left
    assert twin.id not in left
    assert [m.id for m in provider.inventory("overnight-other", [REGION])] == [foreign.id]


def test_a_region_is_swept_even_when_no_pool_names_it(world: World) -> None:
    world.pool(target_size=0)
    owner = world.plane.context.owner
    machine = world.provider.launch(order("m-nobody", owner=owner))
    world.plane.update("ci", region=ELSEWHERE)
    world.plane.drain("ci")
    world.plane.delete("ci")
    assert world.plane.sweep("ec2").orphans == 1
    assert machine.id.partition("/")[2] not in world.account.instances()


def test_a_reaper_maintains_the_pool(world: World) -> None:
    world.pool(target_size=2)
    a_reaper = reaper.Reaper(world.plane)
    assert a_reaper.tick() == {}
    world.fleet.boot()
    until(lambda: len(world.ready()) == 2)
    world.plane.update("ci", target_size=1)
    assert len(world.account.instances()) == 1
    world.plane.update("ci", template="runner:1")
    assert a_reaper.tick() == {}
    world.fleet.boot()
    until(lambda: any(m.generation == 2 for m in world.ready()))
    assert a_reaper.tick() == {}
    assert len(world.account.instances()) == 1


def test_a_deleted_template_opens_the_breaker_with_its_reason(world: World) -> None:
    world.pool(target_size=1, breaker_failures=1)
    world.account.ec2.delete_launch_template(LaunchTemplateName="runner")
    assert world.plane.replenish("ci") == 0
    details = world.plane.show("ci")
    assert details.pool.breaker_opened_us is not None
    assert details.pool.last_failure == "template_invalid"
    [errored] = [e for e in details.events if e.kind == "member_errored"]
    assert "InvalidLaunchTemplateName.NotFound" in errored.detail
    assert "describe-launch-template-versions" in errored.detail
    assert details.members == ()  # certainly nothing was launched


def test_an_impossible_pool_is_refused(world: World) -> None:
    with pytest.raises(pool_errors.BadKnobError, match="region"):
        world.pool(region="")
    world.plane.set("endpoint", "http://127.0.0.1:8417")
    with pytest.raises(errors.CannotError, match=r"cannot reach http://127.0.0.1:8417"):
        world.pool()
    world.plane.set("endpoint", "")
    world.pool()
    world.plane.set("endpoint", "http://127.0.0.1:8417")
    with pytest.raises(errors.CannotError, match="cannot reach"):
        world.plane.check("ci")
    with pytest.raises(pool_errors.BadKnobError, match="template"):
        world.plane.update("ci", template="no such name")
    with pytest.raises(pool_errors.BadKnobError, match="region"):
        world.plane.update("ci", preferred_regions=["Ireland"])
    world.plane.update("ci", target_size=2, status="paused")
    assert world.account.instances("pending", "running", "terminated") == {}
