"""The endpoint given to members: kept over restarts, and set by an option where needed."""

from __future__ import annotations

import contextlib
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
def served(where: pools.Pools, **options: str) -> Iterator[list[str]]:
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
    with served(where, endpoint="http://pools.internal:80") as messages:
        assert "serving members at http://pools.internal:80," in messages[0]
    listened = where.plane.get(pool_serving.LISTEN)
    assert listened.startswith("127.0.0.1:")
    with served(where) as messages:
        assert where.plane.endpoint == "http://pools.internal:80"
        assert f"metrics at http://{listened}/metrics" in messages[0]
    with served(where, listen="127.0.0.1:0"):  # a new address replaces the endpoint
        assert where.plane.endpoint == f"http://{where.plane.get(pool_serving.LISTEN)}"


@pytest.mark.parametrize(
    "endpoint", ["pools.internal:80", "ftp://x", "http://", "http://[x", "http://x:y", "http://x/y"]
)
def test_an_invalid_endpoint_is_refused(endpoint: str, where: pools.Pools) -> None:
    with pytest.raises(errors.UsageError, match="invalid endpoint"):
        pool_serving.serve(where, threading.Event(), endpoint=endpoint)
    assert where.plane.endpoint == ""


def test_a_pool_that_cannot_be_filled_is_reported_at_start(
    where: pools.Pools,
) -> None:
    where.plane.create(name="ci", template="runner", target_size=0)
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
