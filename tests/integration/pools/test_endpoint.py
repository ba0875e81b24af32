"""What members are told of where the reaper is: kept over restarts, said by hand where that is needed."""

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
def served(where: pools.Pools, **given: str) -> Iterator[list[str]]:
    """A reaper that runs meanwhile; what it has said."""
    stop, said = threading.Event(), list[str]()
    thread = threading.Thread(
        target=pool_serving.serve, args=(where, stop), kwargs={"progress": said.append, **given}
    )
    thread.start()
    try:
        deadline = time.monotonic() + noise.HANG_SECONDS
        while not said:
            assert thread.is_alive()
            assert time.monotonic() < deadline
            time.sleep(0.01)
        yield said
    finally:
        stop.set()
        thread.join(20)


@pytest.fixture
def where(tmp_path: pathlib.Path) -> Iterator[pools.Pools]:
    made = pools.Pools(tmp_path)
    yield made
    made.plane.context.database.close()


def test_what_was_said_is_kept_with_the_address_that_is_listened_on(
    where: pools.Pools,
) -> None:
    with served(where, endpoint="http://pools.internal:80") as said:
        assert "serving members at http://pools.internal:80," in said[0]
    listened = where.plane.get(pool_serving.LISTEN)
    assert listened.startswith("127.0.0.1:")
    with served(where) as said:
        assert where.plane.endpoint == "http://pools.internal:80"
        assert f"metrics at http://{listened}/metrics" in said[0]
    with served(where, listen="127.0.0.1:0"):  # chosen anew: it speaks for itself
        assert where.plane.endpoint == f"http://{where.plane.get(pool_serving.LISTEN)}"


@pytest.mark.parametrize(
    "endpoint", ["pools.internal:80", "ftp://x", "http://", "http://[x", "http://x:y", "http://x/y"]
)
def test_what_is_no_endpoint(endpoint: str, where: pools.Pools) -> None:
    with pytest.raises(errors.UsageError, match="invalid endpoint"):
        pool_serving.serve(where, threading.Event(), endpoint=endpoint)
    assert where.plane.endpoint == ""


def test_a_pool_that_cannot_be_filled_from_here_is_told_of_at_once(
    where: pools.Pools,
) -> None:
    where.plane.create(name="ci", template="runner", target_size=0)
    where.plane.create(
        name="far", template="runner", target_size=0, provider="ec2", region="eu-west-1"
    )
    with served(where) as said:
        deadline = time.monotonic() + noise.HANG_SECONDS
        while len(said) < 2:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        [line] = said[1:]
    assert line.startswith(
        "pool far cannot be filled: members on EC2 cannot reach http://127.0.0.1"
    )
    assert "--endpoint" in line
