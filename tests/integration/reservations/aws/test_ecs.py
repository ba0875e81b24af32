"""Reservations of ECS clusters on a strict moto server."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest
from motoserver import REGION

from overnight import errors, reservations
from overnight.model.reservation import Lease, Order
from overnight.reservations.providers import _aws_marks, _clusters, ecs

if TYPE_CHECKING:
    import strictaws

S = 1_000_000
A, B = "r-aaaaaaaaaaaa", "r-bbbbbbbbbbbb"
NOW = int(time.time()) * S
CONSTRAINT = [{"type": "memberOf", "expression": ecs.CONSTRAINT}]


def order(**changes: Any) -> Order:
    return Order(**{"provider": "ecs", "where": "jobs", "region": REGION, "evict": True, **changes})


def lease(identity: str = A) -> Lease:
    return Lease(identity, "ada", NOW + 3600 * S, NOW + 7200 * S, "irq study")


def add_task(account: strictaws.Account, family: str, host: str, group: str = "") -> str:
    arn = account.containers()[host]["containerInstanceArn"]
    group = group or f"family:{family}"
    started = account.ecs.start_task(
        cluster="jobs", taskDefinition=family, containerInstances=[arn], group=group
    )
    return str(started["tasks"][0]["taskArn"])


def define(account: strictaws.Account, family: str, **more: Any) -> None:
    container = {"name": "one", "image": "busybox", "memory": 10, "cpu": 10}
    account.ecs.register_task_definition(family=family, containerDefinitions=[container], **more)


def add_service(account: strictaws.Account, name: str, strategy: str) -> None:
    size = {} if strategy == "DAEMON" else {"desiredCount": 0}
    account.ecs.create_service(
        cluster="jobs", serviceName=name, taskDefinition=name, schedulingStrategy=strategy,
        launchType="EC2", **size,
    )  # fmt: skip


def picture(account: strictaws.Account) -> dict[str, Any]:
    containers = account.containers()
    return {
        "parameters": account.parameters(),
        "tags": {host: account.tags(host) for host in containers},
        "containers": {
            host: (one["status"], sorted((a["name"], a.get("value")) for a in one["attributes"]))
            for host, one in containers.items()
        },
    }


def plan(containers: ecs.ContainerInstances, host: str, **changes: Any) -> Any:
    what = order(**changes)
    (found,) = [one for one in containers.list_hosts(what) if one.name == host]
    return containers.plan(found, what)


def reserve(provider: reservations.Provider, host: str, what: Order, who: Lease) -> None:
    provider.claim(host, what, who)
    provider.mark(host, what, who)
    assert any(provider.empty(host, what, who, lambda _: None) for _ in range(5))


def test_container_instances_are_hosts_named_after_their_instance(
    account: strictaws.Account, containers: ecs.ContainerInstances
) -> None:
    first, second = account.add_cluster(2)
    provider: reservations.Provider = containers
    hosts = provider.list_hosts(order())
    assert [host.name for host in hosts] == [first, second]
    assert hosts[0].zone.startswith(REGION)
    assert hosts[0].labels["ecs.os-type"] == "linux"
    assert hosts[0].facts["ecs agent"] == "1.0.0"
    assert hosts[0].facts["image"].startswith("ami-")
    assert hosts[0].unhealthy == hosts[0].taken == ""


def test_a_plan_lists_tasks_daemons_and_task_definitions_without_the_constraint(
    account: strictaws.Account, containers: ecs.ContainerInstances
) -> None:
    (first,) = account.add_cluster(1)
    define(account, "web")
    define(account, "batch")
    add_service(account, "web", "REPLICA")
    define(account, "logs", placementConstraints=CONSTRAINT)
    add_service(account, "logs", "DAEMON")
    add_task(account, "web", first, "service:web")
    add_task(account, "logs", first, "service:logs")
    add_task(account, "batch", first)
    full = plan(containers, first)
    kinds = {(task.kind, task.stays) for task in full.workloads}
    assert kinds == {("service:web", ""), ("service:logs", _clusters.DAEMON), ("task", "")}
    assert not full.blockers
    assert "DRAINING" in full.disrupts[0]
    (warning,) = full.warnings
    assert "web:" in warning
    assert "logs" not in warning
    (blocker,) = plan(containers, first, evict=False).blockers
    assert blocker.startswith("2 tasks run on")


def test_a_service_may_have_the_constraint_in_place_of_its_task_definition() -> None:
    """Moto does not return the constraints of a service."""
    assert ecs._is_constrained({"placementConstraints": CONSTRAINT})
    other = [
        {"type": "distinctInstance"},
        {"type": "memberOf", "expression": "attribute:x !exists"},
    ]
    assert not ecs._is_constrained({"placementConstraints": other})


def test_a_reserved_host_drains_and_is_as_before_afterwards(
    account: strictaws.Account, containers: ecs.ContainerInstances
) -> None:
    first, second = account.add_cluster(2)
    foreign = {"name": "team", "value": "red", "targetId": account.containers()[first]["containerInstanceArn"]}  # fmt: skip
    account.ecs.put_attributes(cluster="jobs", attributes=[foreign])
    define(account, "logs")
    define(account, "batch")
    add_service(account, "logs", "DAEMON")
    daemon = add_task(account, "logs", first, "service:logs")
    batch = add_task(account, "batch", first)
    kept = add_task(account, "batch", second)
    before = picture(account)
    containers.claim(first, order(), lease())
    containers.mark(first, order(), lease())
    seen: list[str] = []
    emptied = [containers.empty(first, order(), lease(), seen.append) for _ in range(3)]
    assert emptied == [False, False, True]  # told to stop, stopping, stopped
    assert seen[0].startswith(f"1 task runs on {first}")
    now = picture(account)["containers"][first]
    assert now[0] == "DRAINING"
    assert (ecs.ATTRIBUTE, A) in now[1]
    running = account.ecs.list_tasks(cluster="jobs", desiredStatus="RUNNING")["taskArns"]
    assert sorted(running) == sorted([daemon, kept])
    assert batch not in running
    (left,) = containers.list_workloads(first, order(), lease())
    assert left.stays == _clusters.DAEMON
    (held,) = containers.list_held(order())
    assert (held.host, held.id, held.claimed) == (first, A, True)
    assert containers.list_hosts(order())[[first, second].index(first)].taken == A
    assert containers.renew(first, order(), lease())
    containers.release(first, order(), A)
    assert picture(account) == before
    assert containers.list_held(order()) == []


def test_without_evict_a_host_with_tasks_is_not_drained(
    account: strictaws.Account, containers: ecs.ContainerInstances
) -> None:
    (first,) = account.add_cluster(1)
    define(account, "batch")
    add_task(account, "batch", first)
    before, what = picture(account), order(evict=False)
    containers.claim(first, what, lease())
    with pytest.raises(reservations.NotEmptyError, match="1 task runs"):
        containers.mark(first, what, lease())
    assert not containers.empty(first, what, lease(), lambda _: None)
    containers.release(first, what, A)
    assert picture(account) == before
    assert account.ecs.list_tasks(cluster="jobs")["taskArns"]


def test_killed_at_any_step_list_held_and_release_restore_everything(
    account: strictaws.Account, containers: ecs.ContainerInstances, steps: Any
) -> None:
    first, _ = account.add_cluster(2)
    account.ec2.create_tags(Resources=[first], Tags=[{"Key": "Name", "Value": "jobs-1"}])
    before = picture(account)
    for fatal in range(30):
        steps.seen, steps.fatal = [], fatal
        killed = ""
        try:
            reserve(containers, first, order(), lease())
            containers.release(first, order(), A)
        except BaseException as error:
            if type(error).__name__ != "Killed":
                raise
            killed = str(error)
        steps.fatal = -1
        for held in containers.list_held(order()):
            containers.release(held.host, order(), held.id)
        assert picture(account) == before, killed
        if not killed:
            break
    assert fatal >= 8, steps.seen


def test_hosts_that_others_drain_or_hold_are_left_alone(
    account: strictaws.Account, containers: ecs.ContainerInstances
) -> None:
    first, second = account.add_cluster(2)
    arns = {host: one["containerInstanceArn"] for host, one in account.containers().items()}
    account.ecs.update_container_instances_state(
        cluster="jobs", containerInstances=[arns[first]], status="DRAINING"
    )
    before = picture(account)
    assert containers.list_hosts(order())[0].unhealthy == "DRAINING"
    assert "DRAINING" in plan(containers, first).blockers[0]
    with pytest.raises(reservations.TakenError, match="DRAINING"):
        containers.claim(first, order(), lease())
    containers.release(first, order(), A)
    assert picture(account) == before
    reserve(containers, second, order(), lease())
    with pytest.raises(reservations.TakenError, match=A):
        containers.claim(second, order(), lease(B))
    containers.release(second, order(), B)
    assert account.containers()[second]["status"] == "DRAINING"
    # A drain of somebody else, between claim and mark of ours, stays.
    containers.release(second, order(), A)
    containers.claim(second, order(), lease())
    account.ecs.update_container_instances_state(
        cluster="jobs", containerInstances=[arns[second]], status="DRAINING"
    )
    with pytest.raises(reservations.TakenError, match="an operator who drains it"):
        containers.mark(second, order(), lease())
    containers.release(second, order(), A)
    assert account.containers()[second]["status"] == "DRAINING"
    assert containers.list_held(order()) == []


def test_an_attribute_that_somebody_removed_does_not_keep_the_host_draining(
    account: strictaws.Account, containers: ecs.ContainerInstances
) -> None:
    (first,) = account.add_cluster(1)
    before = picture(account)
    reserve(containers, first, order(), lease())
    target = {"name": ecs.ATTRIBUTE, "targetId": account.containers()[first]["containerInstanceArn"]}  # fmt: skip
    account.ecs.delete_attributes(cluster="jobs", attributes=[target])
    containers.release(first, order(), A)
    assert picture(account) == before


def test_one_instance_is_not_reserved_by_both_providers(
    account: strictaws.Account, containers: ecs.ContainerInstances, instances: Any
) -> None:
    (first,) = account.add_cluster(1)
    reserve(containers, first, order(), lease())
    account.add_group(1)
    with pytest.raises(reservations.TakenError, match=A):
        instances.claim(first, order(where="web"), lease(B))


def test_lost_marks_and_lost_hosts_are_noticed(
    account: strictaws.Account, containers: ecs.ContainerInstances
) -> None:
    first, _ = account.add_cluster(2)
    reserve(containers, first, order(), lease())
    arn = account.containers()[first]["containerInstanceArn"]
    account.ecs.update_container_instances_state(
        cluster="jobs", containerInstances=[arn], status="ACTIVE"
    )
    assert not containers.renew(first, order(), lease())
    containers.mark(first, order(), lease())
    assert containers.renew(first, order(), lease())
    account.ec2.delete_tags(Resources=[first], Tags=[{"Key": key} for key in _aws_marks.TAGS])
    assert not containers.renew(first, order(), lease())
    containers.claim(first, order(), lease())
    containers.mark(first, order(), lease())
    assert containers.renew(first, order(), lease())
    account.ecs.deregister_container_instance(cluster="jobs", containerInstance=arn, force=True)
    assert not containers.renew(first, order(), lease())
    with pytest.raises(errors.NotFoundError):
        containers.list_workloads(first, order(), lease())
    containers.release(first, order(), A)
    assert containers.list_held(order()) == []
    assert not set(_aws_marks.TAGS) & set(account.tags(first))


def test_a_cluster_that_does_not_exist_is_named(
    account: strictaws.Account, containers: ecs.ContainerInstances
) -> None:
    with pytest.raises(
        errors.NotFoundError, match="no container instance on EC2 in cluster nowhere of eu-west-1"
    ):
        containers.list_hosts(order(where="nowhere"))
    (first,) = account.add_cluster(1)
    reserve(containers, first, order(), lease())
    (one,) = account.containers().values()
    account.ecs.deregister_container_instance(
        cluster="jobs", containerInstance=one["containerInstanceArn"], force=True
    )
    account.ecs.delete_cluster(cluster="jobs")
    containers.release(first, order(), A)
    assert containers.list_held(order()) == []
