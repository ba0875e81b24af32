"""What EC2 says no with, in the words of pools: one reason, what to do, and whether a machine may be there."""

from __future__ import annotations

import re
from collections.abc import Mapping

from overnight import pools

__all__ = ["ELSEWHERE", "NOT_THERE", "told", "why_gone"]

QUOTA = "provider_quota_exceeded"
CAPACITY = "provider_capacity_exhausted"
DENIED = "provider_access_denied"
THROTTLED = "provider_throttled"
TEMPLATE = "template_invalid"
PROTECTED = "termination_protected"
UNREACHABLE = "provider_unreachable"

ELSEWHERE = (QUOTA, CAPACITY)  # both are a region's own: the next one may have room
NOT_THERE = "InvalidInstanceID.NotFound"

# https://docs.aws.amazon.com/AWSEC2/latest/APIReference/errors-overview.html; the first that fits counts.
REASONS: tuple[tuple[str, str], ...] = (
    (r"Insufficient\w*Capacity|UnfulfillableCapacity|CapacityReservation\w*|SpotMaxPriceTooLow", CAPACITY),
    (r"RequestLimitExceeded|Throttl\w*|RequestThrottled\w*|EC2ThrottledException|SlowDown|BandwidthLimitExceeded", THROTTLED),
    (r"\w*LimitExceeded\w*|MaxSpotInstanceCountExceeded|ResourceCountExceeded|InsufficientFreeAddressesInSubnet", QUOTA),
    (r"UnauthorizedOperation|AuthFailure(\.\w+)?|InvalidClientTokenId|SignatureDoesNotMatch|AccessDenied\w*", DENIED),
    (r"ExpiredToken\w*|RequestExpired|OptInRequired|PendingVerification|Blocked|MissingAuthenticationToken", DENIED),
    (r"InvalidAccessKeyId|UnrecognizedClientException|InvalidKMSKey\.\w+|\w*AuthorizationFailure", DENIED),
    (r"OperationNotPermitted", PROTECTED),
    (r"InvalidLaunchTemplate\w*(\.\w+)*|InvalidAMI\w*(\.\w+)*|InvalidSubnet\w*(\.\w+)*", TEMPLATE),
    (r"InvalidGroup\w*(\.\w+)*|InvalidSecurityGroup\w*(\.\w+)*|InvalidKeyPair\.\w+|InvalidIamInstanceProfile\w*", TEMPLATE),
    (r"InvalidParameter\w*|InvalidInstanceType|InvalidUserData\.\w+|InvalidBlockDeviceMapping|Missing\w*|VPCIdNotSpecified", TEMPLATE),
    (r"Unsupported|UnsupportedOperation|UnknownParameter|InvalidInput|InvalidPlacementGroup\.\w+|InvalidSnapshot\.\w+|InvalidRequest|VolumeTypeNotAvailableInZone", TEMPLATE),
)  # fmt: skip

TODO = {
    QUOTA: "ask for more under Service Quotas of that region, name another one with --prefer-region, "
    "or a smaller --instance-type",
    CAPACITY: "AWS has none of that type there now: name more regions with --prefer-region, or another "
    "--instance-type",
    DENIED: "see `aws sts get-caller-identity`, and hold its rights against the policy in docs/pools.md",
    THROTTLED: "it is tried again later; fewer at a time: --set launch_parallel=2",
    TEMPLATE: "see `aws ec2 describe-launch-template-versions`; docs/pools.md says what a template needs",
    PROTECTED: "`aws ec2 modify-instance-attribute --no-disable-api-termination --instance-id ID`",
    UNREACHABLE: "can this host reach ec2.REGION.amazonaws.com? See the region, the proxy, the VPC endpoint",
}

SIGN_IN = "give this host AWS credentials: an instance role, AWS_PROFILE, or AWS_ACCESS_KEY_ID"
MOST_SAID = 300

# StateReason.Code of an instance that has ended.
GONE = {
    "Server.SpotInstanceTermination": "spot_interrupted",
    "Server.SpotInstanceShutdown": "spot_interrupted",
    "Client.UserInitiatedShutdown": "terminated_elsewhere",
    "Client.InstanceInitiatedShutdown": "shut_down_from_inside",
    "Client.VolumeLimitExceeded": QUOTA,
    "Client.InvalidSnapshot.NotFound": TEMPLATE,
    "Client.InternalError": "launch_failed_client",  # most often: no right to the key of a volume
    "Server.InsufficientInstanceCapacity": CAPACITY,
    "Server.InternalError": "provider_error",
    "Server.ScheduledStop": "provider_maintenance",
}


def told(error: Exception, region: str) -> pools.ProviderError:
    """What botocore raised, in our words."""
    from botocore import exceptions

    if isinstance(error, exceptions.ClientError):
        return _answered(error.response, region)
    said = f"{region}: {type(error).__name__}: {' '.join(str(error).split())[:MOST_SAID]}"
    unsigned = (
        exceptions.NoCredentialsError, exceptions.PartialCredentialsError, exceptions.ProfileNotFound,
        exceptions.CredentialRetrievalError, exceptions.SSOError, exceptions.TokenRetrievalError,
    )  # fmt: skip
    if isinstance(error, unsigned):  # nothing is sent without a signature
        return pools.ProviderError(DENIED, said, todo=SIGN_IN, nothing_made=True)
    if isinstance(error, exceptions.HTTPClientError | exceptions.ConnectionError):
        # It may have been heard: an answer that is lost is one that was given.
        return pools.ProviderError(UNREACHABLE, said, todo=TODO[UNREACHABLE])
    if isinstance(error, exceptions.ParamValidationError | exceptions.InvalidRegionError):
        return pools.ProviderError(TEMPLATE, said, todo=TODO[TEMPLATE], nothing_made=True)
    return pools.ProviderError("provider_error", said)


def _answered(response: Mapping[str, object], region: str) -> pools.ProviderError:
    said = response.get("Error")
    answer: Mapping[str, object] = said if isinstance(said, Mapping) else {}
    code, message = str(answer.get("Code", "")), str(answer.get("Message", ""))
    meta = response.get("ResponseMetadata")
    about: Mapping[str, object] = meta if isinstance(meta, Mapping) else {}
    reason = next((word for known, word in REASONS if re.fullmatch(known, code)), "provider_error")
    # Where it was asked more than once, an earlier try may have made one whose answer was lost. Nor does
    # a fault of the server itself say what it did before. "No room" does: with the same ClientToken, one
    # that was made would have been the answer. (InsufficientInstanceCapacity is a 500, and asked again.)
    fault = reason == "provider_error" or str(about.get("HTTPStatusCode", "")).startswith("5")
    certain = reason in ELSEWHERE or not (fault or about.get("RetryAttempts"))
    if "Encoded authorization failure message" in message:
        message = message.partition("Encoded authorization")[0].strip()
    return pools.ProviderError(
        reason, f"{region}: {code}: {message[:MOST_SAID]}", todo=TODO.get(reason, ""), nothing_made=certain
    )  # fmt: skip


def why_gone(instance: Mapping[str, object]) -> str:
    """One word for why an instance that has ended did; '' where it did not say, or has not ended."""
    state, reason = instance.get("State"), instance.get("StateReason")
    name = state.get("Name") if isinstance(state, Mapping) else ""
    if name not in ("shutting-down", "terminated") or not isinstance(reason, Mapping):
        return ""
    return GONE.get(str(reason.get("Code", "")), "")
