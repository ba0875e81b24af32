"""The endpoint given to members: kept over restarts, and set by an option where needed."""

from __future__ import annotations

import contextlib
import http.client
import re
import socket
import threading
import time
from typing import TYPE_CHECKING

import noise
import pytest

from overnight import errors
from overnight.app import pool_serving, pools

if TYPE_CHECKING:
    import pathlib
    from collections.abc import Iterator


@contextlib.contextmanager
def served(where: pools.Pools, **options: str | bool) -> Iterator[list[str]]:
    """Run a reaper during the block; yield its progress messages."""
    stop, messages = threading.Event(), list[str]()
    thread = threading.Thread(
        target=pool_serving.serve,
        args=(where, stop),
        kwargs={"progress": messages.append, **options},
    )
    thread.start()
    try:
        deadline = time.monotonic() + noise.HANG_SECONDS
        while not messages:
            assert thread.is_alive()
            assert time.monotonic() < deadline
            time.sleep(0.01)
        yield messages
    finally:
        stop.set()
        thread.join(20)


@pytest.fixture
def where(tmp_path: pathlib.Path) -> Iterator[pools.Pools]:
    opened = pools.Pools(tmp_path)
    yield opened
    opened.plane.context.database.close()


def test_the_endpoint_is_kept_with_its_listen_address(
    where: pools.Pools,
) -> None:
    with served(where, endpoint="https://pools.internal") as messages:
        assert messages[0] == "serving members at https://pools.internal"
    listened = where.plane.get(pool_serving.LISTEN)
    assert listened.startswith("127.0.0.1:")
    with served(where):
        assert where.plane.endpoint == "https://pools.internal"
        assert where.plane.get(pool_serving.LISTEN) == listened
    with served(where, listen="127.0.0.1:0"):  # a new address replaces the endpoint
        assert where.plane.endpoint == f"http://{where.plane.get(pool_serving.LISTEN)}"


@pytest.mark.parametrize(
    "endpoint", ["pools.internal:80", "ftp://x", "http://", "http://[x", "http://x:y", "http://x/y"]
)
def test_an_invalid_endpoint_is_refused(endpoint: str, where: pools.Pools) -> None:
    with pytest.raises(errors.UsageError, match="invalid endpoint"):
        pool_serving.serve(where, threading.Event(), endpoint=endpoint)
    assert where.plane.endpoint == ""


@pytest.mark.parametrize(
    ("listen", "endpoint"),
    [
        ("0.0.0.0:0", ""),
        ("[::]:0", ""),
        ("10.0.0.5:8417", "https://pools.internal"),  # a balancer that ends TLS elsewhere
        ("", "http://pools.internal:8417"),
        ("127.0.0.1:0", "HTTP://10.0.0.5:8417"),
    ],
)
def test_plain_http_beyond_loopback_is_refused(
    listen: str, endpoint: str, where: pools.Pools
) -> None:
    stop = threading.Event()
    stop.set()
    with pytest.raises(errors.UsageError, match="refusing plain HTTP beyond loopback") as caught:
        pool_serving.serve(where, stop, listen=listen, endpoint=endpoint)
    assert "--plain-http" in caught.value.todo
    assert where.plane.endpoint == where.plane.get(pool_serving.LISTEN) == ""


@pytest.mark.parametrize(
    ("listen", "endpoint"),
    [
        ("127.0.0.1:0", "https://pools.internal"),
        ("localhost:0", ""),
        ("127.0.0.1:0", "http://localhost:8417"),
    ],
)
def test_loopback_and_tls_in_front_of_it_need_no_flag(
    listen: str, endpoint: str, where: pools.Pools
) -> None:
    with served(where, listen=listen, endpoint=endpoint):
        pass


def test_plain_http_is_allowed_by_a_flag_which_is_not_saved(where: pools.Pools) -> None:
    with served(where, listen="0.0.0.0:0", endpoint="http://pools.internal:8417", plain_http=True):
        assert where.plane.get(pool_serving.LISTEN).startswith("0.0.0.0:")
    stop = threading.Event()
    stop.set()
    with pytest.raises(errors.UsageError, match=r"plain HTTP beyond loopback: 0\.0\.0\.0"):
        pool_serving.serve(where, stop)


def request(url: str, method: str, path: str) -> int:
    connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=30)
    with contextlib.closing(connection):
        connection.request(method, path)
        return connection.getresponse().status


def test_metrics_have_a_listener_of_their_own(where: pools.Pools) -> None:
    with served(where, metrics="127.0.0.1:0") as messages:
        pattern = r"serving members at (\S+), metrics at (\S+)/metrics"
        members, metrics = re.fullmatch(pattern, messages[0]).groups()
        assert request(metrics, "GET", "/metrics") == 200
        assert request(metrics, "POST", "/v1/beat") == 404
        assert request(members, "GET", "/metrics") == 404
        assert request(members, "POST", "/v1/beat") == 403  # no credential


def test_a_port_that_is_in_use_for_metrics_ends_the_start(where: pools.Pools) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(errors.CannotError, match=f"cannot serve metrics on {address}"):
            pool_serving.serve(where, threading.Event(), metrics=address)
    assert where.plane.endpoint == ""


def test_a_pool_that_cannot_be_filled_is_reported_at_start(
    where: pools.Pools,
) -> None:
    where.plane.create(name="ci", template="plain", target_size=0)
    where.plane.create(
        name="far", template="runner", target_size=0, provider="ec2", region="eu-west-1"
    )
    with served(where) as messages:
        deadline = time.monotonic() + noise.HANG_SECONDS
        while len(messages) < 2:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        [line] = messages[1:]
    assert line.startswith(
        "pool far cannot be filled: members on EC2 cannot reach http://127.0.0.1"
    )
    assert "--endpoint" in line
