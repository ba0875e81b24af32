"""Members that are EC2 instances, made from a launch template; on demand, or spot.

Each carries the tags overnight:owner, overnight:pool and overnight:member, on its volumes too. The name of
a machine is REGION/INSTANCE. Account, credentials and proxies are as every AWS tool finds them.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import ipaddress
import pathlib
import re
import threading
import time
import urllib.parse
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from overnight import errors, pools
from overnight.pools import pool_errors
from overnight.pools.providers import _boot, _ec2_errors

__all__ = ["NAME", "Instances", "check_endpoint", "create"]

NAME = "ec2"
OWNER, POOL, MEMBER = "overnight:owner", "overnight:pool", "overnight:member"
# One that is shutting down costs nothing any more and does not come back: it is gone.
LIVE = ("pending", "running", "stopping", "stopped")
LAG_SECONDS = 60.0  # "eventually consistent": AWS promises no number, and seconds are usual
CONNECT_SECONDS, READ_SECONDS, ATTEMPTS = 5, 20, 4  # together within provider_timeout_seconds
PAGE = 500
MOST_USER_DATA = 16384
MOST_TAG = 256
TEMPLATE = re.compile(r"(?:(lt-[0-9a-f]{8,32})|([\w()./-]{3,128}))(?::(\d{1,9}|\$Latest|\$Default))?", re.ASCII)  # fmt: skip
REGION = re.compile(r"[a-z]{2,8}(-[a-z]+)+-\d{1,2}")
INSTANCE_TYPE = re.compile(r"[a-z][a-z0-9-]*\.[a-z0-9-]+")
MACHINE = re.compile(rf"({REGION.pattern})/(i-[0-9a-f]{{8,32}})")
SPOT = {
    "MarketType": "spot",
    # A persistent request would make an instance again that nobody knows of.
    "SpotOptions": {"SpotInstanceType": "one-time", "InstanceInterruptionBehavior": "terminate"},
}


def create(home: pathlib.Path) -> Instances:  # noqa: ARG001  nothing is kept on this host
    """The provider; boto3 is not looked for before a pool needs it."""
    return Instances()


class Instances:
    """Machines are instances of the account whose credentials this host has."""

    name = NAME
    inventory_lag_seconds = LAG_SECONDS

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._session: Any = None
        self._clients: dict[str, Any] = {}
        self._ended: dict[str, float] = {}

    def check(self, order: pools.Order) -> None:
        """Refuse at the door what could never be launched; AWS is not asked."""
        _require_boto3()
        if not TEMPLATE.fullmatch(order.template):
            wanted = "a launch template: its name or id, and :VERSION if not the default one"
            raise pool_errors.BadKnobError("template", order.template, wanted)
        if not order.regions:
            # Not from the environment: every host that keeps the pool would have its own.
            raise pool_errors.BadKnobError("region", "", "always needed by ec2, as eu-west-1")
        for region in order.regions:
            if not REGION.fullmatch(region):
                raise pool_errors.BadKnobError(
                    "region", region, "the code of a region, as eu-west-1"
                )
        if order.instance_type and not INSTANCE_TYPE.fullmatch(order.instance_type):
            raise pool_errors.BadKnobError("instance_type", order.instance_type, "like m7i.large")
        if len(order.pool) > MOST_TAG - 20:
            raise pool_errors.BadKnobError(
                "name", order.pool, f"shorter than {MOST_TAG - 20} letters"
            )
        if order.endpoint:
            check_endpoint(order.endpoint)

    def launch(self, order: pools.Order) -> pools.Machine:
        """Run one instance, in the first region that has room; the same member twice is the same one."""
        try:
            self.check(order)
            check_endpoint(order.endpoint)
        except errors.OvernightError as error:
            reason = "endpoint_unreachable" if isinstance(error, Unreachable) else "order_refused"
            raise pools.ProviderError(
                reason, error.what, todo=error.todo, nothing_made=True
            ) from error
        if (known := self._known(order)) is not None:
            return known
        full: list[pools.ProviderError] = []
        for region in order.regions:
            try:
                return self._run(region, order)
            except pools.ProviderError as error:
                full.append(error)
                if error.reason not in _ec2_errors.ELSEWHERE or not error.nothing_made:
                    raise
        said = "; ".join(one.what.partition("failed: ")[2] for one in full)
        last = full[-1]
        raise pools.ProviderError(last.reason, said, todo=last.todo, nothing_made=True)

    def _known(self, order: pools.Order) -> pools.Machine | None:
        """The instance that the member has: ClientToken makes launches one in a region, not in several."""
        wanted = {f"tag:{MEMBER}": [order.member_id], f"tag:{OWNER}": [order.owner]}
        for region in order.regions:
            try:
                found = self._described(region, wanted)
            except pools.ProviderError:
                if region == order.regions[0]:
                    raise
                continue  # a region that is down keeps none from the others; the sweep ends a second one
            if found:
                return found[0]
        return None

    def _run(self, region: str, order: pools.Order) -> pools.Machine:
        answer = self._call(region, "run_instances", **_asked(order))
        return dataclasses.replace(
            _machine(region, answer["Instances"][0]), member_id=order.member_id
        )

    def terminate(self, machine_id: str) -> None:
        """End an instance; one that is not there has ended."""
        region, instance = _parts(machine_id)
        try:
            self._call(region, "terminate_instances", InstanceIds=[instance])
        except pools.ProviderError as error:
            # So it is too, for a moment, with one that was made just now: that one has its tag, and the
            # sweep finds it.
            if _ec2_errors.NOT_THERE not in error.what:
                raise
        with self._lock:
            self._ended[machine_id] = time.monotonic()

    def inventory(self, owner: str, regions: Sequence[str] = ()) -> Sequence[pools.Machine]:
        """Every instance of the owner in these regions: in all that its pools ever named."""
        found = []
        for region in regions:
            found += self._described(region, {f"tag:{OWNER}": [owner]})
        with self._lock:
            late = time.monotonic() - LAG_SECONDS
            self._ended = {name: at for name, at in self._ended.items() if at > late}
            # A list may be older than the order to end one, which was taken.
            return [machine for machine in found if machine.id not in self._ended]

    def why_gone(self, machine_id: str) -> str:
        """What EC2 says why an instance ended: `spot_interrupted`. '' when it does not say."""
        region, instance = _parts(machine_id)
        try:
            answer = self._call(region, "describe_instances", InstanceIds=[instance])
        except pools.ProviderError:
            return ""  # an hour later nobody knows it any more
        for one in _instances(answer):
            return _ec2_errors.why_gone(one)
        return ""

    def _described(self, region: str, filters: Mapping[str, list[str]]) -> list[pools.Machine]:
        """Live instances, page after page."""
        wanted = {**filters, "instance-state-name": list(LIVE)}
        listed = [{"Name": name, "Values": values} for name, values in wanted.items()]
        found: list[pools.Machine] = []
        more: dict[str, str] = {}
        while True:
            answer = self._call(
                region, "describe_instances", Filters=listed, MaxResults=PAGE, **more
            )
            found += [_machine(region, one) for one in _instances(answer)]
            if not answer.get("NextToken"):
                return found
            more = {"NextToken": answer["NextToken"]}

    def _call(self, region: str, name: str, **asked: object) -> Any:
        """One call; whatever comes of it is a ProviderError."""
        _require_boto3()
        try:
            return getattr(self._client(region), name)(**asked)
        except Exception as error:  # a proxy's page in HTML is no error of botocore's own tree
            raise _ec2_errors.told(error, region) from error

    def _client(self, region: str) -> Any:
        """The client of a region. Clients may be shared by threads; making them may not."""
        import boto3.session
        import botocore.config

        with self._lock:
            if self._session is None:
                self._session = boto3.session.Session()
            if region not in self._clients:
                config = botocore.config.Config(
                    connect_timeout=CONNECT_SECONDS,
                    read_timeout=READ_SECONDS,
                    # Throttled calls and lost connections are tried again, later each time.
                    retries={"mode": "standard", "total_max_attempts": ATTEMPTS},
                    max_pool_connections=64,
                    user_agent_extra="overnight-pools",
                )
                self._clients[region] = self._session.client(
                    "ec2", region_name=region, config=config
                )
            return self._clients[region]


class Unreachable(errors.CannotError):
    """An endpoint that no other machine can reach."""


def check_endpoint(endpoint: str) -> None:
    """Raises for an address that means another machine there than here."""
    where = urllib.parse.urlsplit(endpoint)
    host = (where.hostname or "").rstrip(".")
    bad = where.scheme not in ("http", "https") or not host
    if host == "localhost" or host.endswith(".localhost"):
        bad = True
    try:
        address = ipaddress.ip_address(host)
        mapped = getattr(address, "ipv4_mapped", None) or address
        bad = bad or mapped.is_loopback or mapped.is_unspecified or mapped.is_link_local
    except ValueError:
        pass  # a name: the instance has to find it, not we
    if bad:
        raise Unreachable(
            f"members on EC2 cannot reach {endpoint or 'the control plane'}",
            why="they say that they are ready over the network, and that address is this host's own"
            if endpoint
            else "no reaper has served from this database",
            todo="overnight pool serve --listen 0.0.0.0:8417 --endpoint http://NAME-OF-THIS-HOST:8417",
        )


def _require_boto3() -> None:
    if importlib.util.find_spec("boto3") is None:
        raise errors.CannotError(
            "the provider ec2 needs boto3",
            why="it is not installed: only pools on EC2 use it",
            todo="pip install 'overnight[ec2]'",
        )


def _asked(order: pools.Order) -> dict[str, object]:
    """What RunInstances is asked for."""
    data = _boot.script(order)
    if len(data.encode()) > MOST_USER_DATA:
        raise pools.ProviderError(
            "order_refused", f"its user data has {len(data.encode())} bytes, more than EC2 takes",
            todo="give the endpoint a shorter name", nothing_made=True,
        )  # fmt: skip
    identity, name, version = TEMPLATE.fullmatch(order.template).groups()  # type: ignore[union-attr]  # checked
    template = {"LaunchTemplateId": identity} if identity else {"LaunchTemplateName": name}
    spot = order.lifecycle_class == "spot"
    tags = {
        "Name": f"{order.pool} {order.member_id}",
        OWNER: order.owner,
        POOL: order.pool,
        MEMBER: order.member_id,
    }
    listed = [{"Key": key, "Value": value} for key, value in tags.items()]
    kinds = ("instance", "volume", *(["spot-instances-request"] if spot else []))
    asked: dict[str, object] = {
        "MinCount": 1,
        "MaxCount": 1,
        "ClientToken": order.member_id,
        "LaunchTemplate": {**template, "Version": version or "$Default"},
        "UserData": data,
        "TagSpecifications": [{"ResourceType": kind, "Tags": listed} for kind in kinds],
        "MetadataOptions": {"HttpTokens": "required", "HttpEndpoint": "enabled"},
        # A member that shuts itself down is not kept, and not paid for, as a stopped one.
        "InstanceInitiatedShutdownBehavior": "terminate",
    }
    if order.instance_type:
        asked["InstanceType"] = order.instance_type
    if spot:
        asked["InstanceMarketOptions"] = SPOT
    else:
        asked["DisableApiTermination"] = (
            False  # whatever the template says; spot knows no such thing
        )
    return asked


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
    """Region and instance."""
    found = MACHINE.fullmatch(machine_id)
    if found is None:
        raise pools.ProviderError("provider_error", f"{machine_id!r} is no machine of ours")
    return found[1], found[3]
