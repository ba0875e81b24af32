"""Work that AWS sends to an instance, and whether work may reach it that AWS does not show."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from overnight.model.pool import Reason
from overnight.model.reservation import Order, Workload
from overnight.reservations.providers import _aws, _aws_marks, _clusters, _ssm

KUBERNETES = "kubernetes.io/cluster/"  # start of a tag of nodes


@dataclasses.dataclass(frozen=True)
class Sources:
    """What sends traffic to the instances of an Auto Scaling group."""

    target_groups: Sequence[str] = ()
    classic: Sequence[str] = ()  # Classic Load Balancers
    lattice: bool = False  # VPC Lattice


def list_work(
    call: _clusters.Call, order: Order, host: str, sources: Sources
) -> tuple[list[Workload], bool]:
    """Return what the sources, ECS and Systems Manager run on an instance, and whether the rights show it all."""
    found, complete = [], True
    for look in (_list_targets, _list_tasks, _list_commands):
        try:
            found += look(call, order, host, sources)
        except _aws.AwsError as error:
            if error.reason is not Reason.DENIED:  # a smaller policy leaves out ECS, or agents
                raise
            complete = False
    return found, complete


def _list_targets(call: _clusters.Call, order: Order, host: str, sources: Sources) -> list[Workload]:  # fmt: skip
    found = []
    for arn in sources.target_groups:
        answer = call(order, "elbv2", "describe_target_health", TargetGroupArn=arn)
        for target in answer["TargetHealthDescriptions"]:
            if target["Target"]["Id"] == host:  # also while it drains
                name, state = arn.split("/")[-2], target["TargetHealth"]["State"]
                found.append(Workload(f"{name} ({state})", "target group"))
    for name in sources.classic:
        answer = call(order, "elb", "describe_instance_health", LoadBalancerName=name)
        if any(each["InstanceId"] == host for each in answer["InstanceStates"]):
            found.append(Workload(name, "load balancer"))
    return found


def _list_tasks(call: _clusters.Call, order: Order, host: str, _: Sources) -> list[Workload]:
    found = []
    for cluster in call(order, "ecs", "list_clusters").get("clusterArns", ()):
        place = dataclasses.replace(order, where=cluster)
        for member in _clusters.read_members(call, place, host).values():
            found += _clusters.list_tasks(call, place, member["containerInstanceArn"])
    return found


def _list_commands(call: _clusters.Call, order: Order, host: str, _: Sources) -> list[Workload]:
    running = [{"key": "Status", "value": "InProgress"}]
    answer = call(order, "ssm", "list_commands", InstanceId=host, Filters=running)
    return [
        Workload(command["CommandId"], f"SSM command {command['DocumentName']}")
        for command in answer.get("Commands", ())
        if command["Status"] == "InProgress" and _ssm.UNIT not in command.get("Comment", "")
    ]


def explain_unseen(group: str, sources: Sources, instance: Mapping[str, Any]) -> str:
    """Return how work may reach an instance that AWS does not show; '' if its load balancers are the only way."""
    for key in _aws_marks.read_tags(instance):
        if key.startswith(KUBERNETES):
            cluster = key.removeprefix(KUBERNETES)
            return f"Kubernetes cluster {cluster} places pods on it also during standby; use --provider kubernetes"
    if sources.lattice:
        return f"VPC Lattice sends traffic to {group}, and overnight does not read its targets"
    if not (sources.target_groups or sources.classic):
        return f"{group} has no load balancer, so its hosts get work in a way that AWS does not show, such as a queue"
    return ""
