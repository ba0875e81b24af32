"""What EC2, ECS and Systems Manager answer, and what a reservation takes from it: no server, no AWS."""

from __future__ import annotations

import dataclasses
import datetime
import json
import pathlib
import time
from typing import Any

import pytest

from overnight import aws, reservations
from overnight.model.pool import Reason
from overnight.model.reservation import Candidate, Lease, Order, Workload
from overnight.reservations.providers import (
    _aws,
    _aws_marks,
    _clusters,
    _instance_work,
    _ssm,
    ec2,
    ecs,
)

S = 1_000_000
HOST, OTHER = "i-0123456789abcdef0", "i-aaaaaaaaaaaaaaaaa"
ORDER = Order(provider="ec2", where="web", region="eu-west-1")
LEASE = Lease("r-aaaaaaaaaaaa", "ada", 2_000_000_000, 3_000_000_000, "irq study")
UNDO = _aws_marks.Undo(by="ec2", how="standby")
Object = dict[str, Any]


class Calls:
    """Answers the operations with the given answers, in order, and records the requests."""

    def __init__(self, **answers: Any) -> None:
        self.answers = {name: [*given] for name, given in answers.items()}
        self.asked: list[tuple[str, Object]] = []

    def __call__(self, order: Order, service: str, operation: str, **parameters: Any) -> Any:
        self.asked.append((operation, parameters))
        given = self.answers.get(operation, [{}])
        answer = given.pop(0) if len(given) > 1 else given[0]
        return answer(parameters) if callable(answer) else answer

    def count(self, operation: str) -> int:
        return sum(name == operation for name, _ in self.asked)


# marks


def test_a_claim_says_how_old_it_is_and_what_it_changed() -> None:
    made = datetime.datetime.now(datetime.UTC) - datetime.timedelta(seconds=30)
    text = _aws_marks.build_claim(LEASE, "web", UNDO)
    claim = _aws_marks.parse_claim({"Value": text, "LastModifiedDate": made})
    assert (claim.id, claim.lease, claim.where, claim.undo) == (LEASE.id, LEASE, "web", UNDO)
    assert 30 <= claim.age_seconds < 60
    assert claim.tags == {}
    # Its tags cannot be late any more if nobody knows when it was made.
    assert _aws_marks.parse_claim({"Value": text}).age_seconds == _aws_marks.LAG_SECONDS


@pytest.mark.parametrize("text", ["{", "[]", "{}", "null", '{"by": "ec2", "where": "web", "how": "x", "lease": 3}'])  # fmt: skip
def test_a_claim_that_cannot_be_read_is_of_nobody(text: str) -> None:
    claim = _aws_marks.parse_claim({"Value": text})
    assert (claim.id, claim.lease, claim.undo, claim.where) == ("", None, None, "")


def tags(**values: str) -> Object:
    named = {f"overnight:{name.replace('_', '-')}": value for name, value in values.items()}
    return {"Tags": _aws_marks.write_tags(named | {"Name": "web-1", "aws:autoscaling:groupName": "api"})}  # fmt: skip


@pytest.mark.parametrize(
    ("instance", "identity", "lease", "where"),
    [
        (tags(lease=LEASE.id, lease_record=LEASE.text(), lease_where="web"), LEASE.id, LEASE, "web"),
        (tags(lease_record=LEASE.text()), LEASE.id, LEASE, "api"),
        (tags(lease=LEASE.id), LEASE.id, None, "api"),
        (tags(lease="r-bbbbbbbbbbbb", lease_record=LEASE.text()), "r-bbbbbbbbbbbb", None, "api"),
        (tags(lease_undo=UNDO.text()), "", None, "api"),
    ],
)  # fmt: skip
def test_each_tag_alone_is_a_mark(
    instance: Object, identity: str, lease: Lease | None, where: str
) -> None:
    marks = _aws_marks.read_marks(instance)
    assert marks is not None
    assert (marks.id, marks.lease, marks.where) == (identity, lease, where)
    assert {*marks.tags} <= {*_aws_marks.TAGS}
    assert _aws_marks.read_marks(tags()) is None


def test_what_was_before_is_restored_only_where_it_is_known() -> None:
    for undo in (
        UNDO,
        dataclasses.replace(UNDO, scale_in=False, termination=True, agent=True),
    ):
        assert _aws_marks.Undo.parse(undo.text()) == undo
    assert "scale_in" not in UNDO.text()
    assert _aws_marks.Undo.parse("{}") is None


def test_a_lease_that_is_too_long_loses_its_purpose_before_its_owner() -> None:
    assert _aws_marks.shorten(LEASE) == LEASE.text()
    long = dataclasses.replace(LEASE, purpose="p" * 300)
    cut = Lease.parse(_aws_marks.shorten(long))
    assert cut is not None
    assert (cut.owner, cut.until_us, cut.cap_us) == ("ada", long.until_us, long.cap_us)
    assert long.purpose.startswith(cut.purpose)
    assert aws.MAX_TAG - 12 < len(cut.text()) <= aws.MAX_TAG


def test_an_instance_as_a_host() -> None:
    instance: Object = {
        **tags(lease=LEASE.id),
        "State": {"Name": "running"}, "ImageId": "ami-1", "Architecture": "", "PrivateDnsName": "ip-1",
        "Placement": {"AvailabilityZone": "eu-west-1b"}, "InstanceType": "m7i.large",
        "LaunchTime": datetime.datetime.fromtimestamp(1_800_000_000, datetime.UTC),
    }  # fmt: skip
    host = _aws._add_instance(Candidate(name=HOST, taken="an operator"), instance)
    assert host.booted_us == 1_800_000_000 * S
    assert (host.zone, host.instance_type, host.taken) == ("eu-west-1b", "m7i.large", LEASE.id)
    assert host.labels == {"Name": "web-1", "aws:autoscaling:groupName": "api", "hostname": "ip-1"}
    assert (host.facts, host.unhealthy) == ({"image": "ami-1"}, "")
    stopped = {**instance, **tags(), "State": {"Name": "stopped"}}
    host = _aws._add_instance(
        Candidate(name=HOST, taken="an operator", unhealthy="Unhealthy"), stopped
    )
    assert (host.unhealthy, host.taken) == ("stopped, Unhealthy", "an operator")


@pytest.mark.parametrize(
    ("code", "reason", "advice"),
    [
        ("ExpiredToken", Reason.DENIED, "renew the credentials"),
        ("AccessDenied", Reason.DENIED, "with the policy in docs/reservations-aws.md"),
        ("Throttling", Reason.THROTTLED, "wait a minute"),
        ("", Reason.UNREACHABLE, "this host reaches ssm.eu-west-1.amazonaws.com"),
        ("LimitExceeded", Reason.QUOTA, "Service Quotas of eu-west-1"),
        ("Strange", Reason.ERROR, "the answer of AWS is above"),
    ],
)
def test_each_refusal_of_aws_has_its_next_step(code: str, reason: Reason, advice: str) -> None:
    failure = aws.Failure(code=code, message="", reason=reason, retried=False, unsigned=False)
    assert advice in _aws._advise(failure, "ssm", "eu-west-1")


# members and tasks of a cluster


def test_tasks_are_read_with_what_places_them_until_they_have_stopped() -> None:
    def describe(parameters: Object) -> Object:
        return {"tasks": [found[arn] for arn in parameters["tasks"]]}

    found = {
        f"arn/{name}": {"taskArn": f"arn/{name}", "lastStatus": "RUNNING", **more}
        for name, more in {
            "web": {"group": "service:web", "desiredStatus": "STOPPED"},
            "logs": {"group": "service:logs"},
            "batch": {"group": "family:batch"},
            "bye": {"group": "family:batch", "desiredStatus": "STOPPED"},
            "old": {"lastStatus": "STOPPED"},
            "gone": {"lastStatus": "DELETED"},
        }.items()
    }
    services = [
        {"serviceName": "web", "schedulingStrategy": "REPLICA"},
        {"serviceName": "logs", "schedulingStrategy": "DAEMON"},
    ]
    stopping = [arn for arn in found if found[arn].get("desiredStatus") == "STOPPED"]
    call = Calls(
        list_tasks=[{"taskArns": [a for a in found if a not in stopping]}, {"taskArns": stopping}],
        describe_tasks=[describe],
        list_services=[{"serviceArns": ["s-1", "s-2"]}],
        describe_services=[{"services": services}],
    )
    assert _clusters.list_tasks(call, ORDER, "c-1") == [
        Workload("batch", "task"),
        Workload("bye", "stopping task"),
        Workload("logs", "service:logs", _clusters.DAEMON),
        Workload("web", "service:web"),
    ]
    assert [p["desiredStatus"] for name, p in call.asked if name == "list_tasks"] == ["RUNNING", "STOPPED"]  # fmt: skip
    idle = Calls(list_tasks=[{"taskArns": []}])
    assert _clusters.list_tasks(idle, ORDER, "c-1") == []
    assert idle.count("list_services") == 0  # a right that is not needed


def test_long_lists_are_asked_for_in_parts_and_none_is_lost() -> None:
    arns = [f"s-{number}" for number in range(23)]
    call = Calls(
        list_services=[{"serviceArns": arns}],
        describe_services=[lambda given: {"services": [{"n": arn} for arn in given["services"]]}],
    )
    assert [each["n"] for each in _clusters.read_services(call, ORDER)] == arns
    sizes = [len(given["services"]) for name, given in call.asked if name == "describe_services"]
    assert sizes == [10, 10, 3]


def test_only_instances_of_ec2_are_members() -> None:
    ids = (HOST, OTHER, "mi-0123456789abcdef0")
    listed = [{"ec2InstanceId": name} for name in ids]
    call = Calls(
        list_container_instances=[{"containerInstanceArns": [*ids]}],
        describe_container_instances=[{"containerInstances": listed}],
    )
    assert [*_clusters.read_members(call, ORDER)] == [HOST, OTHER]
    assert [*_clusters.read_members(call, ORDER, OTHER)] == [OTHER]
    assert _clusters.read_members(Calls(list_container_instances=[None]), ORDER) == {}


def test_a_container_instance_as_a_host() -> None:
    member = {
        "ec2InstanceId": HOST, "status": "ACTIVE", "agentConnected": True,
        "attributes": [{"name": "team", "value": "red"}, {"name": "empty"}],
        "versionInfo": {"agentVersion": "1.9", "dockerVersion": "28"},
    }  # fmt: skip
    provider = ecs.ContainerInstances(reservations.Settings(home=pathlib.Path("/nonexistent")))
    host = provider._read_member(member)
    assert (host.name, host.unhealthy, host.taken) == (HOST, "", "")
    assert host.labels == {"team": "red", "empty": ""}
    assert host.facts == {"ecs agent": "1.9", "docker": "28"}
    away = provider._read_member({**member, "agentConnected": False, "status": "DRAINING"})
    assert away.unhealthy == "its ECS agent is not connected, DRAINING"
    ours = [{"name": ecs.ATTRIBUTE, "value": LEASE.id}]
    held = provider._read_member({**member, "attributes": ours, "status": "DRAINING"})
    assert (held.unhealthy, held.taken) == ("", LEASE.id)


# members of a group


@pytest.mark.parametrize(
    ("state", "health", "unhealthy", "is_taken"),
    [
        ("InService", "Healthy", "", False),
        ("InService", "HEALTHY", "", False),
        ("InService", "Unhealthy", "Unhealthy", False),
        ("Standby", "Healthy", "", True),
        ("EnteringStandby", "Healthy", "", True),
        ("Detaching", "Unhealthy", "Unhealthy", True),
        ("Pending", "Healthy", "Pending", False),
        ("Terminating", "Unhealthy", "Unhealthy, Terminating", False),
    ],
)
def test_a_member_of_a_group_as_a_host(
    state: str, health: str, unhealthy: str, is_taken: bool
) -> None:
    provider = ec2.Instances(reservations.Settings(home=pathlib.Path("/nonexistent")))
    member = {
        "InstanceId": HOST, "LifecycleState": state, "HealthStatus": health,
        "LaunchTemplate": {"LaunchTemplateId": "lt-1", "Version": "3"},
    }  # fmt: skip
    host = provider._read_member(member)
    assert (host.name, host.unhealthy, bool(host.taken)) == (HOST, unhealthy, is_taken)
    assert host.facts == {"launch template": "lt-1:3"}


@pytest.mark.parametrize(("units", "refused"), [(1, False), (2, False), (3, True)])
def test_a_group_takes_back_as_much_as_its_maximum_allows(units: int, refused: bool) -> None:
    group = ec2.Group(
        name="web", least=0, most=6, desired=4, members={}, suspended=frozenset(),
        sources=_instance_work.Sources(), lifetime_seconds=0,
    )  # fmt: skip
    refusal = group.refuse_return(HOST, units)
    assert (refusal is not None) is refused
    if refusal is not None:
        assert refusal.todo.endswith("--max-size 7")


# work


def test_only_work_of_this_instance_counts() -> None:
    def healths(host: str, state: str) -> Object:
        target = {"Target": {"Id": host}, "TargetHealth": {"State": state}}
        return {"TargetHealthDescriptions": [target, {"Target": {"Id": "i-1"}, "TargetHealth": {"State": "healthy"}}]}  # fmt: skip

    commands = [
        {"CommandId": "c-1", "DocumentName": "Patch", "Status": "InProgress"},
        {"CommandId": "c-2", "DocumentName": "Patch", "Status": "InProgress", "Comment": f"start {_ssm.UNIT}{LEASE.id}"},
        {"CommandId": "c-3", "DocumentName": "Patch", "Status": "Success"},
    ]  # fmt: skip
    call = Calls(
        describe_target_health=[healths(HOST, "draining"), healths(OTHER, "healthy")],
        describe_instance_health=[
            {"InstanceStates": [{"InstanceId": OTHER}, {"InstanceId": HOST}]},
            {"InstanceStates": [{"InstanceId": OTHER}]},
        ],
        list_commands=[{"Commands": commands}],
    )
    arns = [f"arn:aws:elasticloadbalancing:eu-west-1:1:targetgroup/{name}/73e2" for name in "ab"]
    sources = _instance_work.Sources(target_groups=arns, classic=["old", "older"])
    assert _instance_work.list_work(call, ORDER, HOST, sources) == (
        [
            Workload("a (draining)", "target group"),
            Workload("old", "load balancer"),
            Workload("c-1", "SSM command Patch"),
        ],
        True,
    )


@pytest.mark.parametrize(
    ("sources", "tag", "why"),
    [
        (_instance_work.Sources(), "", "web has no load balancer"),
        (_instance_work.Sources(target_groups=["a"]), "", ""),
        (_instance_work.Sources(classic=["a"]), "", ""),
        (_instance_work.Sources(classic=["a"], lattice=True), "", "VPC Lattice sends traffic to web"),
        (_instance_work.Sources(classic=["a"]), "kubernetes.io/cluster/prod", "Kubernetes cluster prod places pods"),
    ],
)  # fmt: skip
def test_what_aws_does_not_show_is_explained(
    sources: _instance_work.Sources, tag: str, why: str
) -> None:
    instance = {"Tags": [{"Key": tag or "Name", "Value": "owned"}]}
    explained = _instance_work.explain_unseen("web", sources, instance)
    assert explained.startswith(why)
    assert bool(explained) is bool(why)


# the agent


@pytest.mark.parametrize(
    ("listed", "why", "retry"),
    [
        ([], "Systems Manager does not manage it", False),
        ([{"PingStatus": "ConnectionLost"}], "its SSM agent is offline", True),
    ],
)
def test_an_instance_that_takes_no_command_is_named_and_one_that_is_away_is_tried_again(
    listed: list[Object], why: str, retry: bool
) -> None:
    call = Calls(describe_instance_information=[{"InstanceInformationList": listed}])
    with pytest.raises(reservations.PlatformError) as caught:
        _ssm.need_managed(call, HOST, ORDER)
    assert (caught.value.why, caught.value.retry) == (why, retry)
    online = Calls(
        describe_instance_information=[{"InstanceInformationList": [{"PingStatus": "Online"}]}]
    )
    _ssm.need_managed(online, HOST, ORDER)


SETUP = reservations.AgentSetup(server="https://centre", token="s3cret")


def test_a_start_waits_for_its_command_and_removes_the_token_whatever_comes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    slept: list[float] = []
    monkeypatch.setattr(time, "sleep", slept.append)
    states = [None, {"Status": "InProgress"}, {"Status": "Success"}]
    call = Calls(send_command=[{"Command": {"CommandId": "c-1"}}], get_command_invocation=states)
    _ssm.start(call, HOST, ORDER, LEASE, SETUP)
    assert slept == [1, 1]
    assert call.asked[-1] == ("delete_parameter", {"absent": "ParameterNotFound", "Name": f"{_ssm.TOKENS}/{HOST}"})  # fmt: skip
    [script] = [given["Parameters"]["commands"] for name, given in call.asked if name == "send_command"]  # fmt: skip
    assert "RuntimeMaxSec=60 " in "\n".join(script)  # its lease is over, and it ends soon
    failed = {"Status": "Failed", "StandardErrorContent": "aws is not installed\n"}
    call = Calls(send_command=[{"Command": {"CommandId": "c-2"}}], get_command_invocation=[failed])
    with pytest.raises(reservations.PlatformError) as caught:
        _ssm.start(call, HOST, ORDER, LEASE, SETUP)
    assert caught.value.why == "command c-2 of Systems Manager is Failed: aws is not installed"
    assert f"--command-id c-2 --instance-id {HOST}" in caught.value.todo
    assert call.asked[-1][0] == "delete_parameter"


def test_a_start_without_a_server_is_refused_before_anything_is_written() -> None:
    call = Calls()
    with pytest.raises(reservations.PlatformError) as caught:
        _ssm.start(call, HOST, ORDER, LEASE, reservations.AgentSetup(server=""))
    assert not caught.value.retry
    assert call.asked == []


def test_the_unit_of_an_agent_ends_with_the_cap_of_its_lease() -> None:
    now = int(time.time())
    lease = dataclasses.replace(LEASE, until_us=(now + 60) * S, cap_us=(now + 7200) * S)
    call = Calls(
        send_command=[{"Command": {"CommandId": "c-1"}}],
        get_command_invocation=[{"Status": "Success"}],
    )
    _ssm.start(call, HOST, ORDER, lease, SETUP)
    text = json.dumps(call.asked)
    seconds = int(text.partition("RuntimeMaxSec=")[2].partition(" ")[0])
    assert 7100 < seconds <= 7200
