"""Every error of AWS, by Stubber and over HTTP, has one reason and a hint."""

from __future__ import annotations

import contextlib
import http.server
import pathlib
import threading
import types
from typing import TYPE_CHECKING

import botocore.exceptions
import botocore.parsers
import pytest
from ec2played import HERE, order

from overnight import aws, pools
from overnight.pools.providers import _ec2_errors, ec2

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ec2played import Played

pytestmark = pytest.mark.usefixtures("no_aws")


REFUSALS = [
    ("InsufficientInstanceCapacity", "provider_capacity_exhausted", 500, True),
    ("SpotMaxPriceTooLow", "provider_capacity_exhausted", 400, True),
    ("InstanceLimitExceeded", "provider_quota_exceeded", 400, True),
    ("VcpuLimitExceeded", "provider_quota_exceeded", 400, True),
    ("MaxSpotInstanceCountExceeded", "provider_quota_exceeded", 400, True),
    ("VolumeLimitExceeded", "provider_quota_exceeded", 400, True),
    ("InsufficientFreeAddressesInSubnet", "provider_quota_exceeded", 400, True),
    ("RequestLimitExceeded", "provider_throttled", 503, False),
    ("Throttling", "provider_throttled", 400, True),
    ("UnauthorizedOperation", "provider_access_denied", 403, True),
    ("AuthFailure", "provider_access_denied", 401, True),
    ("AuthFailure.ServiceLinkedRoleCreationNotPermitted", "provider_access_denied", 403, True),
    ("InvalidClientTokenId", "provider_access_denied", 403, True),
    ("ExpiredTokenException", "provider_access_denied", 400, True),
    ("RequestExpired", "provider_access_denied", 400, True),
    ("OptInRequired", "provider_access_denied", 401, True),
    ("PendingVerification", "provider_access_denied", 400, True),
    ("InvalidLaunchTemplateName.NotFoundException", "template_invalid", 400, True),
    ("InvalidLaunchTemplateId.NotFound", "template_invalid", 400, True),
    ("InvalidLaunchTemplateId.VersionNotFound", "template_invalid", 400, True),
    ("InvalidAMIID.NotFound", "template_invalid", 400, True),
    ("InvalidSubnetID.NotFound", "template_invalid", 400, True),
    ("InvalidGroup.NotFound", "template_invalid", 400, True),
    ("InvalidKeyPair.NotFound", "template_invalid", 400, True),
    ("InvalidParameterValue", "template_invalid", 400, True),
    ("Unsupported", "template_invalid", 400, True),
    ("IdempotentParameterMismatch", "provider_error", 400, False),
    ("InternalError", "provider_error", 500, False),
    ("Unavailable", "provider_error", 503, False),
    ("SomethingNewOfNextYear", "provider_error", 400, False),
]


@pytest.mark.parametrize(
    ("code", "reason", "status", "certain"), REFUSALS, ids=[refusal[0] for refusal in REFUSALS]
)
def test_every_refusal_has_its_reason(
    code: str, reason: str, status: int, certain: bool, played: Played
) -> None:
    played.answer_no_instances()
    played.answer_error(code, status=status)
    with pytest.raises(pools.ProviderError) as caught:
        played.provider.launch(order())
    error = caught.value
    assert (error.reason, error.nothing_made) == (reason, certain)
    assert f"{HERE}: {code}: because {code}" in error.what
    assert error.todo


def test_a_refusal_after_a_lost_answer_is_not_certain(played: Played) -> None:
    """An earlier attempt may have made the instance; its tag shows that later."""
    played.answer_no_instances()
    played.answer_error("UnauthorizedOperation", RetryAttempts=2)
    with pytest.raises(pools.ProviderError) as caught:
        played.provider.launch(order())
    assert not caught.value.nothing_made


def test_no_capacity_is_certain_even_after_retries(played: Played) -> None:
    """With the same ClientToken, EC2 would have returned an instance already made."""
    played.answer_no_instances()
    played.answer_error("InsufficientInstanceCapacity", status=500, RetryAttempts=3)
    with pytest.raises(pools.ProviderError) as caught:
        played.provider.launch(order())
    assert caught.value.nothing_made


def test_an_encoded_authorization_message_is_left_out() -> None:
    message = "You are not authorized. Encoded authorization failure message: " + "x" * 900
    response = {"Error": {"Code": "UnauthorizedOperation", "Message": message}}
    error = botocore.exceptions.ClientError(response, "RunInstances")
    translated = _ec2_errors.translate(error, HERE)
    assert translated.what.endswith("You are not authorized.")
    assert "docs/pools.md" in translated.todo


@pytest.mark.parametrize(
    ("error", "reason", "certain"),
    [
        (botocore.exceptions.NoCredentialsError(), "provider_access_denied", True),
        (botocore.exceptions.ProfileNotFound(profile="x"), "provider_access_denied", True),
        (botocore.exceptions.PartialCredentialsError(provider="x", cred_var="y"), "provider_access_denied", True),
        (botocore.exceptions.UnauthorizedSSOTokenError(), "provider_access_denied", True),
        (botocore.exceptions.CredentialRetrievalError(provider="x", error_msg="y"), "provider_access_denied", True),
        (botocore.exceptions.EndpointConnectionError(endpoint_url="x"), "provider_unreachable", False),
        (botocore.exceptions.ConnectTimeoutError(endpoint_url="x"), "provider_unreachable", False),
        (botocore.exceptions.ReadTimeoutError(endpoint_url="x"), "provider_unreachable", False),
        (botocore.exceptions.ProxyConnectionError(proxy_url="x"), "provider_unreachable", False),
        (botocore.exceptions.SSLError(endpoint_url="x", error="y"), "provider_unreachable", False),
        (botocore.exceptions.ParamValidationError(report="x"), "template_invalid", True),
        (botocore.exceptions.InvalidRegionError(region_name="x"), "template_invalid", True),
        (botocore.parsers.ResponseParserError("<html>\na proxy"), "provider_error", False),
        (RuntimeError("a bug"), "provider_error", False),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)  # fmt: skip
def test_errors_of_requests_that_never_reached_aws(
    error: Exception, reason: str, certain: bool
) -> None:
    translated = _ec2_errors.translate(error, HERE)
    assert (translated.reason, translated.nothing_made) == (reason, certain)
    assert translated.todo
    assert "\n" not in translated.what


# over HTTP


@contextlib.contextmanager
def answering(*answers: tuple[int, str]) -> Iterator[tuple[str, list[bytes]]]:
    """Run a server that gives these answers in order, then repeats the last one."""
    bodies: list[bytes] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            bodies.append(self.rfile.read(int(self.headers["Content-Length"])))
            status, text = answers[min(len(bodies), len(answers)) - 1]
            if not status:
                self.close_connection = True
                return  # no answer: the connection is just closed
            self.send_response(status)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", bodies
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


THROTTLED = (
    503,
    (
        "<Response><Errors><Error><Code>RequestLimitExceeded</Code><Message>slow down</Message></Error>"
        "</Errors><RequestID>1</RequestID></Response>"
    ),
)
NOTHING = (200, "<DescribeInstancesResponse><reservationSet/></DescribeInstancesResponse>")


@pytest.fixture
def slept(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Record how long botocore would have waited between attempts."""
    waits: list[float] = []
    monkeypatch.setattr("botocore.endpoint.time", types.SimpleNamespace(sleep=waits.append))
    return waits


def test_a_throttled_request_is_retried(
    monkeypatch: pytest.MonkeyPatch, slept: list[float]
) -> None:
    with answering(THROTTLED, THROTTLED, NOTHING) as (url, bodies):
        monkeypatch.setenv("AWS_ENDPOINT_URL", url)
        assert ec2.create(pathlib.Path("/nonexistent")).inventory("me", [HERE]) == []
    assert len(bodies) == 3
    assert len(slept) == 2


def test_a_request_that_stays_throttled_is_an_error(
    monkeypatch: pytest.MonkeyPatch, slept: list[float]
) -> None:
    with answering(THROTTLED) as (url, bodies):
        monkeypatch.setenv("AWS_ENDPOINT_URL", url)
        with pytest.raises(pools.ProviderError) as caught:
            ec2.create(pathlib.Path("/nonexistent")).inventory("me", [HERE])
    assert caught.value.reason == "provider_throttled"
    assert len(bodies) == aws.ATTEMPTS


def test_a_launch_with_a_lost_answer_is_retried_with_the_same_token(
    monkeypatch: pytest.MonkeyPatch, slept: list[float]
) -> None:
    answer = (
        "<RunInstancesResponse><instancesSet><item><instanceId>i-01234567</instanceId></item>"
        "</instancesSet></RunInstancesResponse>"
    )
    with answering(NOTHING, (0, ""), (200, answer)) as (url, bodies):
        monkeypatch.setenv("AWS_ENDPOINT_URL", url)
        machine = ec2.create(pathlib.Path("/nonexistent")).launch(order())
    assert machine.id == f"{HERE}/i-01234567"
    assert len(bodies) == 3
    assert bodies[1] == bodies[2]
    assert b"ClientToken=m-1" in bodies[2]


def test_an_unreachable_endpoint_is_an_error(
    monkeypatch: pytest.MonkeyPatch, slept: list[float]
) -> None:
    with pytest.raises(pools.ProviderError) as caught:
        ec2.create(pathlib.Path("/nonexistent")).inventory("me", [HERE])
    assert caught.value.reason == "provider_unreachable"
    assert not caught.value.nothing_made


def test_no_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    with pytest.raises(pools.ProviderError, match="Unable to locate credentials") as caught:
        ec2.create(pathlib.Path("/nonexistent")).inventory("me", [HERE])
    assert caught.value.reason == "provider_access_denied"
    assert "AWS_PROFILE" in caught.value.todo


def test_time_limits_are_below_the_limit_of_a_pool() -> None:
    """Four attempts of maximum length, with the waits between them, end before the pool gives up."""
    waits = sum(min(2**n, 20) for n in range(aws.ATTEMPTS - 1))
    longest = aws.ATTEMPTS * (aws.CONNECT_SECONDS + aws.READ_SECONDS) + waits
    assert longest < 120
    config = ec2.create(pathlib.Path("/nonexistent"))._aws.get("ec2", HERE).meta.config
    assert (config.connect_timeout, config.read_timeout) == (5, 20)
    assert config.retries["mode"] == "standard"
