"""Instances of an Auto Scaling group, put on standby or detached, and returned to the group.

Standby keeps an instance in its group: no traffic, no health checks, no scale-in. With a lower desired capacity
where MinSize allows it, so that a release restores the group exactly; otherwise AWS launches a replacement.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping
from typing import Any

from overnight import errors, reservations
from overnight.model.reservation import Candidate, HostPlan, Lease, Order, Unseen, Workload
from overnight.reservations.providers import _aws, _aws_marks, _instance_work

NAME = "ec2"
IN_SERVICE, STANDBY, LEAVING = "InService", "Standby", ("EnteringStandby", "Detaching")
CHANGING = "AWS changes its state, and accepts the next change afterwards"
PROTECTABLE = (IN_SERVICE, "EnteringStandby", STANDBY)  # SetInstanceProtection works in these


def create(settings: reservations.Settings) -> reservations.Provider:
    return Instances(settings)


@dataclasses.dataclass(frozen=True)
class Group:
    """An Auto Scaling group, and what taking hosts from it does."""

    name: str
    least: int
    most: int
    desired: int
    members: Mapping[str, Mapping[str, Any]]
    suspended: frozenset[str]
    sources: _instance_work.Sources
    lifetime_seconds: int

    def weigh(self, host: str) -> int:
        """Return the units of capacity of a member: more than 1 only with instance weights."""
        return int(self.members.get(host, {}).get("WeightedCapacity") or 1)

    def read_state(self, host: str) -> str:
        """Return the lifecycle state; '' for an instance that is not in the group."""
        return str(self.members.get(host, {}).get("LifecycleState", ""))

    def refuse_return(self, host: str, units: int, retry: bool = True) -> reservations.PlatformError | None:  # fmt: skip
        """Return the error if AWS would refuse `units` that come back."""
        if self.desired + units <= self.most:
            return None
        return reservations.PlatformError(
            f"{host} cannot return to {self.name}",
            why=f"{self.name} has desired {self.desired} and MaxSize {self.most}: AWS refuses an instance that returns",
            todo=f"aws autoscaling update-auto-scaling-group --auto-scaling-group-name {self.name} --max-size {self.desired + units}",
            retry=retry,
        )


class Instances(_aws.Hosts):
    name = NAME
    kind = "an Auto Scaling group"
    usual = IN_SERVICE
    ignores = frozenset({"evict", "no_execute"})

    def plan(self, host: Candidate, order: Order) -> HostPlan:
        group = self._need_group(order)
        instance = self._instance(order, host.name)
        if instance is None or host.name not in group.members:
            return HostPlan(host=host, blockers=(f"{host.name} is not in {group.name} any more",))
        state = group.read_state(host.name)
        blockers = [] if state == IN_SERVICE else [f"{host.name} is {state}, not {IN_SERVICE}"]
        disrupts = []
        if any(vars(group.sources).values()):
            disrupts.append(f"removes {host.name} from the load balancers of {group.name}")
        units = group.weigh(host.name)
        count = order.wanted * units
        # Each host leaves as a whole: desired is lowered by its weight, or not at all.
        missing = units * min(order.wanted, max(0, group.desired - group.least) // units)
        replaced = count - missing
        smaller = dataclasses.replace(group, desired=group.desired - missing)
        if missing:
            disrupts.append(f"desired of {group.name} is {missing} lower until the release ({group.desired}, then {smaller.desired})")  # fmt: skip
        if replaced and (refusal := smaller.refuse_return(host.name, count)):
            blockers.append(f"{refusal.why}, and desired cannot go below MinSize {group.least}; {refusal.todo}")  # fmt: skip
        elif replaced and "Launch" in group.suspended:
            disrupts.append(
                f"{group.name} launches no replacement for {replaced}, because its process Launch is suspended"
            )
        elif replaced:
            disrupts.append(
                f"{group.name} launches {replaced} as replacement, because MinSize is {group.least}; after the release "
                f"desired is {replaced} higher than before, until a policy or an operator lowers it"
            )
        return HostPlan(
            host=host,
            disrupts=tuple(disrupts),
            blockers=tuple(blockers),
            warnings=tuple(self._list_warnings(group, instance, order)),
        )

    def _list_warnings(self, group: Group, instance: Mapping[str, Any], order: Order) -> list[str]:
        host = instance["InstanceId"]
        unseen = _instance_work.explain_unseen(group.name, group.sources, instance)
        running, _ = _instance_work.list_work(self._call, order, host, _instance_work.Sources())
        names = ", ".join(f"{work.kind} {work.name}" for work in running[:5])
        ends = instance["LaunchTime"].timestamp() + group.lifetime_seconds
        ends_early = group.lifetime_seconds and ends < time.time() + order.seconds
        spot = instance.get("InstanceLifecycle") == "spot"
        warnings = (
            (unseen, f"the check foreign-workload stays unknown on {host}: {unseen}"),
            (running, f"standby does not stop {names} on {host}; use --provider ecs for hosts of ECS"),
            (spot, f"{host} is a spot instance: AWS may take it back, and it cannot be protected from termination"),
            (ends_early, f"{host} reaches MaxInstanceLifetime of {group.name} before the lease ends"),
            (order.detach, f"{host} belongs to no group while it is detached, and costs money until it returns"),
        )  # fmt: skip
        return [text for applies, text in warnings if applies]

    def claim(self, host: str, order: Order, lease: Lease) -> None:
        """Create the claim, write the tags, then take the instance out of the group."""
        self._check(order, host)
        plain = _aws_marks.Undo(by=NAME, how="detach" if order.detach else "standby")
        known = self._read_claim(host, order)
        if known is not None and known.id != lease.id:
            raise self._taken(host, known.id)
        # Before the claim, so that a change that is found with a claim of ours is ours.
        if known is None and (state := self._need_group(order).read_state(host)) != IN_SERVICE:
            raise self._unusable(host, order, state)
        instance, marks = self._hold(host, order, lease, plain)
        group = self._need_group(order)
        state, undo = group.read_state(host), marks.undo if marks is not None else None
        if state != IN_SERVICE:
            if known is None:  # somebody took it between the two looks
                self._drop_claim(host, order, lease.id)
                raise self._unusable(host, order, state)
            if undo is None:
                self._write_marks(order, host, lease, plain)
            return  # an earlier call has taken it, or is taking it
        units = group.weigh(host)
        shrink = group.desired - units >= group.least
        if not shrink and (refusal := group.refuse_return(host, units, retry=False)):
            if marks is None:  # with marks, the release deletes the claim, after them
                self._drop_claim(host, order, lease.id)
            raise refusal
        if undo is None:
            protected = bool(group.members[host].get("ProtectedFromScaleIn"))
            undo = dataclasses.replace(
                plain, scale_in=protected, termination=self._is_protected(order, instance)
            )
            self._write_marks(order, host, lease, undo)
        if not undo.scale_in:
            # Not between the choice and standby either.
            self._protect_from_scale_in(host, order, True)
        self._take(host, order, lease, undo, shrink=shrink, repeated=marks is not None)

    def _is_protected(self, order: Order, instance: Mapping[str, Any]) -> bool | None:
        """Return whether an instance is protected from termination; None for spot, which cannot be."""
        if instance.get("InstanceLifecycle") == "spot":
            return None
        answer = self._call(
            order, "ec2", "describe_instance_attribute",
            InstanceId=instance["InstanceId"], Attribute="disableApiTermination",
        )  # fmt: skip
        return bool(answer["DisableApiTermination"].get("Value"))

    def _take(
        self, host: str, order: Order, lease: Lease, undo: _aws_marks.Undo, *, shrink: bool, repeated: bool
    ) -> None:  # fmt: skip
        call = "detach_instances" if undo.how == "detach" else "enter_standby"
        try:
            self._change_group(order, host, call, ShouldDecrementDesiredCapacity=shrink)
        except _aws.AwsError as error:
            if error.code != "ValidationError":
                raise  # it may have been carried out: the marks stay, and a repeated claim sees it
            if self._need_group(order).read_state(host) == IN_SERVICE:
                raise
            if error.retried or repeated:
                return  # an earlier attempt did it, and its answer was lost
            # Somebody else took it after we saw it in service: give up our marks, not their standby.
            if marks := self._read_own_marks(order, host, lease.id):
                self._restore_protections(host, order, undo)
                self._remove_marks(order, host, marks)
            self._drop_claim(host, order, lease.id)
            raise self._taken(host, "an operator without a lease") from error

    def mark(self, host: str, order: Order, lease: Lease) -> None:
        """Write the tags where they were removed, and protect the instance from termination."""
        self._need_claim(host, order, lease)
        marks = self._read_own_marks(order, host, lease.id)
        # Without tags, what was before is not known any more: the protections stay as they are now.
        lost = _aws_marks.Undo(by=NAME, how="detach" if order.detach else "standby")
        undo = (marks and marks.undo) or lost
        self._write_marks(order, host, lease, undo)
        if undo.termination is False:
            self._protect_from_termination(host, order, True)

    def empty(self, host: str, order: Order, lease: Lease, progress: reservations.Progress) -> bool:
        """Return whether the instance has left the load balancers: they drain it on the way to standby."""
        self._need_claim(host, order, lease)
        state = self._need_group(order).read_state(host)
        if state in LEAVING:
            progress(f"{host} is {state}: its load balancers drain it")
        return state == ("" if order.detach else STANDBY)

    def list_workloads(self, host: str, order: Order, lease: Lease) -> list[Workload] | Unseen:  # noqa: ARG002
        """Return what AWS sends to the instance, or why that is not all."""
        group, instance = self._need_group(order), self._instance(order, host) or {}
        found, complete = _instance_work.list_work(self._call, order, host, group.sources)
        why = _instance_work.explain_unseen(group.name, group.sources, instance)
        if not complete:
            why = why or "a right to look is missing; docs/reservations-aws.md lists them"
        return Unseen(why) if why and all(work.stays for work in found) else found

    def _is_changed(self, host: str, order: Order) -> bool:
        group = self._find_group(order)
        return group is None or group.read_state(host) in ("", STANDBY, *LEAVING)

    def _give_back(self, host: str, order: Order, lease_id: str, undo: _aws_marks.Undo) -> None:  # noqa: ARG002
        group = self._find_group(order)
        if group is None:
            raise reservations.PlatformError(
                f"{host} cannot return to the Auto Scaling group {order.where}",
                why="the group does not exist any more",
                todo=f"terminate {host}, or remove the tags {', '.join(_aws_marks.TAGS)} from it",
            )
        state = group.read_state(host)
        if state in LEAVING:
            raise _aws.wait_for(f"{host} is {state}", CHANGING)
        call = {STANDBY: "exit_standby", "": "attach_instances"}.get(state, "")
        if (state == STANDBY) != (undo.how != "detach") or not (state or undo.how):
            call = ""  # it is back, or somebody else moved it
        if call and (refusal := group.refuse_return(host, group.weigh(host))):
            raise refusal
        self._restore_protections(host, order, undo, state)
        if call:
            self._change_group(order, host, call)
        if undo.how == "detach" and undo.scale_in is not None:
            # Attached again, it has what the group gives to new instances, once it is in service.
            member = self._need_group(order).members.get(host, {})
            if bool(member.get("ProtectedFromScaleIn")) != undo.scale_in:
                if member.get("LifecycleState") != IN_SERVICE:
                    raise _aws.wait_for(f"{host} does not return to {group.name} yet", CHANGING)
                self._protect_from_scale_in(host, order, undo.scale_in)

    def _restore_protections(
        self, host: str, order: Order, undo: _aws_marks.Undo, state: str = IN_SERVICE
    ) -> None:
        if undo.scale_in is False and state in PROTECTABLE:
            self._protect_from_scale_in(host, order, False)
        if undo.termination is False:
            self._protect_from_termination(host, order, False)

    def _protect_from_scale_in(self, host: str, order: Order, on: bool) -> None:
        self._change_group(order, host, "set_instance_protection", ProtectedFromScaleIn=on)

    def _protect_from_termination(self, host: str, order: Order, on: bool) -> None:
        self._call(order, "ec2", "modify_instance_attribute", InstanceId=host, DisableApiTermination={"Value": on})  # fmt: skip

    def _change_group(self, order: Order, host: str, call: str, **parameters: Any) -> None:
        self._call(order, "autoscaling", call, InstanceIds=[host], AutoScalingGroupName=order.where, **parameters)  # fmt: skip

    def _find_group(self, order: Order) -> Group | None:
        answer = self._call(
            order, "autoscaling", "describe_auto_scaling_groups", AutoScalingGroupNames=[order.where]
        )  # fmt: skip
        for found in answer["AutoScalingGroups"]:
            return Group(
                name=found["AutoScalingGroupName"],
                least=found["MinSize"],
                most=found["MaxSize"],
                desired=found["DesiredCapacity"],
                members={member["InstanceId"]: member for member in found["Instances"]},
                suspended=frozenset(p["ProcessName"] for p in found.get("SuspendedProcesses", ())),
                sources=_instance_work.Sources(
                    found.get("TargetGroupARNs", ()),
                    found.get("LoadBalancerNames", ()),
                    any(s.get("Type") == "vpc-lattice" for s in found.get("TrafficSources", ())),
                ),
                lifetime_seconds=found.get("MaxInstanceLifetime") or 0,
            )  # fmt: skip
        return None

    def _need_group(self, order: Order) -> Group:
        group = self._find_group(order)
        if group is None:
            raise errors.NotFoundError(
                f"Auto Scaling group {order.where} does not exist in {order.region}",
                why="it has another name, region or account",
                todo=f"aws autoscaling describe-auto-scaling-groups --region {order.region} "
                "--query 'AutoScalingGroups[].AutoScalingGroupName'",
            )
        return group

    def _need_members(self, order: Order) -> Mapping[str, Mapping[str, Any]]:
        return self._need_group(order).members

    def _read_member(self, member: Mapping[str, Any]) -> Candidate:
        state, health = member["LifecycleState"], member["HealthStatus"]
        template = member.get("LaunchTemplate", {})
        name = template.get("LaunchTemplateName", template.get("LaunchTemplateId", ""))
        taken = f"an operator who put it on {state}" if state in (STANDBY, *LEAVING) else ""
        problems = [health] if health.lower() != "healthy" else []
        problems += [] if taken or state == IN_SERVICE else [state]
        return Candidate(
            name=member["InstanceId"],
            unhealthy=", ".join(problems),
            taken=taken,
            facts={"launch template": f"{name}:{template.get('Version', '')}" if name else ""},
        )
