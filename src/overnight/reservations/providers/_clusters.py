"""Container instances and tasks of an ECS cluster; the cluster is `where` of the order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from overnight.model.reservation import Order, Workload

Call = Callable[..., Any]  # order, service, operation, parameters
DAEMON = "daemon service"


def read_members(call: Call, order: Order, host: str = "") -> dict[str, dict[str, Any]]:
    """Return the container instances, or that of `host`, by the id of their instance; none without the cluster."""
    only = {"filter": f"ec2InstanceId in ['{host}']"} if host else {}
    answer = call(order, "ecs", "list_container_instances", absent="ClusterNotFoundException", cluster=order.where, **only)  # fmt: skip
    arns = (answer or {}).get("containerInstanceArns", ())
    members = describe(call, order, "container_instances", "containerInstances", arns, 100)
    found = {member["ec2InstanceId"]: member for member in members}
    # Instances that are not of EC2 (ECS Anywhere) have names such as mi-0123456789abcdef0.
    return {name: found[name] for name in found if name.startswith("i-") and host in ("", name)}


def read_services(call: Call, order: Order) -> list[dict[str, Any]]:
    arns = call(order, "ecs", "list_services", cluster=order.where).get("serviceArns", ())
    return describe(call, order, "services", "services", arns, 10)


def describe(
    call: Call, order: Order, things: str, key: str, arns: Sequence[str], most: int
) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for start in range(0, len(arns), most):
        wanted = {key: list(arns[start : start + most])}
        found += call(order, "ecs", f"describe_{things}", cluster=order.where, **wanted)[key]
    return found


def list_tasks(call: Call, order: Order, container_instance: str) -> list[Workload]:
    """Return the tasks that run or start on a container instance."""
    arns: set[str] = set()
    for status in ("RUNNING", "STOPPED"):  # desired: one that is stopping still runs
        answer = call(
            order, "ecs", "list_tasks", cluster=order.where, containerInstance=container_instance,
            desiredStatus=status,
        )  # fmt: skip
        arns |= set(answer.get("taskArns", ()))
    tasks = describe(call, order, "tasks", "tasks", sorted(arns), 100)
    running = [task for task in tasks if task.get("lastStatus") not in ("STOPPED", "DELETED")]
    daemons = {
        f"service:{service['serviceName']}"
        for service in (read_services(call, order) if running else ())
        if service.get("schedulingStrategy") == "DAEMON"
    }
    found = []
    for task in running:
        group, kind = task.get("group", ""), "task"
        if group.startswith("service:"):
            kind = group
        elif task.get("desiredStatus") == "STOPPED":
            kind = "stopping task"
        name = task["taskArn"].rpartition("/")[2]
        found.append(Workload(name, kind, DAEMON if group in daemons else ""))
    return found
