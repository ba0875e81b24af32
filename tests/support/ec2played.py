"""EC2 answers from botocore's Stubber, for answers that moto cannot give."""

from __future__ import annotations

import pathlib
from typing import Any

import boto3.session
import botocore.stub

from overnight import pools
from overnight.pools.providers import ec2

HERE, THERE = "eu-west-1", "eu-central-1"
NOWHERE = {
    "AWS_ENDPOINT_URL": "http://127.0.0.1:9",
    "AWS_ACCESS_KEY_ID": "testing",
    "AWS_SECRET_ACCESS_KEY": "testing",
    "AWS_CONFIG_FILE": "/dev/null",
    "AWS_SHARED_CREDENTIALS_FILE": "/dev/null",
    "AWS_EC2_METADATA_DISABLED": "true",
}


def order(**fields: Any) -> pools.Order:
    plain = {
        "owner": "overnight-1", "member_id": "m-1", "pool": "ci", "template": "runner",
        "regions": (HERE,), "endpoint": "http://pools.internal:8417", "token": "5" * 64,
    }  # fmt: skip
    return pools.Order(**{**plain, **fields})


class Played:
    """The provider with stubbed clients; they give the prepared answers in order."""

    def __init__(self) -> None:
        self.provider = ec2.create(pathlib.Path("/nonexistent"))
        self.stubs = {}
        for region in (HERE, THERE):
            client = boto3.session.Session().client("ec2", region_name=region)
            self.provider._aws.clients["ec2", region] = client
            self.stubs[region] = botocore.stub.Stubber(client)
            self.stubs[region].activate()

    def answer_no_instances(self, region: str = HERE) -> None:
        self.stubs[region].add_response("describe_instances", {"Reservations": []})

    def answer_error(
        self, code: str, region: str = HERE, call: str = "run_instances", **meta: int
    ) -> None:
        status = meta.pop("status", 400)
        self.stubs[region].add_client_error(
            call, code, f"because {code}", status, response_meta={"RetryAttempts": 0, **meta}
        )

    def answer_launch(self, region: str = HERE, expected: dict[str, object] | None = None) -> None:
        instance = {"InstanceId": "i-0123456789abcdef0", "PrivateIpAddress": "10.0.0.9"}
        self.stubs[region].add_response("run_instances", {"Instances": [instance]}, expected)

    def check_all_used(self) -> None:
        for stub in self.stubs.values():
            stub.assert_no_pending_responses()
