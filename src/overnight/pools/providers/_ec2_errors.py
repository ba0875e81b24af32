"""EC2 errors as ProviderError: the reason, what to do, and whether a machine may exist."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from overnight import aws, pools
from overnight.model.pool import Reason

QUOTA, CAPACITY = Reason.QUOTA, Reason.CAPACITY
DENIED, THROTTLED = Reason.DENIED, Reason.THROTTLED
TEMPLATE, PROTECTED = Reason.TEMPLATE_INVALID, Reason.TERMINATION_PROTECTED
UNREACHABLE = Reason.UNREACHABLE

INSTANCE_NOT_FOUND = "InvalidInstanceID.NotFound"

TODO = {
    QUOTA: "raise the limit under Service Quotas of that region, add another with --prefer-region, "
    "or choose a smaller --instance-type",
    CAPACITY: "AWS has no capacity of that type there now: add regions with --prefer-region, or choose another "
    "--instance-type",
    DENIED: "run `aws sts get-caller-identity` and compare its rights with the policy in docs/pools.md",
    THROTTLED: "it is retried later; launch fewer at a time: --set launch_parallel=2",
    TEMPLATE: "run `aws ec2 describe-launch-template-versions`; docs/pools.md lists what a template needs",
    PROTECTED: "`aws ec2 modify-instance-attribute --no-disable-api-termination --instance-id ID`",
    UNREACHABLE: "check that this host reaches ec2.REGION.amazonaws.com: region, proxy, VPC endpoint",
}

# StateReason.Code of an instance that has ended.
GONE: dict[str, Reason] = {
    "Server.SpotInstanceTermination": Reason.SPOT_INTERRUPTED,
    "Server.SpotInstanceShutdown": Reason.SPOT_INTERRUPTED,
    "Client.UserInitiatedShutdown": Reason.TERMINATED_ELSEWHERE,
    "Client.InstanceInitiatedShutdown": Reason.SHUT_DOWN_FROM_INSIDE,
    "Client.VolumeLimitExceeded": QUOTA,
    "Client.InvalidSnapshot.NotFound": TEMPLATE,
    "Client.InternalError": Reason.LAUNCH_FAILED_CLIENT,  # usually: no permission for the key of a volume
    "Server.InsufficientInstanceCapacity": CAPACITY,
    "Server.InternalError": Reason.ERROR,
    "Server.ScheduledStop": Reason.MAINTENANCE,
}


def translate(error: Exception, region: str) -> pools.ProviderError:
    """Return the ProviderError for what botocore raised."""
    failure = aws.explain(error, region)
    return pools.ProviderError(
        failure.reason,
        failure.message,
        todo=aws.ADD_CREDENTIALS if failure.unsigned else TODO.get(failure.reason, ""),
        code=failure.code,
        nothing_made=failure.certain,
    )


def why_gone(instance: Mapping[str, Any]) -> Reason | None:
    """Return why an instance has ended; None if it has not, or EC2 does not say."""
    if instance.get("State", {}).get("Name") not in ("shutting-down", "terminated"):
        return None
    return GONE.get(instance.get("StateReason", {}).get("Code", ""))
