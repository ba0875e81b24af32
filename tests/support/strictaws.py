"""A moto server that refuses what AWS refuses, is late as AWS is, and fails on request.

Each rule names its source. moto alone accepts standby below MinSize and of an instance that is on standby,
returns above MaxSize, unknown instance ids, and attribute values in DeleteAttributes; it does not know
DescribeInstanceInformation; it leaves instances on standby in their target groups; and everything that is written
is visible at once.
"""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import subprocess
import sys
import time
import urllib.parse
import urllib.request
from typing import TYPE_CHECKING, Any

import motoserver

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

REGION = motoserver.REGION
IN_SERVICE, STANDBY, ENTERING = "InService", "Standby", "EnteringStandby"

# ---- in the process of the server

FAULTS: dict[str, dict[str, Any]] = {}  # by operation
LAG = {"tag_seconds": 0.0, "standby_reads": 0}
RUNNING: set[str] = set()  # documents whose commands have not ended
MANAGED: set[str] = set()  # instances with an SSM agent
CALLS: list[str] = []


def serve() -> None:
    """Serve on a free port, and print it."""
    import ctypes

    import werkzeug.serving
    from moto import server

    ctypes.CDLL(None).prctl(1, 9)  # PR_SET_PDEATHSIG, SIGKILL: not left behind by a killed test
    tighten_groups()
    tighten_clusters()
    delay_tags()
    manage_instances()
    app = server.DomainDispatcherApplication(server.create_backend_app)
    serving = werkzeug.serving.make_server("127.0.0.1", 0, with_faults(app), threaded=True)
    print(serving.port, flush=True)  # noqa: T201
    serving.serve_forever()


def with_faults(app: Any) -> Any:
    """Answer /strict, count calls, and fail those that a test has chosen."""

    def answer(environ: dict[str, Any], start: Callable[..., Any]) -> Any:
        length = int(environ.get("CONTENT_LENGTH") or 0)
        body = environ["wsgi.input"].read(length)
        import io

        environ["wsgi.input"] = io.BytesIO(body)
        if environ["PATH_INFO"] == "/strict":
            given = json.loads(body or b"{}")
            for target, name in ((FAULTS, "faults"), (LAG, "lag")):
                target.update(given.get(name, {}))  # type: ignore[attr-defined]
            MANAGED.update(given.get("managed", ()))
            RUNNING.update(given.get("running", ()))
            calls = list(CALLS)
            if given.get("reset"):
                FAULTS.clear()
                MANAGED.clear()
                RUNNING.clear()
                CALLS.clear()
                OLD_TAGS.clear()
                LAG.update(tag_seconds=0.0, standby_reads=0)
            start("200 OK", [("Content-Type", "application/json")])
            return [json.dumps(calls).encode()]
        target = environ.get("HTTP_X_AMZ_TARGET", "")
        form = urllib.parse.parse_qs(body.decode("utf-8", "replace"))
        operation = target.rpartition(".")[2] or form.get("Action", [""])[0]
        CALLS.append(operation)
        fault = FAULTS.get(operation) or FAULTS.get("*")
        if fault is None or fault["times"] == 0 or environ["PATH_INFO"].startswith("/moto-api"):
            return app(environ, start)
        fault["times"] -= 1
        if fault.get("lost"):  # carried out, and the answer is lost
            list(app(environ, lambda *_: None))
        code, text = fault["code"], fault.get("message", f"because {fault['code']}")
        start(f"{fault.get('status', 400)} Fault", [("Content-Type", "text/xml")])
        if target:
            return [json.dumps({"__type": code, "message": text}).encode()]
        ec2 = "ec2" in environ.get("HTTP_AUTHORIZATION", "").partition("/aws4_request")[0][-12:]
        inner = f"<Code>{code}</Code><Message>{text}</Message>"
        if ec2:
            return [f"<Response><Errors><Error>{inner}</Error></Errors><RequestID>r</RequestID></Response>".encode()]  # fmt: skip
        return [f"<ErrorResponse><Error>{inner}</Error><RequestId>r</RequestId></ErrorResponse>".encode()]  # fmt: skip

    return answer


def tighten_groups() -> None:
    """Enforce the rules of EnterStandby, ExitStandby, AttachInstances, DetachInstances and SetInstanceProtection."""
    from moto.autoscaling import models
    from moto.autoscaling.exceptions import ValidationError

    backend = models.AutoScalingBackend
    enter, leave, detach = (
        backend.enter_standby_instances, backend.exit_standby_instances, backend.detach_instances,
    )  # fmt: skip
    protect, describe = backend.set_instance_protection, backend.describe_auto_scaling_groups

    def members(self: Any, group: str, ids: list[str], *states: str) -> Any:
        if group not in self.autoscaling_groups:
            raise ValidationError(f"AutoScalingGroup name not found - {group}")
        found = self.autoscaling_groups[group]
        # API reference: an array of at most 19 strings.
        if len(ids) > 19:
            raise ValidationError("Member must have length less than or equal to 19")
        known = {state.instance.id: state for state in found.instance_states}
        for one in ids:
            if one not in known:
                raise ValidationError(f"The instance {one} is not part of Auto Scaling group {group}.")  # fmt: skip
            if known[one].lifecycle_state not in states:
                # keikoproj/upgrade-manager#324, infrahouse-toolkit#223: the words of AWS
                raise ValidationError(f"The instance {one} is not in {' or '.join(states)}.")
        return found

    def shrinks(group: Any, count: int) -> None:
        # API reference of EnterStandby: only if desired stays at MinSize or above.
        if group.desired_capacity - count < group.min_size:
            raise ValidationError(
                f"AutoScalingGroup {group.name} has min-size={group.min_size}, max-size={group.max_size}, and "
                f"desired-size={group.desired_capacity}. To place into standby {count} instance, please update the "
                "AutoScalingGroup sizes appropriately."
            )

    def grows(group: Any, count: int) -> None:
        # AutoSpotting#428: the words of AWS
        if group.desired_capacity + count > group.max_size:
            raise ValidationError(
                f"AutoScalingGroup {group.name} has min-size={group.min_size}, max-size={group.max_size}, and "
                f"desired-size={group.desired_capacity}. To attach {count} instance, please update the "
                "AutoScalingGroup sizes appropriately."
            )

    def targets(self: Any, group: Any, ids: list[str], change: Callable[..., Any]) -> None:
        # User guide, "Temporarily remove instances": deregistered on standby, registered afterwards.
        for arn in group.target_group_arns:
            port = self.elbv2_backend.target_groups[arn].port
            change(arn, [{"Id": one, "Port": port} for one in ids])

    def enter_standby(self: Any, group: str, ids: list[str], should_decrement: bool) -> Any:
        found = members(self, group, ids, IN_SERVICE)
        if should_decrement:
            shrinks(found, len(ids))
        answer = enter(self, group, ids, should_decrement)
        targets(self, found, ids, self.elbv2_backend.deregister_targets)
        for state in found.instance_states:
            if state.instance.id in ids and LAG["standby_reads"]:
                state.lifecycle_state, state.reads = ENTERING, LAG["standby_reads"]
        return answer

    def exit_standby(self: Any, group: str, ids: list[str]) -> Any:
        found = members(self, group, ids, STANDBY)
        grows(found, len(ids))
        answer = leave(self, group, ids)
        targets(self, found, ids, self.elbv2_backend.register_targets)
        return answer

    def detach_instances(self: Any, group: str, ids: list[str], should_decrement: bool) -> Any:
        found = members(self, group, ids, IN_SERVICE, STANDBY)
        if should_decrement:
            shrinks(found, len(ids))
        return detach(self, group, ids, should_decrement)

    def attach_instances(self: Any, group: str, ids: list[str]) -> None:
        found = members(self, group, [])
        for one in ids:
            if any(s.instance.id == one for g in self.autoscaling_groups.values() for s in g.instance_states):  # fmt: skip
                raise ValidationError(f"Instance {one} is already part of an AutoScalingGroup")
        grows(found, len(ids))
        for one in ids:
            instance = self.ec2_backend.get_instance(one)
            found.instance_states.append(
                models.InstanceState(instance, autoscaling_group=found, protected_from_scale_in=found.new_instances_protected_from_scale_in)
            )  # fmt: skip
            self.ec2_backend.create_tags([one], {models.ASG_NAME_TAG: group})
        found.desired_capacity += len(ids)

    def set_instance_protection(self: Any, group: str, ids: list[str], on: bool | None) -> None:
        members(self, group, ids, IN_SERVICE, ENTERING, STANDBY)
        protect(self, group, ids, on)

    def describe_groups(self: Any, *args: Any, **kwargs: Any) -> Any:
        found = describe(self, *args, **kwargs)
        for group in found:
            for state in group.instance_states:
                if state.lifecycle_state == ENTERING:
                    state.reads -= 1
                    if state.reads < 0:
                        state.lifecycle_state = STANDBY
        return found

    backend.enter_standby_instances, backend.exit_standby_instances = enter_standby, exit_standby
    backend.detach_instances, backend.attach_instances = detach_instances, attach_instances
    backend.set_instance_protection = set_instance_protection
    backend.describe_auto_scaling_groups = describe_groups


def tighten_clusters() -> None:
    """DeleteAttributes takes no value (API reference), a cluster must exist, and a task runs until it is stopped."""
    from moto.ecs import models
    from moto.ecs.exceptions import ClusterNotFoundException, InvalidParameterException

    backend = models.EC2ContainerServiceBackend
    delete, list_all = backend.delete_attributes, backend.list_container_instances

    def list_container_instances(self: Any, cluster: str, status: str | None = None) -> Any:
        if cluster.rpartition("/")[2] not in self.clusters:
            raise ClusterNotFoundException
        return list_all(self, cluster, status)

    def delete_attributes(self: Any, cluster: str, attributes: Any = None) -> None:
        filled = []
        for attribute in attributes or ():
            if attribute.get("value") is not None:
                raise InvalidParameterException("don't specify the value")
            name = attribute["targetId"].rpartition("/")[2]
            instances = self.container_instances[cluster.rsplit("/", maxsplit=1)[-1]]
            value = instances[name].attributes.get(attribute["name"]) if name in instances else None
            filled.append({**attribute, "value": value})
        delete(self, cluster, filled)

    backend.delete_attributes = delete_attributes
    backend.list_container_instances = list_container_instances

    # A task runs until it is stopped, and then for a while; moto ends those that are looked at often enough.
    stop = backend.stop_task

    def stop_task(self: Any, *given: Any) -> Any:
        task = stop(self, *given)
        task.last_status, task.reads = "STOPPING", 2
        return task

    def advance(task: Any) -> None:
        if task.desired_status == "STOPPED":
            task.reads -= 1
            task.last_status = "STOPPING" if task.reads > 0 else "STOPPED"

    backend.stop_task, models.Task.advance = stop_task, advance


OLD_TAGS: dict[str, list[tuple[float, dict[str, str]]]] = {}


def delay_tags() -> None:
    """Show the tags of an instance as they were `tag_seconds` ago: EC2 is eventually consistent."""
    from moto.ec2.models import core, tags

    get, create, delete = core.TaggedEC2Resource.get_tags, tags.TagBackend.create_tags, tags.TagBackend.delete_tags  # fmt: skip

    def remember(self: Any, ids: list[str]) -> None:
        for one in ids:
            if one.startswith("i-") and LAG["tag_seconds"]:
                OLD_TAGS.setdefault(one, []).append((time.monotonic(), dict(self.tags[one])))

    def create_tags(self: Any, ids: list[str], given: Any) -> Any:
        remember(self, ids)
        return create(self, ids, given)

    def delete_tags(self: Any, ids: list[str], given: Any) -> Any:
        remember(self, ids)
        return delete(self, ids, given)

    def get_tags(self: Any) -> Any:
        current = get(self)
        late = time.monotonic() - LAG["tag_seconds"]
        for changed, before in OLD_TAGS.get(self.id, ()):
            if changed > late:
                kind = {"resource_id": self.id, "resource_type": "instance"}
                return [{"key": key, "value": value, **kind} for key, value in before.items()]
        return current

    core.TaggedEC2Resource.get_tags = get_tags
    tags.TagBackend.create_tags, tags.TagBackend.delete_tags = create_tags, delete_tags


def manage_instances() -> None:
    from moto.core.responses import ActionResult
    from moto.ssm import models, responses
    from moto.ssm.exceptions import SSMException

    send = models.SimpleSystemManagerBackend.send_command

    def describe_instance_information(self: Any) -> Any:
        wanted = [value for f in self._get_param("Filters", []) for value in f["Values"]]
        found = [{"InstanceId": one, "PingStatus": "Online"} for one in wanted if one in MANAGED]
        return ActionResult({"InstanceInformationList": found})

    def send_command(self: Any, **given: Any) -> Any:
        if not set(given["instance_ids"]) <= MANAGED:
            raise SSMException("InvalidInstanceId", "Instances not in a valid state for account")
        command = send(self, **given)
        if command.document_name in RUNNING:
            command.status = "InProgress"
        return command

    responses.SimpleSystemManagerResponse.describe_instance_information = describe_instance_information  # fmt: skip
    models.SimpleSystemManagerBackend.send_command = send_command


# ---- in the process of the test


@contextlib.contextmanager
def running() -> Iterator[str]:
    """Run a server and yield its URL."""
    plain = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    plain["PYTHONPATH"] = str(pathlib.Path(__file__).parent)
    with subprocess.Popen(
        [sys.executable, "-c", "import strictaws; strictaws.serve()"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**plain, "MOTO_EC2_LOAD_DEFAULT_AMIS": "false", "MOTO_ENABLE_ISO_REGIONS": "false"},
    ) as started:
        try:
            assert started.stdout is not None
            port = started.stdout.readline().strip()
            assert port, "the server did not start"
            yield f"http://127.0.0.1:{port}"
        finally:
            started.terminate()
            started.wait(20)


class Account:
    """An account with a group and a cluster, read and changed without the providers."""

    def __init__(self, url: str) -> None:
        import boto3.session

        self.url = url
        session = boto3.session.Session(aws_access_key_id="other", aws_secret_access_key="other")
        self.ec2, self.groups, self.ecs, self.ssm, self.balancers = (
            session.client(service, region_name=REGION, endpoint_url=url)
            for service in ("ec2", "autoscaling", "ecs", "ssm", "elbv2")
        )

    def control(self, **given: Any) -> list[str]:
        """Set faults and lags; return the calls so far."""
        request = urllib.request.Request(f"{self.url}/strict", data=json.dumps(given).encode())
        with urllib.request.urlopen(request, timeout=20) as answer:
            return list(json.load(answer))

    def fail(self, operation: str, code: str, times: int = 1, **more: Any) -> None:
        self.control(faults={operation: {"code": code, "times": times, **more}})

    def add_group(
        self, size: int, least: int = 0, most: int = 10, name: str = "web", **more: Any
    ) -> list[str]:
        """Create a group and return the ids of its instances."""
        motoserver.template(self.ec2, name)
        self.groups.create_auto_scaling_group(
            AutoScalingGroupName=name, MinSize=least, MaxSize=most, DesiredCapacity=size,
            LaunchTemplate={"LaunchTemplateName": name}, AvailabilityZones=[f"{REGION}a"], **more,
        )  # fmt: skip
        return sorted(self.members(name))

    def add_target_group(self, name: str = "front") -> str:
        vpc = self.ec2.create_vpc(CidrBlock="10.9.0.0/16")["Vpc"]["VpcId"]
        made = self.balancers.create_target_group(Name=name, Protocol="HTTP", Port=80, VpcId=vpc)
        return str(made["TargetGroups"][0]["TargetGroupArn"])

    def register_container(self, host: str, name: str = "jobs") -> str:
        document = {"instanceId": host, "accountId": "123456789012", "region": REGION}
        made = self.ecs.register_container_instance(
            cluster=name, instanceIdentityDocument=json.dumps(document)
        )
        return str(made["containerInstance"]["containerInstanceArn"])

    def group(self, name: str = "web") -> dict[str, Any]:
        answer = self.groups.describe_auto_scaling_groups(AutoScalingGroupNames=[name])
        return dict(answer["AutoScalingGroups"][0])

    def members(self, name: str = "web") -> dict[str, dict[str, Any]]:
        return {one["InstanceId"]: one for one in self.group(name)["Instances"]}

    def tags(self, host: str) -> dict[str, str]:
        filters = [{"Name": "resource-id", "Values": [host]}]
        return {tag["Key"]: tag["Value"] for tag in self.ec2.describe_tags(Filters=filters)["Tags"]}  # fmt: skip

    def parameters(self) -> dict[str, str]:
        answer = self.ssm.get_parameters_by_path(Path="/overnight", Recursive=True)
        return {one["Name"]: one["Value"] for one in answer["Parameters"]}

    def picture(self, *hosts: str, name: str = "web") -> dict[str, Any]:
        """Return everything that a reservation may change."""
        group = self.group(name)
        members = {
            one["InstanceId"]: (one["LifecycleState"], one["ProtectedFromScaleIn"])
            for one in group["Instances"]
        }
        return {
            "sizes": (group["MinSize"], group["MaxSize"], group["DesiredCapacity"]),
            "members": members,
            "tags": {host: self.tags(host) for host in hosts},
            "termination": {host: self.is_protected(host) for host in hosts},
            "parameters": self.parameters(),
        }

    def is_protected(self, host: str) -> bool:
        answer = self.ec2.describe_instance_attribute(InstanceId=host, Attribute="disableApiTermination")  # fmt: skip
        return bool(answer["DisableApiTermination"]["Value"])

    def add_cluster(self, size: int, name: str = "jobs") -> list[str]:
        """Create a cluster and return the ids of its instances."""
        self.ecs.create_cluster(clusterName=name)
        image = self.ec2.register_image(Name=f"image of {name}", RootDeviceName="/dev/xvda")["ImageId"]  # fmt: skip
        ran = self.ec2.run_instances(ImageId=image, MinCount=size, MaxCount=size)
        hosts = sorted(one["InstanceId"] for one in ran["Instances"])
        for host in hosts:
            self.register_container(host, name)
        return hosts

    def containers(self, name: str = "jobs") -> dict[str, dict[str, Any]]:
        arns = self.ecs.list_container_instances(cluster=name)["containerInstanceArns"]
        answer = self.ecs.describe_container_instances(cluster=name, containerInstances=arns)
        return {one["ec2InstanceId"]: one for one in answer["containerInstances"]}
