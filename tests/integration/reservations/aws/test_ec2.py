"""Reservations of Auto Scaling groups on a strict moto server: real boto3, real HTTP; AWS itself is never called."""

from __future__ import annotations

import concurrent.futures
import dataclasses
import json
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest
from motoserver import REGION

from overnight import aws, errors, reservations
from overnight.model.reservation import Candidate, Lease, Order, Unseen
from overnight.reservations.providers import _aws, _aws_marks, ec2

if TYPE_CHECKING:
    import strictaws

    from overnight.reservations.providers import ecs

S = 1_000_000
A, B = "r-aaaaaaaaaaaa", "r-bbbbbbbbbbbb"
NOW = int(time.time()) * S


def order(**changes: Any) -> Order:
    return Order(**{"provider": "ec2", "where": "web", "region": REGION, **changes})


def lease(identity: str = A, **changes: Any) -> Lease:
    plain = Lease(identity, "ada", NOW + 3600 * S, NOW + 7200 * S, "irq study")
    return dataclasses.replace(plain, **changes)


def reserve(provider: reservations.Provider, host: str, what: Order, who: Lease) -> None:
    provider.claim(host, what, who)
    provider.mark(host, what, who)
    for _ in range(20):
        if provider.empty(host, what, who, lambda _: None):
            return
    raise AssertionError("never empty")


# hosts and plans


def test_hosts_have_type_zone_age_health_and_facts(
    account: strictaws.Account, instances: ec2.Instances
) -> None:
    first, second = account.add_group(2)
    account.ec2.create_tags(Resources=[first], Tags=[{"Key": "role", "Value": "front"}])
    account.groups.set_instance_health(InstanceId=second, HealthStatus="Unhealthy")
    provider: reservations.Provider = instances  # the Protocol, as mypy and the core see it
    hosts = provider.list_hosts(order())
    assert [host.name for host in hosts] == [first, second]
    assert hosts[0].zone == f"{REGION}a"
    assert hosts[0].instance_type == "t3.micro"
    assert hosts[0].labels["role"] == "front"
    assert hosts[0].facts["launch template"] == "web:1"
    assert hosts[0].facts["image"].startswith("ami-")
    assert abs((hosts[0].booted_us or 0) - time.time() * S) < 600 * S
    assert (hosts[0].unhealthy, hosts[1].unhealthy) == ("", "Unhealthy")


def test_a_host_on_standby_is_taken_by_its_lease_or_by_somebody(
    account: strictaws.Account, instances: ec2.Instances
) -> None:
    first, second, _ = account.add_group(3)
    reserve(instances, first, order(), lease())
    account.groups.enter_standby(
        AutoScalingGroupName="web", InstanceIds=[second], ShouldDecrementDesiredCapacity=True
    )
    taken = {host.name: host.taken for host in instances.list_hosts(order())}
    assert taken[first] == A
    assert "Standby" in taken[second]
    assert list(taken.values())[2] == ""


def plan(instances: ec2.Instances, host: str, **changes: Any) -> Any:
    what = order(**changes)
    (found,) = [one for one in instances.list_hosts(what) if one.name == host]
    return instances.plan(found, what)


def test_a_plan_says_what_happens_to_the_group(
    account: strictaws.Account, instances: ec2.Instances
) -> None:
    (first, *_) = account.add_group(4, least=3, most=6)
    smaller = plan(instances, first)
    assert smaller.disrupts == ("desired of web is 1 lower until the release (4, then 3)",)
    assert not smaller.blockers
    replaced = plan(instances, first, count=3)
    assert replaced.disrupts[0].startswith("desired of web is 1 lower")
    assert "web launches 2 as replacement" in replaced.disrupts[1]
    assert not replaced.blockers
    (warning,) = smaller.warnings
    assert "foreign-workload stays unknown" in warning
    assert "web has no load balancer" in warning
    assert "costs money" in " ".join(plan(instances, first, detach=True).warnings)
    account.groups.suspend_processes(AutoScalingGroupName="web", ScalingProcesses=["Launch"])
    assert "Launch is suspended" in plan(instances, first, count=3).disrupts[1]


def test_a_group_of_fixed_size_is_refused_before_anything_changes(
    account: strictaws.Account, instances: ec2.Instances
) -> None:
    (first, *_) = account.add_group(2, least=2, most=2)
    (blocker,) = plan(instances, first).blockers
    assert "--max-size 3" in blocker
    before = account.picture(first)
    with pytest.raises(reservations.PlatformError) as raised:
        instances.claim(first, order(), lease())
    assert "--max-size 3" in raised.value.todo
    assert not raised.value.retry
    assert account.picture(first) == before


def test_what_aws_cannot_answer_is_refused_without_a_call(
    account: strictaws.Account, instances: ec2.Instances
) -> None:
    with pytest.raises(errors.UsageError, match="--region must be a region code"):
        instances.list_hosts(order(region="Ireland"))
    with pytest.raises(errors.UsageError, match="Auto Scaling group"):
        instances.list_hosts(order(where=""))
    with pytest.raises(errors.UsageError, match="not the id of an instance"):
        instances.claim("web-1; rm", order(), lease())
    assert account.control() == []


def test_unknown_groups_and_instances_are_named(
    account: strictaws.Account, instances: ec2.Instances
) -> None:
    with pytest.raises(
        errors.NotFoundError, match="Auto Scaling group web does not exist in eu-west-1"
    ):
        instances.list_hosts(order())
    account.add_group(1)
    gone = "i-0123456789abcdef0"
    with pytest.raises(reservations.TakenError, match="is not in web"):
        instances.claim(gone, order(), lease())
    assert "not in web any more" in instances.plan(Candidate(name=gone), order()).blockers[0]
    instances.release(gone, order(), A)
    assert account.parameters() == {}


def test_a_plan_warns_of_what_moto_cannot_show(
    account: strictaws.Account, instances: ec2.Instances, monkeypatch: pytest.MonkeyPatch
) -> None:
    (first, *_) = account.add_group(4, least=2)
    group = instances._need_group(order())
    heavy = {**group.members[first], "WeightedCapacity": "2"}
    group = dataclasses.replace(
        group,
        sources=dataclasses.replace(group.sources, lattice=True),
        lifetime_seconds=86_400,
        members={**group.members, first: heavy},
    )
    spot = {**(instances._instance(order(), first) or {}), "InstanceLifecycle": "spot"}
    monkeypatch.setattr(instances, "_find_group", lambda _: group)
    monkeypatch.setattr(instances, "_instance", lambda *_: spot)
    short = instances.plan(Candidate(name=first), order(seconds=3600))
    assert short.disrupts == (
        f"removes {first} from the load balancers of web",
        "desired of web is 2 lower until the release (4, then 2)",
    )
    assert "VPC Lattice" in short.warnings[0]
    assert "spot instance" in short.warnings[1]
    assert len(short.warnings) == 2
    long = instances.plan(Candidate(name=first), order(seconds=7 * 86_400))
    assert "MaxInstanceLifetime" in long.warnings[2]
    assert instances._is_protected(order(), spot) is None


@pytest.fixture
def heavy(instances: ec2.Instances, monkeypatch: pytest.MonkeyPatch) -> ec2.Instances:
    """Each instance is three units of capacity; moto does not know weights."""
    find = instances._find_group

    def find_heavy(what: Order) -> ec2.Group | None:
        if (group := find(what)) is None:
            return None
        members = {
            name: {**member, "WeightedCapacity": "3"} for name, member in group.members.items()
        }
        return dataclasses.replace(group, members=members)

    monkeypatch.setattr(instances, "_find_group", find_heavy)
    return instances


LOWER, REPLACED = "desired of web is {} lower", "web launches {} as replacement"


@pytest.mark.parametrize(
    ("least", "wanted", "effects"),
    [
        (1, 1, (LOWER.format(3),)),
        (2, 1, (REPLACED.format(3),)),
        # The second host does not fit any more: desired would be below 0.
        (0, 2, (LOWER.format(3), REPLACED.format(3))),
    ],
)
def test_a_plan_counts_the_units_of_instances(
    account: strictaws.Account,
    heavy: ec2.Instances,
    least: int,
    wanted: int,
    effects: tuple[str, ...],
) -> None:
    (first, *_) = account.add_group(4, least=least)
    disrupts = plan(heavy, first, count=wanted).disrupts
    assert len(disrupts) == len(effects)
    assert all(map(str.startswith, disrupts, effects)), disrupts


@pytest.mark.parametrize(("least", "desired"), [(1, 3), (2, 4)])
def test_the_units_of_an_instance_leave_where_the_minimum_allows_all_of_them(
    account: strictaws.Account, heavy: ec2.Instances, least: int, desired: int
) -> None:
    (first, *_) = account.add_group(4, least=least)
    reserve(heavy, first, order(), lease())
    assert account.group()["DesiredCapacity"] == desired  # moto lowers it by one


def test_all_units_of_an_instance_need_room_to_return(
    account: strictaws.Account, heavy: ec2.Instances
) -> None:
    (first, *_) = account.add_group(4, least=2, most=6)
    with pytest.raises(reservations.PlatformError) as refused:
        heavy.claim(first, order(), lease())
    assert "--max-size 7" in refused.value.todo


# a reservation


@pytest.mark.parametrize("detach", [False, True], ids=["standby", "detach"])
@pytest.mark.parametrize("protected", [False, True], ids=["plain", "protected before"])
def test_a_released_group_is_as_before(
    account: strictaws.Account, instances: ec2.Instances, detach: bool, protected: bool
) -> None:
    first, second = account.add_group(2)
    account.ec2.create_tags(Resources=[first], Tags=[{"Key": "overnight:owner", "Value": "pool"}])
    if protected:
        account.ec2.modify_instance_attribute(InstanceId=first, DisableApiTermination={"Value": True})  # fmt: skip
        account.groups.set_instance_protection(
            InstanceIds=[first], AutoScalingGroupName="web", ProtectedFromScaleIn=True
        )
    before = account.picture(first, second)
    what = order(detach=detach)
    reserve(instances, first, what, lease())
    member = account.members().get(first)
    assert (member is None) if detach else (member or {})["LifecycleState"] == "Standby"
    assert account.group()["DesiredCapacity"] == 1
    assert account.is_protected(first)
    tags = account.tags(first)
    assert tags["overnight:lease"] == A
    assert Lease.parse(tags["overnight:lease-record"]) == lease()
    (held,) = instances.list_held(what)
    assert (held.host, held.id, held.lease, held.claimed) == (first, A, lease(), True)
    instances.release(first, order(), A)
    assert account.picture(first, second) == before
    assert instances.list_held(what) == []
    instances.release(first, order(), A)  # repeatable
    assert account.picture(first, second) == before


def test_without_room_below_aws_launches_a_replacement(
    account: strictaws.Account, instances: ec2.Instances
) -> None:
    (first, *_) = account.add_group(2, least=2, most=4)
    reserve(instances, first, order(), lease())
    assert account.group()["DesiredCapacity"] == 2
    assert len(account.members()) == 3
    instances.release(first, order(), A)
    assert account.group()["DesiredCapacity"] == 3
    assert account.members()[first]["LifecycleState"] == "InService"


def test_a_return_above_max_size_waits_for_room(
    account: strictaws.Account, instances: ec2.Instances
) -> None:
    (first, *_) = account.add_group(2, most=2)
    reserve(instances, first, order(), lease())
    account.groups.set_desired_capacity(AutoScalingGroupName="web", DesiredCapacity=2)
    with pytest.raises(reservations.PlatformError) as raised:
        instances.release(first, order(), A)
    assert raised.value.retry
    assert "--max-size 3" in raised.value.todo
    assert [held.id for held in instances.list_held(order())] == [A]
    account.groups.update_auto_scaling_group(AutoScalingGroupName="web", MaxSize=3)
    instances.release(first, order(), A)
    assert account.members()[first]["LifecycleState"] == "InService"
    assert instances.list_held(order()) == []


def test_a_host_is_empty_when_its_load_balancers_have_drained_it(
    account: strictaws.Account, instances: ec2.Instances
) -> None:
    (first, _) = account.add_group(2)
    account.control(lag={"standby_reads": 3})
    instances.claim(first, order(), lease())
    instances.mark(first, order(), lease())
    seen: list[str] = []
    with pytest.raises(reservations.PlatformError, match="EnteringStandby"):
        instances.release(first, order(), A)
    while not instances.empty(first, order(), lease(), seen.append):
        assert len(seen) < 9
    assert "EnteringStandby" in seen[0]
    assert isinstance(instances.list_workloads(first, order(), lease()), Unseen)
    instances.release(first, order(), A)
    assert instances.list_held(order()) == []


# work on a reserved host


def test_a_host_that_left_its_load_balancers_has_no_work(
    account: strictaws.Account, instances: ec2.Instances
) -> None:
    arn = account.add_target_group()
    first, _ = account.add_group(2, TargetGroupARNs=[arn])
    assert plan(instances, first).warnings == ()
    reserve(instances, first, order(), lease())
    assert instances.list_workloads(first, order(), lease()) == []
    account.balancers.register_targets(TargetGroupArn=arn, Targets=[{"Id": first}])
    (found,) = instances.list_workloads(first, order(), lease()) or ()
    assert (found.kind, found.name.split()[0], found.stays) == ("target group", "front", "")


def test_a_classic_load_balancer_is_read_too(
    account: strictaws.Account, instances: ec2.Instances
) -> None:
    import boto3.session

    session = boto3.session.Session(aws_access_key_id="other", aws_secret_access_key="other")
    classic = session.client("elb", region_name=REGION, endpoint_url=account.url)
    listener = {"Protocol": "HTTP", "LoadBalancerPort": 80, "InstancePort": 80}
    classic.create_load_balancer(
        LoadBalancerName="old", Listeners=[listener], AvailabilityZones=[f"{REGION}a"]
    )
    first, _ = account.add_group(2, LoadBalancerNames=["old"])
    reserve(instances, first, order(), lease())
    classic.register_instances_with_load_balancer(LoadBalancerName="old", Instances=[{"InstanceId": first}])  # fmt: skip
    found = instances.list_workloads(first, order(), lease()) or ()
    assert [(work.kind, work.name) for work in found] == [("load balancer", "old")]
    classic.deregister_instances_from_load_balancer(LoadBalancerName="old", Instances=[{"InstanceId": first}])  # fmt: skip
    assert instances.list_workloads(first, order(), lease()) == []


def test_tasks_of_ecs_on_a_standby_host_are_foreign(
    account: strictaws.Account, instances: ec2.Instances
) -> None:
    first, second = account.add_group(2)
    account.ecs.create_cluster(clusterName="other")
    account.ecs.create_cluster(clusterName="jobs")
    arns = [account.register_container(host) for host in (first, second)]
    container = {"name": "one", "image": "busybox", "memory": 10, "cpu": 10}
    account.ecs.register_task_definition(family="batch", containerDefinitions=[container])
    account.ecs.start_task(cluster="jobs", taskDefinition="batch", containerInstances=arns)
    assert "standby does not stop" in plan(instances, first).warnings[1]
    reserve(instances, first, order(), lease())
    found = instances.list_workloads(first, order(), lease()) or ()
    assert [work.kind for work in found] == ["task"]  # not that of the second host
    account.fail("ListClusters", "AccessDeniedException", times=-1)
    assert isinstance(instances.list_workloads(first, order(), lease()), Unseen)


def test_a_running_command_of_somebody_else_is_foreign(
    account: strictaws.Account, instances: ec2.Instances
) -> None:
    arn = account.add_target_group()
    first, _ = account.add_group(2, TargetGroupARNs=[arn])
    account.control(managed=[first], running=["AWS-RunPatchBaseline", "AWS-RunShellScript"])
    account.ssm.send_command(InstanceIds=[first], DocumentName="AWS-UpdateSSMAgent")  # has ended
    reserve(instances, first, order(), lease())
    setup = reservations.AgentSetup(server="https://centre:8416", token="s3cret")
    instances.start_agent(first, order(), lease(), setup)
    assert instances.list_workloads(first, order(), lease()) == []
    account.ssm.send_command(InstanceIds=[first], DocumentName="AWS-RunPatchBaseline")
    (found,) = instances.list_workloads(first, order(), lease()) or ()
    assert found.kind == "SSM command AWS-RunPatchBaseline"


@pytest.mark.parametrize("operation", ["DescribeTargetHealth", "ListClusters", "ListCommands"])
def test_without_the_rights_to_look_nothing_is_claimed(
    account: strictaws.Account, instances: ec2.Instances, operation: str
) -> None:
    arn = account.add_target_group()
    first, _ = account.add_group(2, TargetGroupARNs=[arn])
    reserve(instances, first, order(), lease())
    account.fail(operation, "AccessDenied", times=-1, status=403)
    assert isinstance(instances.list_workloads(first, order(), lease()), Unseen)
    account.fail(operation, "ValidationException", times=-1)
    with pytest.raises(reservations.PlatformError):
        instances.list_workloads(first, order(), lease())


def test_a_node_of_kubernetes_may_have_pods_that_aws_does_not_show(
    account: strictaws.Account, instances: ec2.Instances
) -> None:
    arn = account.add_target_group()
    first, _ = account.add_group(2, TargetGroupARNs=[arn])
    tag = {"Key": "kubernetes.io/cluster/blue", "Value": "owned"}
    account.ec2.create_tags(Resources=[first], Tags=[tag])
    assert "Kubernetes cluster blue places pods" in plan(instances, first).warnings[0]
    reserve(instances, first, order(), lease())
    assert isinstance(instances.list_workloads(first, order(), lease()), Unseen)


def test_a_terminated_host_is_released(
    account: strictaws.Account, instances: ec2.Instances
) -> None:
    (first, _) = account.add_group(2)
    reserve(instances, first, order(), lease())
    account.ec2.modify_instance_attribute(InstanceId=first, DisableApiTermination={"Value": False})
    account.ec2.terminate_instances(InstanceIds=[first])
    assert not instances.renew(first, order(), lease())
    instances.release(first, order(), A)
    assert account.parameters() == {}
    assert instances.list_held(order()) == []


# renewal and marks


def test_renewal_writes_the_expiry_only_while_everything_is_there(
    account: strictaws.Account, instances: ec2.Instances
) -> None:
    (first, _) = account.add_group(2)
    reserve(instances, first, order(), lease())
    later = lease(until_us=NOW + 7200 * S)
    assert instances.renew(first, order(), later)
    assert instances.list_held(order())[0].lease == later
    assert not instances.renew(first, order(), lease(B))
    account.ec2.delete_tags(Resources=[first], Tags=[{"Key": key} for key in _aws_marks.TAGS])
    assert not instances.renew(first, order(), later)
    instances.mark(first, order(), later)
    assert instances.renew(first, order(), later)
    account.groups.exit_standby(AutoScalingGroupName="web", InstanceIds=[first])
    assert not instances.renew(first, order(), later)
    instances.release(first, order(), A)
    assert instances.list_held(order()) == []


def test_tags_that_somebody_removed_do_not_lose_the_host(
    account: strictaws.Account, instances: ec2.Instances, monkeypatch: pytest.MonkeyPatch
) -> None:
    (first, _) = account.add_group(2)
    keys = [{"Key": key} for key in _aws_marks.TAGS]
    for remark in (True, False):
        reserve(instances, first, order(), lease())
        account.ec2.delete_tags(Resources=[first], Tags=keys)
        if remark:  # as a driver does
            instances.claim(first, order(), lease())
            instances.mark(first, order(), lease())
            assert instances.renew(first, order(), lease())
        else:
            monkeypatch.setattr(_aws_marks, "LAG_SECONDS", 0.0)
        instances.release(first, order(), A)
        assert account.members()[first]["LifecycleState"] == "InService"
        assert instances.list_held(order()) == []


def test_an_instance_that_somebody_returned_is_taken_again(
    account: strictaws.Account, instances: ec2.Instances
) -> None:
    first, second = account.add_group(2)
    before = account.picture(first, second)
    reserve(instances, first, order(), lease())
    account.groups.exit_standby(AutoScalingGroupName="web", InstanceIds=[first])
    assert not instances.renew(first, order(), lease())
    reserve(instances, first, order(), lease())
    assert instances.renew(first, order(), lease())
    instances.release(first, order(), A)
    assert account.picture(first, second) == before


def test_a_long_purpose_fits_into_a_tag(
    account: strictaws.Account, instances: ec2.Instances
) -> None:
    (first, _) = account.add_group(2)
    long = lease(purpose="ü" * 500, owner="ada" * 50)
    reserve(instances, first, order(), long)
    text = account.tags(first)["overnight:lease-record"]
    assert len(text) <= aws.MAX_TAG
    (held,) = instances.list_held(order())
    assert held.lease is not None
    assert held.lease.until_us == long.until_us
    assert long.owner.startswith(held.lease.owner)


def test_marks_of_other_places_and_providers_are_not_listed(
    account: strictaws.Account, instances: ec2.Instances, containers: ecs.ContainerInstances
) -> None:
    (first, _) = account.add_group(2)
    (other, _) = account.add_group(2, name="api")
    (container,) = account.add_cluster(1)
    reserve(instances, first, order(), lease())
    reserve(instances, other, order(where="api"), lease(B))
    jobs = order(provider="ecs", where="jobs")
    reserve(containers, container, jobs, lease("r-cccccccccccc"))
    assert [held.host for held in instances.list_held(order())] == [first]
    assert sorted(held.host for held in instances.list_held(order(where=""))) == sorted([first, other])  # fmt: skip
    assert [held.host for held in containers.list_held(jobs)] == [container]
    instances.release(container, order(), "r-cccccccccccc")  # of the other provider: untouched
    assert account.tags(container)["overnight:lease"] == "r-cccccccccccc"
    assert f"{_aws.PATH}/{container}" in account.parameters()


def test_unreadable_marks_are_listed_and_can_be_released(
    account: strictaws.Account, instances: ec2.Instances
) -> None:
    first, second = account.add_group(2)
    account.ec2.create_tags(Resources=[first], Tags=[{"Key": "overnight:lease", "Value": A}])
    account.ssm.put_parameter(Name=f"{_aws.PATH}/{second}", Value="{", Type="String")
    held = {each.host: each for each in instances.list_held(order())}
    assert (held[first].id, held[first].lease, held[first].claimed) == (A, None, False)
    assert (held[second].id, held[second].lease) == ("", None)
    for each in held.values():
        instances.release(each.host, order(), each.id)
    assert instances.list_held(order()) == []


def test_standby_is_ended_also_when_the_record_of_it_is_damaged(
    account: strictaws.Account, instances: ec2.Instances
) -> None:
    (first, _) = account.add_group(2)
    reserve(instances, first, order(), lease())
    broken = [{"Key": key, "Value": "{"} for key in ("overnight:lease-undo", "overnight:lease-record")]  # fmt: skip
    account.ec2.create_tags(Resources=[first], Tags=broken)
    (held,) = instances.list_held(order())
    assert (held.id, held.lease, held.claimed) == (A, None, True)
    instances.release(first, order(), A)
    assert account.members()[first]["LifecycleState"] == "InService"
    assert account.is_protected(first)  # whether it was before is not known any more
    assert instances.list_held(order()) == []


# rivals


def test_of_reservers_that_race_for_one_host_one_wins(
    account: strictaws.Account, instances: ec2.Instances
) -> None:
    first, second = account.add_group(2)
    before = account.picture(first, second)
    for _ in range(5):
        rivals = [f"r-{number:012x}" for number in range(6)]
        barrier = threading.Barrier(len(rivals))

        def race(identity: str, barrier: threading.Barrier = barrier) -> str:
            barrier.wait()
            try:
                reserve(instances, first, order(), lease(identity))
            except reservations.TakenError:
                return ""
            return identity

        with concurrent.futures.ThreadPoolExecutor(len(rivals)) as threads:
            winners = [name for name in threads.map(race, rivals) if name]
        assert len(winners) == 1
        assert account.tags(first)["overnight:lease"] == winners[0]
        assert account.group()["DesiredCapacity"] == 1
        for identity in rivals:
            instances.release(first, order(), identity)
        assert account.picture(first, second) == before


def test_a_standby_of_somebody_else_is_left_alone(
    account: strictaws.Account, instances: ec2.Instances, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, _ = account.add_group(2)

    def enter_first() -> None:
        account.groups.enter_standby(
            AutoScalingGroupName="web", InstanceIds=[first], ShouldDecrementDesiredCapacity=True
        )

    real = instances._take
    monkeypatch.setattr(instances, "_take", lambda *a, **k: (enter_first(), real(*a, **k)))
    with pytest.raises(reservations.TakenError, match="an operator without a lease"):
        instances.claim(first, order(), lease())
    picture = account.picture(first)
    assert picture["members"][first] == ("Standby", False)
    assert not [key for key in picture["tags"][first] if key.startswith("overnight:")]
    assert picture["parameters"] == {}
    with pytest.raises(reservations.TakenError, match="Standby"):
        instances.claim(first, order(), lease())
    instances.release(first, order(), A)
    assert account.members()[first]["LifecycleState"] == "Standby"
    assert account.parameters() == {}


def test_marks_without_a_claim_keep_others_off(
    account: strictaws.Account, instances: ec2.Instances
) -> None:
    first, _ = account.add_group(2)
    reserve(instances, first, order(), lease())
    account.ssm.delete_parameter(Name=f"{_aws.PATH}/{first}")
    with pytest.raises(reservations.TakenError, match="Standby"):
        instances.claim(first, order(), lease(B))
    account.groups.exit_standby(AutoScalingGroupName="web", InstanceIds=[first])
    with pytest.raises(reservations.TakenError, match=A):
        instances.claim(first, order(), lease(B))
    with pytest.raises(reservations.TakenError):
        instances.mark(first, order(), lease())
    (held,) = instances.list_held(order())
    assert not held.claimed
    instances.release(first, order(), A)
    assert instances.list_held(order()) == []


# crashes and faults


@pytest.mark.parametrize("detach", [False, True], ids=["standby", "detach"])
def test_killed_at_any_step_list_held_and_release_restore_everything(
    account: strictaws.Account, instances: ec2.Instances, steps: Any, detach: bool
) -> None:
    first, second = account.add_group(2)
    foreign = [{"Key": "Name", "Value": "web-1"}, {"Key": "overnight:owner", "Value": "pool"}]
    account.ec2.create_tags(Resources=[first], Tags=foreign)
    account.control(managed=[first])
    before, what = account.picture(first, second), order(detach=detach)
    setup = reservations.AgentSetup(server="https://centre:8416", token="secret" * 8)
    for fatal in range(40):
        steps.seen, steps.fatal = [], fatal
        killed = ""
        try:
            reserve(instances, first, what, lease())
            instances.start_agent(first, what, lease(), setup)
            instances.release(first, what, A)
        except BaseException as error:
            if type(error).__name__ != "Killed":
                raise
            killed = str(error)
        steps.fatal = -1
        for held in instances.list_held(order()):
            instances.release(held.host, order(), held.id)
        assert account.picture(first, second) == before, killed
        if not killed:
            break
    assert fatal >= 11, steps.seen


@pytest.mark.parametrize("detach", [False, True], ids=["standby", "detach"])
def test_a_call_that_was_killed_can_be_repeated(
    account: strictaws.Account, instances: ec2.Instances, steps: Any, detach: bool
) -> None:
    first, second = account.add_group(2)
    before, what = account.picture(first, second), order(detach=detach)
    for fatal in range(40):
        steps.seen, steps.fatal = [], fatal
        try:
            reserve(instances, first, what, lease())
            instances.release(first, what, A)
            break
        except BaseException as error:
            if type(error).__name__ != "Killed":
                raise
        steps.fatal = -1
        changes = ("ec2: set_instance_protection", "ec2: modify_instance_attribute")
        if all(steps.seen.count(change) < 2 for change in changes):  # the release has not begun
            reserve(instances, first, what, lease())
            assert account.group()["DesiredCapacity"] == 1
        instances.release(first, what, A)
        assert account.picture(first, second) == before
    assert fatal >= 8


def test_tags_that_appear_late_are_waited_for(
    account: strictaws.Account, instances: ec2.Instances
) -> None:
    first, second = account.add_group(2)
    before = account.picture(first, second)
    account.control(lag={"tag_seconds": 0.15})
    reserve(instances, first, order(), lease())
    assert instances.renew(first, order(), lease())
    instances.claim(first, order(), lease())  # repeated
    instances.release(first, order(), A)
    time.sleep(0.2)
    assert account.picture(first, second) == before


def test_tags_that_are_later_than_that_delay_the_release(
    account: strictaws.Account, instances: ec2.Instances
) -> None:
    first, second = account.add_group(2)
    before = account.picture(first, second)
    account.control(lag={"tag_seconds": 1.5})
    instances.claim(first, order(), lease())
    with pytest.raises(reservations.PlatformError, match="not visible yet") as raised:
        instances.release(first, order(), A)
    assert raised.value.retry
    time.sleep(1.5)
    account.control(lag={"tag_seconds": 0.0})
    instances.release(first, order(), A)
    assert account.picture(first, second) == before


def test_a_throttled_call_is_repeated_and_then_an_error(
    account: strictaws.Account, instances: ec2.Instances
) -> None:
    first, second = account.add_group(2)
    before = account.picture(first, second)
    account.fail("EnterStandby", "Throttling")
    reserve(instances, first, order(), lease())
    instances.release(first, order(), A)
    assert account.picture(first, second) == before
    account.fail("SetInstanceProtection", "Throttling", times=9)
    with pytest.raises(reservations.PlatformError) as raised:
        instances.claim(first, order(), lease())
    assert raised.value.retry
    assert "Throttling" in raised.value.why
    account.control(reset=True)
    for held in instances.list_held(order()):
        instances.release(held.host, order(), held.id)
    assert account.picture(first, second) == before


def test_a_lost_answer_of_standby_is_not_the_standby_of_somebody_else(
    account: strictaws.Account, instances: ec2.Instances
) -> None:
    first, second = account.add_group(2)
    before = account.picture(first, second)
    account.fail("EnterStandby", "InternalFailure", status=500, lost=True)
    reserve(instances, first, order(), lease())
    assert account.members()[first]["LifecycleState"] == "Standby"
    assert account.group()["DesiredCapacity"] == 1
    instances.release(first, order(), A)
    assert account.picture(first, second) == before


def test_lost_answers_of_all_attempts_leave_marks_for_the_next_one(
    account: strictaws.Account, instances: ec2.Instances
) -> None:
    first, second = account.add_group(2)
    before = account.picture(first, second)
    account.fail("EnterStandby", "InternalFailure", status=500, lost=True, times=4)
    with pytest.raises(reservations.PlatformError) as raised:
        instances.claim(first, order(), lease())
    assert raised.value.retry
    assert account.members()[first]["LifecycleState"] == "Standby"
    assert [held.id for held in instances.list_held(order())] == [A]
    reserve(instances, first, order(), lease())
    assert account.group()["DesiredCapacity"] == 1
    instances.release(first, order(), A)
    assert account.picture(first, second) == before


def test_a_request_of_a_killed_process_that_arrives_late_is_ours(
    account: strictaws.Account,
    instances: ec2.Instances,
    monkeypatch: pytest.MonkeyPatch,
    steps: Any,
) -> None:
    first, second = account.add_group(2)
    before = account.picture(first, second)
    steps.fatal = 2  # before standby
    with pytest.raises(BaseException, match="ec2: set_instance_protection"):
        instances.claim(first, order(), lease())
    real = instances._take

    def arrive(*given: Any, **more: Any) -> None:
        account.groups.enter_standby(
            AutoScalingGroupName="web", InstanceIds=[first], ShouldDecrementDesiredCapacity=True
        )
        real(*given, **more)

    monkeypatch.setattr(instances, "_take", arrive)
    instances.claim(first, order(), lease())
    instances.release(first, order(), A)
    assert account.picture(first, second) == before


def test_a_lost_answer_of_the_claim_is_our_claim(
    account: strictaws.Account, instances: ec2.Instances
) -> None:
    first, _ = account.add_group(2)
    account.fail("PutParameter", "InternalServerError", status=500, lost=True)
    reserve(instances, first, order(), lease())
    assert list(account.parameters()) == [f"{_aws.PATH}/{first}"]


@pytest.mark.parametrize(
    ("code", "operation"),
    [("ExpiredToken", "DescribeAutoScalingGroups"), ("ExpiredTokenException", "GetParameter"), ("RequestExpired", "DescribeInstances")],
)  # fmt: skip
def test_expired_credentials_name_the_next_command_and_lose_nothing(
    account: strictaws.Account, instances: ec2.Instances, code: str, operation: str
) -> None:
    first, second = account.add_group(2)
    before = account.picture(first, second)
    reserve(instances, first, order(), lease())
    account.fail(operation, code, times=-1)
    with pytest.raises(reservations.PlatformError) as raised:
        instances.release(first, order(), A)
    assert raised.value.retry
    assert code in raised.value.why
    assert "aws sts get-caller-identity" in raised.value.todo
    account.control(reset=True)
    instances.release(first, order(), A)
    assert account.picture(first, second) == before


def test_missing_rights_and_credentials_say_where_they_are_listed(
    account: strictaws.Account, instances: ec2.Instances, monkeypatch: pytest.MonkeyPatch
) -> None:
    account.fail("DescribeAutoScalingGroups", "AccessDenied", status=403)
    with pytest.raises(reservations.PlatformError) as raised:
        instances.list_hosts(order())
    assert _aws.POLICY in raised.value.todo
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name)
    bare = ec2.create(reservations.Settings(home=instances_home()))
    with pytest.raises(reservations.PlatformError) as raised:
        bare.list_hosts(order())
    assert raised.value.todo == aws.ADD_CREDENTIALS


def instances_home() -> Any:
    import pathlib

    return pathlib.Path("/nonexistent")


# the agent


def test_an_agent_starts_by_a_command_that_has_no_secret(
    account: strictaws.Account, instances: ec2.Instances
) -> None:
    (first, _) = account.add_group(2)
    reserve(instances, first, order(), lease())
    setup = reservations.AgentSetup(server="https://centre:8416/?a b", token="s3cret")
    with pytest.raises(reservations.PlatformError, match="cannot start an agent") as raised:
        instances.start_agent(first, order(), lease(), setup)
    assert "--print-unit" in raised.value.todo
    account.control(managed=[first])
    instances.start_agent(first, order(), lease(), setup)
    (command,) = account.ssm.list_commands(InstanceId=first)["Commands"]
    text = json.dumps(command, default=str)
    assert "s3cret" not in text
    assert "--server 'https://centre:8416/?a b'" in "\n".join(command["Parameters"]["commands"])
    assert list(account.parameters()) == [f"{_aws.PATH}/{first}"]  # the token is deleted
    account.ssm.put_parameter(Name=f"/overnight/tokens/{first}", Value="x", Type="SecureString")
    instances.release(first, order(), A)  # also of a token that a killed start left
    commands = account.ssm.list_commands(InstanceId=first)["Commands"]
    assert [one["Comment"].split()[0] for one in commands] == ["start", "stop"]
    assert account.parameters() == {}


def test_a_host_that_systems_manager_lost_is_given_back(
    account: strictaws.Account, instances: ec2.Instances
) -> None:
    first, second = account.add_group(2)
    before = account.picture(first, second)
    account.control(managed=[first])
    reserve(instances, first, order(), lease())
    setup = reservations.AgentSetup(server="https://centre:8416", token="s3cret")
    instances.start_agent(first, order(), lease(), setup)
    account.control(reset=True)
    instances.release(first, order(), A)
    assert account.picture(first, second) == before
