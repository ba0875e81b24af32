"""Clients of AWS, and what its errors mean. Account, credentials and proxies are found as by every AWS tool."""

from __future__ import annotations

import dataclasses
import importlib.util
import re
import threading
from collections.abc import Mapping
from typing import Any

from overnight import errors
from overnight.model.pool import Reason

REGION = re.compile(r"[a-z]{2,8}(-[a-z]+)+-\d{1,2}")
CONNECT_SECONDS, READ_SECONDS, ATTEMPTS = 5, 20, 4  # together within provider_timeout_seconds
MAX_TAG = 256
MAX_TEXT = 300
ADD_CREDENTIALS = (
    "give this host AWS credentials: an instance role, AWS_PROFILE, or AWS_ACCESS_KEY_ID"
)

QUOTA, CAPACITY = Reason.QUOTA, Reason.CAPACITY
DENIED, THROTTLED = Reason.DENIED, Reason.THROTTLED
TEMPLATE, PROTECTED = Reason.TEMPLATE_INVALID, Reason.TERMINATION_PROTECTED
REGION_FULL = (QUOTA, CAPACITY)  # limits of one region: another may have room

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


@dataclasses.dataclass(frozen=True)
class Failure:
    """Why a call failed. `certain`: AWS did not carry it out."""

    reason: Reason
    message: str
    code: str = ""
    certain: bool = False
    retried: bool = False  # an earlier attempt may have been carried out
    unsigned: bool = False  # there were no credentials


class Clients:
    """Clients by service and region. Threads may share clients, but must not create them at once."""

    def __init__(self, user_agent: str) -> None:
        self._user_agent = user_agent
        self._lock = threading.Lock()
        self._session: Any = None
        self.clients: dict[tuple[str, str], Any] = {}

    def get(self, service: str, region: str) -> Any:
        import boto3.session
        import botocore.config

        with self._lock:
            if self._session is None:
                self._session = boto3.session.Session()
            if (service, region) not in self.clients:
                config = botocore.config.Config(
                    connect_timeout=CONNECT_SECONDS,
                    read_timeout=READ_SECONDS,
                    # Throttled calls and lost connections are retried with backoff.
                    retries={"mode": "standard", "total_max_attempts": ATTEMPTS},
                    max_pool_connections=64,
                    user_agent_extra=self._user_agent,
                )
                self.clients[service, region] = self._session.client(
                    service, region_name=region, config=config
                )
            return self.clients[service, region]


def require_boto3(provider: str) -> None:
    if importlib.util.find_spec("boto3") is None:
        raise errors.CannotError(
            f"provider {provider} needs boto3, which is not installed",
            why="only providers on AWS need it, so it is an optional dependency",
            todo="pip install 'overnight[ec2]'",
        )


def explain(error: Exception, region: str) -> Failure:
    """Return what an exception of botocore means."""
    from botocore import exceptions

    if isinstance(error, exceptions.ClientError):
        return _explain_answer(error.response, region)
    message = f"{region}: {type(error).__name__}: {' '.join(str(error).split())[:MAX_TEXT]}"
    unsigned = (
        exceptions.NoCredentialsError, exceptions.PartialCredentialsError, exceptions.ProfileNotFound,
        exceptions.CredentialRetrievalError, exceptions.SSOError, exceptions.TokenRetrievalError,
    )  # fmt: skip
    if isinstance(error, unsigned):  # an unsigned request is never sent
        return Failure(DENIED, message, certain=True, unsigned=True)
    if isinstance(error, exceptions.HTTPClientError | exceptions.ConnectionError):
        # The request may have been carried out: only its answer is lost.
        return Failure(Reason.UNREACHABLE, message)
    if isinstance(error, exceptions.ParamValidationError | exceptions.InvalidRegionError):
        return Failure(TEMPLATE, message, certain=True)
    return Failure(Reason.ERROR, message)


def _explain_answer(response: Mapping[str, Any], region: str) -> Failure:
    answer, about = response.get("Error", {}), response.get("ResponseMetadata", {})
    code, message = str(answer.get("Code", "")), str(answer.get("Message", ""))
    reason = next((r for pattern, r in REASONS if re.fullmatch(pattern, code)), Reason.ERROR)
    # After a retry, an earlier try may have launched an instance whose answer was lost; and a server error
    # does not say what was done before it. "No capacity" does: with the same ClientToken, an instance that
    # was launched would have been the answer. (InsufficientInstanceCapacity is a 500, and is retried.)
    fault = reason is Reason.ERROR or str(about.get("HTTPStatusCode", "")).startswith("5")
    retried = bool(about.get("RetryAttempts"))
    certain = reason in REGION_FULL or not (fault or retried)
    if "Encoded authorization failure message" in message:
        message = message.partition("Encoded authorization")[0].strip()
    return Failure(reason, f"{region}: {code}: {message[:MAX_TEXT]}", code, certain, retried)
