"""Container instances of an ECS cluster, fenced by the status DRAINING and the attribute overnight.lease.

DRAINING keeps every new task off, whatever its constraints are. The attribute is for task definitions with the
constraint `attribute:overnight.lease !exists`, and says that the status is ours.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from overnight import errors, reservations
from overnight.model.reservation import Candidate, HostPlan, Lease, Order, Workload
from overnight.reservations.providers import _aws, _aws_marks, _clusters

NAME = "ecs"
ATTRIBUTE = "overnight.lease"
CONSTRAINT = f"attribute:{ATTRIBUTE} !exists"
ACTIVE, DRAINING = "ACTIVE", "DRAINING"
DRAIN, DRAINED = "drain", "drained"  # claimed; and fenced by us, or about to be


def create(settings: reservations.Settings) -> reservations.Provider:
    return ContainerInstances(settings)


class ContainerInstances(_aws.Hosts):
    name = NAME
    kind = "an ECS cluster"
    usual = ACTIVE
    ignores = frozenset({"no_execute", "detach"})
    _constrained: Mapping[str, bool] = {}  # by task definition: a revision never changes

    def plan(self, host: Candidate, order: Order) -> HostPlan:
        member = self._members(order).get(host.name)
        if member is None:
            return HostPlan(host=host, blockers=(f"{host.name} is not in {order.where} any more",))
        workloads = self._tasks(order, member)
        foreign = [task for task in workloads if not task.stays]
        blockers, warnings = [], []
        if member["status"] != ACTIVE:
            blockers.append(f"{host.name} is {member['status']}, not {ACTIVE}")
        if foreign and not order.evict:
            blockers.append(
                f"{_count(foreign)} on {host.name}: add --evict, or choose another host"
            )
        if unfenced := self._list_unconstrained(order):
            warnings.append(
                f"only DRAINING keeps off task definitions without the constraint {CONSTRAINT!r}: {', '.join(unfenced)}"
            )
        if group := host.labels.get("aws:autoscaling:groupName"):
            warnings.append(
                f"the Auto Scaling group {group} may terminate {host.name}: protect it from scale-in"
            )
        return HostPlan(
            host=host,
            workloads=tuple(workloads),
            disrupts=tuple(
                f"ECS stops the daemon task {task.name} on {host.name}, because the host is DRAINING"
                for task in workloads
                if task.stays
            ),
            blockers=tuple(blockers),
            warnings=tuple(warnings),
        )

    def claim(self, host: str, order: Order, lease: Lease) -> None:
        """Create the claim, and write what must be undone; the instance stays in production."""
        self._check(order, host)
        plain = _aws_marks.Undo(by=NAME, how=DRAIN)
        _, marks = self._hold(host, order, lease, plain)
        if marks is not None and marks.undo is not None:
            return
        member = self._members(order).get(host, {})
        holder, status = _read_attributes(member).get(ATTRIBUTE, ""), member.get("status", "")
        if holder != lease.id and (holder or status != ACTIVE):
            self._drop_claim(host, order, lease.id)
            raise self._taken(host, holder) if holder else self._unusable(host, order, status)
        self._write_marks(order, host, lease, plain)

    def mark(self, host: str, order: Order, lease: Lease) -> None:
        """Set the attribute, then the status; a host with tasks only if they may be evicted."""
        self._need_claim(host, order, lease)
        member = self._need_member(order, host)
        foreign = self._list_foreign(order, member)
        if foreign and not order.evict and member["status"] == ACTIVE:
            raise reservations.NotEmptyError(
                f"{_count(foreign)} on {host}: {_name(foreign)}",
                why="DRAINING would stop them, and --evict was not given",
                todo="add --evict, or choose another host",
            )
        marks = self._read_own_marks(order, host, lease.id)
        undo = (marks and marks.undo) or _aws_marks.Undo(by=NAME, how=DRAIN)
        attribute = _read_attributes(member).get(ATTRIBUTE)
        if member["status"] != ACTIVE and undo.how != DRAINED and attribute != lease.id:
            raise self._taken(host, "an operator who drains it")
        self._write_marks(order, host, lease, dataclasses.replace(undo, how=DRAINED))
        wanted = {"name": ATTRIBUTE, "value": lease.id, "targetId": member["containerInstanceArn"]}
        self._call(order, "ecs", "put_attributes", cluster=order.where, attributes=[wanted])
        self._set_status(order, member, DRAINING)

    def empty(self, host: str, order: Order, lease: Lease, progress: reservations.Progress) -> bool:
        """Stop tasks that belong to no service; those of services are replaced by ECS, as their health allows."""
        self._need_claim(host, order, lease)
        foreign = self._list_foreign(order, self._need_member(order, host))
        for task in foreign:
            if order.evict and task.kind == "task":
                reason = f"overnight reservation {lease.id}"
                self._call(order, "ecs", "stop_task", cluster=order.where, task=task.name, reason=reason)  # fmt: skip
        if foreign:
            progress(f"{_count(foreign)} on {host}: {_name(foreign)}")
        return not foreign

    def list_workloads(self, host: str, order: Order, lease: Lease) -> Sequence[Workload]:  # noqa: ARG002
        return self._tasks(order, self._need_member(order, host))

    def _is_changed(self, host: str, order: Order) -> bool:
        return self._members(order).get(host, {}).get("status") == DRAINING

    def _give_back(self, host: str, order: Order, lease_id: str, undo: _aws_marks.Undo) -> None:
        member = self._members(order).get(host)
        if member is None:
            return  # not in the cluster any more
        ours = _read_attributes(member).get(ATTRIBUTE) == lease_id
        if member["status"] == DRAINING and (ours or undo.how == DRAINED):
            self._set_status(order, member, ACTIVE)
        if not ours:
            return
        # AWS refuses a value here: read and deleted, the attribute is ours because the claim is.
        target = {"name": ATTRIBUTE, "targetId": member["containerInstanceArn"]}
        self._call(order, "ecs", "delete_attributes", cluster=order.where, attributes=[target])

    def _set_status(self, order: Order, member: Mapping[str, Any], status: str) -> None:
        if member["status"] == status:
            return
        arn = member["containerInstanceArn"]
        answer = self._call(
            order, "ecs", "update_container_instances_state", cluster=order.where,
            containerInstances=[arn], status=status,
        )  # fmt: skip
        if answer.get("failures"):
            raise reservations.PlatformError(
                f"ECS does not set {member['ec2InstanceId']} to {status}",
                why=answer["failures"][0].get("reason", "ECS gave no reason"),
                todo=f"aws ecs describe-container-instances --region {order.region} --cluster {order.where} "
                f"--container-instances {arn}",
            )

    def _members(self, order: Order) -> dict[str, dict[str, Any]]:
        return _clusters.read_members(self._call, order)

    def _need_members(self, order: Order) -> dict[str, dict[str, Any]]:
        return self._members(order) or self._refuse_unknown(order, "no container instance on EC2")

    def _need_member(self, order: Order, host: str) -> dict[str, Any]:
        return self._members(order).get(host) or self._refuse_unknown(order, f"no {host}")

    def _refuse_unknown(self, order: Order, what: str) -> NoReturn:
        raise errors.NotFoundError(
            f"{what} in cluster {order.where} of {order.region}",
            why="it was deregistered, or the cluster has another name, region or account",
            todo=f"aws ecs list-container-instances --region {order.region} --cluster {order.where}",
        )

    def _tasks(self, order: Order, member: Mapping[str, Any]) -> list[Workload]:
        return _clusters.list_tasks(self._call, order, member["containerInstanceArn"])

    def _list_foreign(self, order: Order, member: Mapping[str, Any]) -> list[Workload]:
        return [task for task in self._tasks(order, member) if not task.stays]

    def _list_unconstrained(self, order: Order) -> list[str]:
        """Return the task definitions of services that only DRAINING keeps off a reserved host."""
        names = {
            service["taskDefinition"]
            for service in _clusters.read_services(self._call, order)
            if service.get("launchType") != "FARGATE" and not _is_constrained(service)
        }
        for name in names - {*self._constrained}:
            answer = self._call(order, "ecs", "describe_task_definition", taskDefinition=name)
            constrained = _is_constrained(answer["taskDefinition"])
            self._constrained = {**self._constrained, name: constrained}
        return sorted(name.rpartition("/")[2] for name in names if not self._constrained[name])

    def _read_member(self, member: Mapping[str, Any]) -> Candidate:
        attributes, versions = _read_attributes(member), member.get("versionInfo", {})
        taken, status = attributes.get(ATTRIBUTE, ""), member["status"]
        problems = [] if member.get("agentConnected") else ["its ECS agent is not connected"]
        problems += [] if taken or status == ACTIVE else [status]
        return Candidate(
            name=member["ec2InstanceId"],
            labels=attributes,
            unhealthy=", ".join(problems),
            taken=taken,
            facts={
                "ecs agent": versions.get("agentVersion", ""),
                "docker": versions.get("dockerVersion", ""),
            },
        )


def _count(tasks: Sequence[Workload]) -> str:
    return f"{len(tasks)} task runs" if len(tasks) == 1 else f"{len(tasks)} tasks run"


def _name(tasks: Sequence[Workload]) -> str:
    return ", ".join(task.name for task in tasks[:5])


def _is_constrained(thing: Mapping[str, Any]) -> bool:
    texts = [each.get("expression", "") for each in thing.get("placementConstraints", ())]
    return any(re.search(rf"attribute:{re.escape(ATTRIBUTE)}\s+(!exists|not_exists)", t) for t in texts)  # fmt: skip


def _read_attributes(member: Mapping[str, Any]) -> dict[str, str]:
    return {a["name"]: a.get("value") or "" for a in member.get("attributes", ())}
