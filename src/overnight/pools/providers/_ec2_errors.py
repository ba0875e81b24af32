"""EC2 errors as ProviderError: the reason, what to do, and whether a machine may exist."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from overnight import pools
from overnight.model.pool import Reason

QUOTA, CAPACITY = Reason.QUOTA, Reason.CAPACITY
DENIED, THROTTLED = Reason.DENIED, Reason.THROTTLED
TEMPLATE, PROTECTED = Reason.TEMPLATE_INVALID, Reason.TERMINATION_PROTECTED
UNREACHABLE = Reason.UNREACHABLE

REGION_FULL = (QUOTA, CAPACITY)  # limits of one region: another may have room
INSTANCE_NOT_FOUND = "InvalidInstanceID.NotFound"

# https://docs.aws.amazon.com/AWSEC2/latest/APIReference/errors-overview.html; the first match counts.
REASONS: tuple[tuple[str, Reason], ...] = (
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

ADD_CREDENTIALS = (
    "give this host AWS credentials: an instance role, AWS_PROFILE, or AWS_ACCESS_KEY_ID"
)
MAX_TEXT = 300

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
    from botocore import exceptions

    if isinstance(error, exceptions.ClientError):
        return _translate_answer(error.response, region)
    message = f"{region}: {type(error).__name__}: {' '.join(str(error).split())[:MAX_TEXT]}"
    unsigned = (
        exceptions.NoCredentialsError, exceptions.PartialCredentialsError, exceptions.ProfileNotFound,
        exceptions.CredentialRetrievalError, exceptions.SSOError, exceptions.TokenRetrievalError,
    )  # fmt: skip
    if isinstance(error, unsigned):  # an unsigned request is never sent
        return pools.ProviderError(DENIED, message, todo=ADD_CREDENTIALS, nothing_made=True)
    if isinstance(error, exceptions.HTTPClientError | exceptions.ConnectionError):
        # The request may have been carried out: only its answer is lost.
        return pools.ProviderError(UNREACHABLE, message, todo=TODO[UNREACHABLE])
    if isinstance(error, exceptions.ParamValidationError | exceptions.InvalidRegionError):
        return pools.ProviderError(TEMPLATE, message, todo=TODO[TEMPLATE], nothing_made=True)
    return pools.ProviderError(Reason.ERROR, message)


def _translate_answer(response: Mapping[str, Any], region: str) -> pools.ProviderError:
    answer, about = response.get("Error", {}), response.get("ResponseMetadata", {})
    code, message = str(answer.get("Code", "")), str(answer.get("Message", ""))
    reason = next((r for pattern, r in REASONS if re.fullmatch(pattern, code)), Reason.ERROR)
    # After a retry, an earlier try may have launched an instance whose answer was lost; and a server error
    # does not say what was done before it. "No capacity" does: with the same ClientToken, an instance that
    # was launched would have been the answer. (InsufficientInstanceCapacity is a 500, and is retried.)
    fault = reason is Reason.ERROR or str(about.get("HTTPStatusCode", "")).startswith("5")
    certain = reason in REGION_FULL or not (fault or about.get("RetryAttempts"))
    if "Encoded authorization failure message" in message:
        message = message.partition("Encoded authorization")[0].strip()
    return pools.ProviderError(
        reason,
        f"{region}: {code}: {message[:MAX_TEXT]}",
        todo=TODO.get(reason, ""),
        code=code,
        nothing_made=certain,
    )


def why_gone(instance: Mapping[str, Any]) -> Reason | None:
    """Return why an instance has ended; None if it has not, or EC2 does not say."""
    if instance.get("State", {}).get("Name") not in ("shutting-down", "terminated"):
        return None
    return GONE.get(instance.get("StateReason", {}).get("Code", ""))
