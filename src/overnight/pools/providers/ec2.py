"""Members as EC2 instances of a launch template, on demand or spot.

Each instance and its volumes carry the tags overnight:owner, overnight:pool and overnight:member. The id of
a machine is REGION/INSTANCE. Account, credentials and proxies are found as by every AWS tool.
"""

from __future__ import annotations

import dataclasses
import ipaddress
import pathlib
import re
import threading
import time
import urllib.parse
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from overnight import aws, errors, pools
from overnight.model.pool import Reason
from overnight.pools import pool_errors
from overnight.pools.providers import _boot, _ec2_errors

NAME = "ec2"
OWNER, POOL, MEMBER = "overnight:owner", "overnight:pool", "overnight:member"
# An instance that is shutting down costs nothing and does not come back: it is gone.
LIVE = ("pending", "running", "stopping", "stopped")
LAG_SECONDS = 60.0  # eventual consistency: AWS promises no number, seconds are usual
PAGE = 500
MAX_USER_DATA = 16384
TEMPLATE = re.compile(r"(?:(lt-[0-9a-f]{8,32})|([\w()./-]{3,128}))(?::(\d{1,9}|\$Latest|\$Default))?", re.ASCII)  # fmt: skip
INSTANCE_TYPE = re.compile(r"[a-z][a-z0-9-]*\.[a-z0-9-]+")
MACHINE = re.compile(rf"({aws.REGION.pattern})/(i-[0-9a-f]{{8,32}})")
SPOT = {
    "MarketType": "spot",
    # A persistent request would launch another instance that nobody knows of.
    "SpotOptions": {"SpotInstanceType": "one-time", "InstanceInterruptionBehavior": "terminate"},
}


def create(home: pathlib.Path) -> Instances:  # noqa: ARG001  nothing is kept on this host
    """Return the provider; boto3 is imported only when a pool needs it."""
    return Instances()


class Instances(pools.Cloud):
    """Instances of the account whose credentials this host has."""

    name = NAME
    inventory_lag_seconds = LAG_SECONDS

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._aws = aws.Clients("overnight-pools")
        self._ended: dict[str, float] = {}

    def check(self, order: pools.Order) -> None:
        """Refuse what could never be launched, without calling AWS."""
        aws.require_boto3(NAME)
        if not TEMPLATE.fullmatch(order.template):
            wanted = "a launch template: name or id, with :VERSION if not the default"
            raise pool_errors.BadKnobError("template", order.template, wanted)
        if not order.regions:
            # Not from the environment: it may differ between the hosts that run a reaper.
            raise pool_errors.BadKnobError("region", "", "given for ec2, such as eu-west-1")
        for region in order.regions:
            if not aws.REGION.fullmatch(region):
                raise pool_errors.BadKnobError("region", region, "a region code such as eu-west-1")
        if order.instance_type and not INSTANCE_TYPE.fullmatch(order.instance_type):
            raise pool_errors.BadKnobError(
                "instance_type", order.instance_type, "an instance type such as m7i.large"
            )
        if len(order.pool) > aws.MAX_TAG - 20:
            raise pool_errors.BadKnobError(
                "name", order.pool, f"at most {aws.MAX_TAG - 20} characters long"
            )
        if order.endpoint:
            check_endpoint(order.endpoint)

    def launch(self, order: pools.Order) -> pools.Machine:
        """Launch an instance in the first region with capacity; the same member always gets the same one."""
        try:
            self.check(order)
            check_endpoint(order.endpoint)
        except errors.OvernightError as error:
            unreachable = isinstance(error, UnreachableEndpointError)
            reason = Reason.ENDPOINT_UNREACHABLE if unreachable else Reason.ORDER_REFUSED
            raise pools.ProviderError(
                reason, error.what, todo=error.todo, nothing_made=True
            ) from error
        if (existing := self._find_existing(order)) is not None:
            return existing
        failures: list[pools.ProviderError] = []
        for region in order.regions:
            try:
                return self._run(region, order)
            except pools.ProviderError as error:
                failures.append(error)
                if error.reason not in aws.REGION_FULL or not error.nothing_made:
                    raise
        message = "; ".join(failure.message for failure in failures)
        last = failures[-1]
        raise pools.ProviderError(last.reason, message, todo=last.todo, nothing_made=True)

    def _find_existing(self, order: pools.Order) -> pools.Machine | None:
        """Return the member's instance: ClientToken prevents duplicates only within one region."""
        wanted = {f"tag:{MEMBER}": [order.member_id], f"tag:{OWNER}": [order.owner]}
        for region in order.regions:
            try:
                machines = self._list_live(region, wanted)
            except pools.ProviderError:
                if region == order.regions[0]:
                    raise
                continue  # a region that is down must not block the others; the sweep ends a duplicate
            if machines:
                return machines[0]
        return None

    def _run(self, region: str, order: pools.Order) -> pools.Machine:
        answer = self._call(region, "run_instances", **_build_request(order))
        return dataclasses.replace(
            _machine(region, answer["Instances"][0]), member_id=order.member_id
        )

    def terminate(self, machine_id: str) -> None:
        """Terminate an instance; one that EC2 does not know has ended."""
        region, instance = _parts(machine_id)
        try:
            self._call(region, "terminate_instances", InstanceIds=[instance])
        except pools.ProviderError as error:
            # For a moment EC2 does not know a new instance either: the sweep finds that one by its tag.
            if error.code != _ec2_errors.INSTANCE_NOT_FOUND:
                raise
        with self._lock:
            self._ended[machine_id] = time.monotonic()

    def inventory(self, owner: str, regions: Sequence[str] = ()) -> Sequence[pools.Machine]:
        """List the owner's instances in these regions: all that its pools have ever named."""
        machines = []
        for region in regions:
            machines += self._list_live(region, {f"tag:{OWNER}": [owner]})
        with self._lock:
            late = time.monotonic() - LAG_SECONDS
            self._ended = {name: at for name, at in self._ended.items() if at > late}
            # The list may be older than an accepted request to terminate.
            return [machine for machine in machines if machine.id not in self._ended]

    def why_gone(self, machine_id: str) -> Reason | None:
        """Return why an instance has ended; None if EC2 does not say."""
        region, instance = _parts(machine_id)
        try:
            answer = self._call(region, "describe_instances", InstanceIds=[instance])
        except pools.ProviderError:
            return None  # EC2 forgets an instance after about an hour
        for described in _instances(answer):
            return _ec2_errors.why_gone(described)
        return None

    def console(self, machine_id: str) -> str:
        """Return the end of the serial console, which EC2 has a minute or more after it was written."""
        region, instance = _parts(machine_id)
        answer = self._call(region, "get_console_output", InstanceId=instance)
        return str(answer.get("Output", ""))

    def _list_live(self, region: str, filters: Mapping[str, list[str]]) -> list[pools.Machine]:
        """List the live instances that match, page by page."""
        wanted = {**filters, "instance-state-name": list(LIVE)}
        query = [{"Name": name, "Values": values} for name, values in wanted.items()]
        machines: list[pools.Machine] = []
        more: dict[str, str] = {}
        while True:
            answer = self._call(
                region, "describe_instances", Filters=query, MaxResults=PAGE, **more
            )
            machines += [_machine(region, instance) for instance in _instances(answer)]
            if not answer.get("NextToken"):
                return machines
            more = {"NextToken": answer["NextToken"]}

    def _call(self, region: str, name: str, **parameters: object) -> Any:
        """Call EC2; every failure becomes a ProviderError."""
        aws.require_boto3(NAME)
        try:
            return getattr(self._aws.get("ec2", region), name)(**parameters)
        except Exception as error:  # an HTML page of a proxy is not a botocore error
            raise _ec2_errors.translate(error, region) from error


class UnreachableEndpointError(errors.CannotError):
    """No other machine can reach this endpoint."""


def check_endpoint(endpoint: str) -> None:
    """Raise for an address that only this host can reach, such as 127.0.0.1."""
    where = urllib.parse.urlsplit(endpoint)
    host = (where.hostname or "").rstrip(".")
    bad = where.scheme not in ("http", "https") or not host or f".{host}".endswith(".localhost")
    try:
        address = ipaddress.ip_address(host)
        mapped = getattr(address, "ipv4_mapped", None) or address
        bad = bad or mapped.is_loopback or mapped.is_unspecified or mapped.is_link_local
    except ValueError:
        pass  # a name: the instance has to resolve it, not this host
    if bad:
        raise UnreachableEndpointError(
            f"members on EC2 cannot reach {endpoint or 'the control plane'}",
            why="members report over the network, and this address is local to this host"
            if endpoint
            else "no reaper has ever served from this database",
            todo="run a TLS proxy on this host, and: "
            "`overnight pool serve --listen 127.0.0.1:8417 --endpoint https://NAME-OF-THIS-HOST`",
        )


def _build_request(order: pools.Order) -> dict[str, object]:
    """Return the parameters of RunInstances."""
    data = _boot.script(order)
    if len(data.encode()) > MAX_USER_DATA:
        raise pools.ProviderError(
            Reason.ORDER_REFUSED,
            f"user data has {len(data.encode())} bytes, EC2 allows {MAX_USER_DATA}",
            todo="use a shorter endpoint", nothing_made=True,
        )  # fmt: skip
    identity, name, version = TEMPLATE.fullmatch(order.template).groups()  # type: ignore[union-attr]  # checked before
    template = {"LaunchTemplateId": identity} if identity else {"LaunchTemplateName": name}
    spot = order.lifecycle_class == "spot"
    tags = {
        "Name": f"{order.pool} {order.member_id}",
        OWNER: order.owner,
        POOL: order.pool,
        MEMBER: order.member_id,
    }
    tag_list = [{"Key": key, "Value": value} for key, value in tags.items()]
    kinds = ("instance", "volume", *(["spot-instances-request"] if spot else []))
    request: dict[str, object] = {
        "MinCount": 1,
        "MaxCount": 1,
        "ClientToken": order.member_id,
        "LaunchTemplate": {**template, "Version": version or "$Default"},
        "UserData": data,
        "TagSpecifications": [{"ResourceType": kind, "Tags": tag_list} for kind in kinds],
        "MetadataOptions": {"HttpTokens": "required", "HttpEndpoint": "enabled"},
        # An instance that shuts itself down is terminated, not kept stopped and paid for.
        "InstanceInitiatedShutdownBehavior": "terminate",
    }
    if order.instance_type:
        request["InstanceType"] = order.instance_type
    if spot:
        request["InstanceMarketOptions"] = SPOT
    else:
        request["DisableApiTermination"] = False  # whatever the template says; not allowed for spot
    return request


def _instances(answer: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    for reservation in answer.get("Reservations", ()):
        yield from reservation["Instances"]


def _machine(region: str, instance: Mapping[str, Any]) -> pools.Machine:
    tags = {tag["Key"]: tag["Value"] for tag in instance.get("Tags", ())}
    return pools.Machine(
        id=f"{region}/{instance['InstanceId']}",
        member_id=tags.get(MEMBER, ""),
        address=instance.get("PrivateIpAddress", ""),
        region=region,
    )


def _parts(machine_id: str) -> tuple[str, str]:
    """Split a machine id into region and instance."""
    match = MACHINE.fullmatch(machine_id)
    if match is None:
        raise pools.ProviderError(Reason.ERROR, f"{machine_id!r} is not a machine id")
    return match[1], match[3]
