"""EC2 without AWS: refused orders, the requests sent, and the errors of AWS.

botocore's Stubber gives the answers that moto cannot; tests/integration/pools/test_ec2.py has the rest.
"""

from __future__ import annotations

import importlib.util
import pathlib
from typing import TYPE_CHECKING, Any

import pytest
from ec2played import HERE, THERE, order

from overnight import errors, pools
from overnight.model.pool import Reason
from overnight.pools import pool_errors
from overnight.pools.providers import _boot, ec2

if TYPE_CHECKING:
    from ec2played import Played

pytestmark = pytest.mark.usefixtures("no_aws")
FILTER = [{"Name": "instance-state-name", "Values": list(ec2.LIVE)}]


# checks before a launch


@pytest.mark.parametrize(
    ("changes", "knob"),
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
def test_an_order_that_can_never_be_launched_is_refused(changes: dict[str, Any], knob: str) -> None:
    provider = ec2.create(pathlib.Path("/nonexistent"))
    with pytest.raises(pool_errors.BadKnobError) as caught:
        provider.check(order(**changes))
    assert caught.value.knob == knob
    with pytest.raises(pools.ProviderError) as failed:
        provider.launch(order(**changes))
    assert (failed.value.reason, failed.value.nothing_made) == ("order_refused", True)


@pytest.mark.parametrize(
    "changes",
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
def test_a_valid_order_is_accepted(changes: dict[str, Any]) -> None:
    ec2.create(pathlib.Path("/nonexistent")).check(order(**changes))


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
    assert "--endpoint https://" in caught.value.todo
    with pytest.raises(pools.ProviderError) as failed:
        ec2.create(pathlib.Path("/nonexistent")).launch(order(endpoint=endpoint))
    assert (failed.value.reason, failed.value.nothing_made) == ("endpoint_unreachable", True)


@pytest.mark.parametrize(
    "endpoint", ["http://10.0.0.5:8417", "https://pools.example.com", "http://[fd00::1]:8417"]
)
def test_an_endpoint_in_the_network_is_accepted(endpoint: str) -> None:
    ec2.check_endpoint(endpoint)


def test_without_boto3_the_error_names_the_package_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "boto3" else real(name)
    )
    provider = ec2.create(pathlib.Path("/nonexistent"))  # does not need boto3 yet
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
def test_only_our_machine_ids_are_terminated(name: str) -> None:
    with pytest.raises(pools.ProviderError, match="is not a machine id"):
        ec2.create(pathlib.Path("/nonexistent")).terminate(name)


# requests to AWS


def expected_request(lifecycle: str, **changes: object) -> dict[str, object]:
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
        **changes,
    }


def test_an_instance_on_demand(played: Played) -> None:
    played.answer_no_instances()
    played.answer_launch(expected=expected_request("ephemeral"))
    assert played.provider.launch(order()) == pools.Machine(
        id=f"{HERE}/i-0123456789abcdef0", member_id="m-1", address="10.0.0.9", region=HERE
    )


def test_a_spot_instance_of_a_template_with_a_version_and_another_type(played: Played) -> None:
    played.answer_no_instances()
    wanted = expected_request(
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
    machines = played.provider.inventory("me", [HERE, THERE])
    assert [(m.id, m.member_id) for m in machines] == [
        (f"{HERE}/i-00000001", "m-1"), (f"{HERE}/i-00000002", "m-2"), (f"{THERE}/i-00000003", "m-3"),
    ]  # fmt: skip


def test_an_inventory_that_fails_is_not_an_empty_one(played: Played) -> None:
    played.answer_no_instances()
    played.answer_error("InternalError", THERE, "describe_instances", status=500)
    with pytest.raises(pools.ProviderError):
        played.provider.inventory("me", [HERE, THERE])


def test_without_capacity_the_next_region_is_tried(played: Played) -> None:
    played.answer_no_instances(HERE)
    played.answer_no_instances(THERE)
    played.answer_error("InsufficientInstanceCapacity", HERE, status=500)
    played.answer_launch(THERE)
    assert played.provider.launch(order(regions=(HERE, THERE))).region == THERE


def test_without_capacity_anywhere_the_error_names_each_region(played: Played) -> None:
    played.answer_no_instances(HERE)
    played.answer_no_instances(THERE)
    played.answer_error("InsufficientInstanceCapacity", HERE, status=500)
    played.answer_error("VcpuLimitExceeded", THERE)
    with pytest.raises(pools.ProviderError, match=f"{HERE}: Insuff.*{THERE}: Vcpu") as caught:
        played.provider.launch(order(regions=(HERE, THERE)))
    assert (caught.value.reason, caught.value.nothing_made) == ("provider_quota_exceeded", True)


def test_after_an_uncertain_error_no_other_region_is_tried(played: Played) -> None:
    played.answer_no_instances(HERE)
    played.answer_no_instances(THERE)
    played.answer_error("InternalError", HERE, status=500)
    with pytest.raises(pools.ProviderError, match="InternalError"):
        played.provider.launch(order(regions=(HERE, THERE)))


def test_a_region_that_is_down_does_not_stop_another(played: Played) -> None:
    played.answer_no_instances(HERE)
    played.answer_error("InternalError", THERE, "describe_instances", status=500)
    played.answer_launch(HERE)
    assert played.provider.launch(order(regions=(HERE, THERE))).region == HERE
    played.answer_error("InternalError", HERE, "describe_instances", status=500)
    with pytest.raises(pools.ProviderError, match="InternalError"):
        played.provider.launch(order(regions=(HERE, THERE)))


def test_an_instance_in_the_second_region_is_not_launched_again(played: Played) -> None:
    """The launch is retried, and the first region has capacity by then."""
    played.answer_no_instances(HERE)
    tags = [{"Key": "overnight:member", "Value": "m-1"}]
    reservations = [{"Instances": [{"InstanceId": "i-00000009", "Tags": tags}]}]
    played.stubs[THERE].add_response("describe_instances", {"Reservations": reservations})
    machine = played.provider.launch(order(regions=(HERE, THERE)))
    assert machine.id == f"{THERE}/i-00000009"


# termination


def test_terminating_a_missing_instance_succeeds(played: Played) -> None:
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
def test_a_refused_termination_is_an_error(code: str, reason: str, played: Played) -> None:
    played.answer_error(code, call="terminate_instances")
    with pytest.raises(pools.ProviderError) as caught:
        played.provider.terminate(f"{HERE}/i-0123456789abcdef0")
    assert caught.value.reason == reason
    assert f"{HERE}/i-0123456789abcdef0" not in played.provider._ended


def test_a_list_older_than_the_termination_brings_no_instance_back(
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
    clock[0] += ec2.LAG_SECONDS + 1  # it is still running: the sweep must see it
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
def test_why_an_instance_is_gone(state: str, code: str, word: str | None, played: Played) -> None:
    instance = {"InstanceId": "i-01234567", "State": {"Name": state}, "StateReason": {"Code": code}}
    played.stubs[HERE].add_response(
        "describe_instances", {"Reservations": [{"Instances": [instance]}]}
    )
    assert played.provider.why_gone(f"{HERE}/i-01234567") == word


def test_the_console_is_that_of_the_instance(played: Played) -> None:
    name = "i-0123456789abcdef0"
    stub = played.stubs[HERE]
    stub.add_response("get_console_output", {"Output": "Kernel panic"}, {"InstanceId": name})
    stub.add_response("get_console_output", {"InstanceId": name})  # nothing was written yet
    assert played.provider.console(f"{HERE}/{name}") == "Kernel panic"
    assert played.provider.console(f"{HERE}/{name}") == ""
    played.answer_error("UnauthorizedOperation", call="get_console_output")
    with pytest.raises(pools.ProviderError) as refused:
        played.provider.console(f"{HERE}/{name}")
    assert refused.value.reason is Reason.DENIED


def test_the_reason_is_unknown_once_ec2_has_forgotten_the_instance(played: Played) -> None:
    played.answer_error("InvalidInstanceID.NotFound", call="describe_instances")
    played.stubs[HERE].add_response("describe_instances", {"Reservations": []})
    assert played.provider.why_gone(f"{HERE}/i-01234567") is None
    assert played.provider.why_gone(f"{HERE}/i-01234567") is None
