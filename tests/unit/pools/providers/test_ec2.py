"""EC2 without AWS: what is refused at the door, what is asked for, and every way in which AWS says no.

What moto cannot say, botocore's Stubber says here; tests/integration/pools/test_ec2.py has the rest.
"""

from __future__ import annotations

import importlib.util
import pathlib
from typing import TYPE_CHECKING, Any

import pytest
from ec2played import HERE, THERE, order

from overnight import errors, pools
from overnight.pools import pool_errors
from overnight.pools.providers import _boot, ec2

if TYPE_CHECKING:
    from ec2played import Played

pytestmark = pytest.mark.usefixtures("no_aws")
FILTER = [{"Name": "instance-state-name", "Values": list(ec2.LIVE)}]


# the door


@pytest.mark.parametrize(
    ("given", "knob"),
    [
        ({"template": "no"}, "template"),
        ({"template": "a template"}, "template"),
        ({"template": "runner:"}, "template"),
        ({"template": "runner:latest"}, "template"),
        ({"template": "runner:1:2"}, "template"),
        ({"template": "läufer"}, "template"),
        ({"regions": ()}, "region"),
        ({"regions": ("Ireland",)}, "region"),
        ({"regions": (HERE, "eu-west-1a")}, "region"),
        ({"instance_type": "large"}, "instance_type"),
        ({"pool": "x" * 300}, "name"),
    ],
)
def test_what_could_never_be_launched_is_refused(given: dict[str, Any], knob: str) -> None:
    provider = ec2.create(pathlib.Path("/nonexistent"))
    with pytest.raises(pool_errors.BadKnobError) as caught:
        provider.check(order(**given))
    assert caught.value.knob == knob
    with pytest.raises(pools.ProviderError) as failed:
        provider.launch(order(**given))
    assert (failed.value.reason, failed.value.nothing_made) == ("order_refused", True)


@pytest.mark.parametrize(
    "given",
    [
        {"template": "lt-0123456789abcdef0"},
        {"template": "runner:7"},
        {"template": "runner:$Latest"},
        {"template": "team/ci-(x86).v2_1:$Default"},
        {"regions": ("us-gov-west-1", "eusc-de-east-1", "ap-southeast-2")},
        {"instance_type": "u7i-12tb.224xlarge"},
        {"instance_type": "c6a.metal"},
        {"endpoint": ""},  # not known before `serve`
    ],
)
def test_what_can_be_launched_is_not(given: dict[str, Any]) -> None:
    ec2.create(pathlib.Path("/nonexistent")).check(order(**given))


@pytest.mark.parametrize(
    "endpoint",
    [
        "http://127.0.0.1:8417", "http://127.1.2.3:8417", "http://localhost:8417",
        "http://LOCALHOST.:8417", "http://x.localhost:8417", "http://[::1]:8417", "http://0.0.0.0:8417",
        "http://[::]:8417", "http://[::ffff:127.0.0.1]:8417", "http://169.254.1.1:8417",
        "ftp://pools.internal", "pools.internal:8417", "",
    ],
)  # fmt: skip
def test_an_endpoint_that_instances_cannot_reach_is_refused(endpoint: str) -> None:
    with pytest.raises(errors.CannotError, match="cannot reach") as caught:
        ec2.check_endpoint(endpoint)
    assert "--endpoint http://" in caught.value.todo
    with pytest.raises(pools.ProviderError) as failed:
        ec2.create(pathlib.Path("/nonexistent")).launch(order(endpoint=endpoint))
    assert (failed.value.reason, failed.value.nothing_made) == ("endpoint_unreachable", True)


@pytest.mark.parametrize(
    "endpoint", ["http://10.0.0.5:8417", "https://pools.example.com", "http://[fd00::1]:8417"]
)
def test_an_endpoint_in_the_network_is_taken(endpoint: str) -> None:
    ec2.check_endpoint(endpoint)


def test_without_boto3_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    real = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "boto3" else real(name)
    )
    provider = ec2.create(pathlib.Path("/nonexistent"))  # which is no reason to fail yet
    for call in (
        lambda: provider.check(order()),
        lambda: provider.inventory("me", [HERE]),
        lambda: provider.terminate(f"{HERE}/i-0123456789abcdef0"),
    ):
        with pytest.raises(errors.CannotError) as caught:
            call()
        assert caught.value.what == "provider ec2 needs boto3, which is not installed"
        assert caught.value.todo == "pip install 'overnight[ec2]'"


@pytest.mark.parametrize(
    "name", ["i-0123456789abcdef0", "m-1", "", "eu-west-1/../x", "/i-01234567"]
)
def test_only_machines_of_ours_are_ended(name: str) -> None:
    with pytest.raises(pools.ProviderError, match="is not a machine id"):
        ec2.create(pathlib.Path("/nonexistent")).terminate(name)


# what is asked for


def asked(lifecycle: str, **given: object) -> dict[str, object]:
    tags = [
        {"Key": "Name", "Value": "ci m-1"},
        {"Key": "overnight:owner", "Value": "overnight-1"},
        {"Key": "overnight:pool", "Value": "ci"},
        {"Key": "overnight:member", "Value": "m-1"},
    ]
    kinds = ["instance", "volume"] + ["spot-instances-request"] * (lifecycle == "spot")
    return {
        "MinCount": 1,
        "MaxCount": 1,
        "ClientToken": "m-1",
        "LaunchTemplate": {"LaunchTemplateName": "runner", "Version": "$Default"},
        "UserData": _boot.script(order()),
        "TagSpecifications": [{"ResourceType": kind, "Tags": tags} for kind in kinds],
        "MetadataOptions": {"HttpTokens": "required", "HttpEndpoint": "enabled"},
        "InstanceInitiatedShutdownBehavior": "terminate",
        **({} if lifecycle == "spot" else {"DisableApiTermination": False}),
        **given,
    }


def test_an_instance_on_demand(played: Played) -> None:
    played.answer_no_instances()
    played.answer_launch(expected=asked("ephemeral"))
    assert played.provider.launch(order()) == pools.Machine(
        id=f"{HERE}/i-0123456789abcdef0", member_id="m-1", address="10.0.0.9", region=HERE
    )


def test_a_spot_instance_of_a_template_with_a_version_and_another_type(played: Played) -> None:
    played.answer_no_instances()
    wanted = asked(
        "spot", InstanceType="c7i.large", InstanceMarketOptions=ec2.SPOT,
        LaunchTemplate={"LaunchTemplateId": "lt-0123456789abcdef0", "Version": "7"},
        UserData=_boot.script(order(template="lt-0123456789abcdef0:7")),
    )  # fmt: skip
    played.answer_launch(expected=wanted)
    played.provider.launch(
        order(
            template="lt-0123456789abcdef0:7", lifecycle_class="spot", instance_type="c7i.large"
        )
    )  # fmt: skip
    assert ec2.SPOT["SpotOptions"]["SpotInstanceType"] == "one-time"


def test_user_data_that_is_too_long_is_not_sent(played: Played) -> None:
    played.answer_no_instances()
    with pytest.raises(pools.ProviderError, match="EC2 allows 16384") as caught:
        played.provider.launch(order(endpoint=f"http://{'n' * 20000}:8417"))
    assert caught.value.nothing_made


def test_an_inventory_has_every_page(played: Played) -> None:
    wanted = {
        "Filters": [{"Name": "tag:overnight:owner", "Values": ["me"]}, *FILTER],
        "MaxResults": ec2.PAGE,
    }

    def page(number: int) -> list[dict[str, Any]]:
        tags = [{"Key": "overnight:member", "Value": f"m-{number}"}]
        return [{"Instances": [{"InstanceId": f"i-0000000{number}", "Tags": tags}]}]

    stub = played.stubs[HERE]
    stub.add_response("describe_instances", {"Reservations": page(1), "NextToken": "more"}, wanted)
    stub.add_response("describe_instances", {"Reservations": page(2)}, {**wanted, "NextToken": "more"})  # fmt: skip
    played.stubs[THERE].add_response("describe_instances", {"Reservations": page(3)}, wanted)
    found = played.provider.inventory("me", [HERE, THERE])
    assert [(m.id, m.member_id) for m in found] == [
        (f"{HERE}/i-00000001", "m-1"), (f"{HERE}/i-00000002", "m-2"), (f"{THERE}/i-00000003", "m-3"),
    ]  # fmt: skip


def test_an_inventory_that_cannot_be_had_is_not_an_empty_one(played: Played) -> None:
    played.answer_no_instances()
    played.answer_error("InternalError", THERE, "describe_instances", status=500)
    with pytest.raises(pools.ProviderError):
        played.provider.inventory("me", [HERE, THERE])


def test_no_room_here_is_asked_for_there(played: Played) -> None:
    played.answer_no_instances(HERE)
    played.answer_no_instances(THERE)
    played.answer_error("InsufficientInstanceCapacity", HERE, status=500)
    played.answer_launch(THERE)
    assert played.provider.launch(order(regions=(HERE, THERE))).region == THERE


def test_no_room_anywhere_says_it_of_each(played: Played) -> None:
    played.answer_no_instances(HERE)
    played.answer_no_instances(THERE)
    played.answer_error("InsufficientInstanceCapacity", HERE, status=500)
    played.answer_error("VcpuLimitExceeded", THERE)
    with pytest.raises(pools.ProviderError, match=f"{HERE}: Insuff.*{THERE}: Vcpu") as caught:
        played.provider.launch(order(regions=(HERE, THERE)))
    assert (caught.value.reason, caught.value.nothing_made) == ("provider_quota_exceeded", True)


def test_what_may_have_been_made_here_is_not_made_there_too(played: Played) -> None:
    played.answer_no_instances(HERE)
    played.answer_no_instances(THERE)
    played.answer_error("InternalError", HERE, status=500)
    with pytest.raises(pools.ProviderError, match="InternalError"):
        played.provider.launch(order(regions=(HERE, THERE)))


def test_a_region_that_is_down_keeps_none_from_another(played: Played) -> None:
    played.answer_no_instances(HERE)
    played.answer_error("InternalError", THERE, "describe_instances", status=500)
    played.answer_launch(HERE)
    assert played.provider.launch(order(regions=(HERE, THERE))).region == HERE
    played.answer_error("InternalError", HERE, "describe_instances", status=500)
    with pytest.raises(pools.ProviderError, match="InternalError"):
        played.provider.launch(order(regions=(HERE, THERE)))


def test_one_that_was_made_there_is_not_made_here(played: Played) -> None:
    """A launch that is made again, when the first region has room meanwhile."""
    played.answer_no_instances(HERE)
    tags = [{"Key": "overnight:member", "Value": "m-1"}]
    there = [{"Instances": [{"InstanceId": "i-00000009", "Tags": tags}]}]
    played.stubs[THERE].add_response("describe_instances", {"Reservations": there})
    made = played.provider.launch(order(regions=(HERE, THERE)))
    assert made.id == f"{THERE}/i-00000009"


# the end


def test_one_that_is_not_there_has_ended(played: Played) -> None:
    played.answer_error("InvalidInstanceID.NotFound", call="terminate_instances")
    played.provider.terminate(f"{HERE}/i-0123456789abcdef0")


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("OperationNotPermitted", "termination_protected"),
        ("UnauthorizedOperation", "provider_access_denied"),
        ("InvalidInstanceID.Malformed", "provider_error"),
    ],
)
def test_one_that_may_not_be_ended_is_told_of(code: str, reason: str, played: Played) -> None:
    played.answer_error(code, call="terminate_instances")
    with pytest.raises(pools.ProviderError) as caught:
        played.provider.terminate(f"{HERE}/i-0123456789abcdef0")
    assert caught.value.reason == reason
    assert f"{HERE}/i-0123456789abcdef0" not in played.provider._ended


def test_a_list_that_is_older_than_an_end_brings_nothing_back(
    played: Played, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [1000.0]
    monkeypatch.setattr(ec2.time, "monotonic", lambda: clock[0])
    stub = played.stubs[HERE]
    name = "i-0123456789abcdef0"
    listed = {"Reservations": [{"Instances": [{"InstanceId": name}]}]}
    stub.add_response("terminate_instances", {}, {"InstanceIds": [name]})
    stub.add_response("describe_instances", listed)
    stub.add_response("describe_instances", listed)
    played.provider.terminate(f"{HERE}/{name}")
    assert played.provider.inventory("me", [HERE]) == []
    clock[0] += ec2.LAG_SECONDS + 1  # it does not end: the sweep has to know
    assert [m.id for m in played.provider.inventory("me", [HERE])] == [f"{HERE}/{name}"]


@pytest.mark.parametrize(
    ("state", "code", "word"),
    [
        ("terminated", "Server.SpotInstanceTermination", "spot_interrupted"),
        ("shutting-down", "Server.SpotInstanceTermination", "spot_interrupted"),
        ("terminated", "Client.UserInitiatedShutdown", "terminated_elsewhere"),
        ("terminated", "Client.InstanceInitiatedShutdown", "shut_down_from_inside"),
        ("terminated", "Client.VolumeLimitExceeded", "provider_quota_exceeded"),
        ("terminated", "Server.InsufficientInstanceCapacity", "provider_capacity_exhausted"),
        ("terminated", "Server.SomethingNew", None),
        ("running", "", None),
    ],
)
def test_why_one_is_gone(state: str, code: str, word: str | None, played: Played) -> None:
    one = {"InstanceId": "i-01234567", "State": {"Name": state}, "StateReason": {"Code": code}}
    played.stubs[HERE].add_response("describe_instances", {"Reservations": [{"Instances": [one]}]})
    assert played.provider.why_gone(f"{HERE}/i-01234567") == word


def test_nobody_knows_any_more_why_it_is_gone(played: Played) -> None:
    played.answer_error("InvalidInstanceID.NotFound", call="describe_instances")
    played.stubs[HERE].add_response("describe_instances", {"Reservations": []})
    assert played.provider.why_gone(f"{HERE}/i-01234567") is None
    assert played.provider.why_gone(f"{HERE}/i-01234567") is None
