"""What members are told of where the reaper is: kept over restarts, said by hand where that is needed."""

from __future__ import annotations

import contextlib
import threading
import time
from typing import TYPE_CHECKING

import pytest

from overnight import errors
from overnight.app import pools

if TYPE_CHECKING:
    import pathlib
    from collections.abc import Iterator

    from overnight.pools import control


@contextlib.contextmanager
def served(plane: control.ControlPlane, **given: str) -> Iterator[list[str]]:
    """A reaper that runs meanwhile; what it has said."""
    stop, said = threading.Event(), list[str]()
    thread = threading.Thread(
        target=pools.serve, args=(plane, stop), kwargs={"progress": said.append, **given}
    )
    thread.start()
    try:
        deadline = time.monotonic() + 20
        while not said:
            assert thread.is_alive()
            assert time.monotonic() < deadline
            time.sleep(0.01)
        yield said
    finally:
        stop.set()
        thread.join(20)


@pytest.fixture
def plane(tmp_path: pathlib.Path) -> Iterator[control.ControlPlane]:
    made = pools.open_plane(tmp_path)
    yield made
    made.context.database.close()


def test_what_was_said_is_kept_with_the_address_that_is_listened_on(
    plane: control.ControlPlane,
) -> None:
    with served(plane, endpoint="http://pools.internal:80") as said:
        assert "serving members at http://pools.internal:80," in said[0]
    listened = plane.get(pools.LISTEN)
    assert listened.startswith("127.0.0.1:")
    with served(plane) as said:
        assert plane.endpoint == "http://pools.internal:80"
        assert f"metrics at http://{listened}/metrics" in said[0]
    with served(plane, listen="127.0.0.1:0"):  # chosen anew: it speaks for itself
        assert plane.endpoint == f"http://{plane.get(pools.LISTEN)}"


@pytest.mark.parametrize(
    "endpoint", ["pools.internal:80", "ftp://x", "http://", "http://[x", "http://x:y", "http://x/y"]
)
def test_what_is_no_endpoint(endpoint: str, plane: control.ControlPlane) -> None:
    with pytest.raises(errors.UsageError, match="invalid endpoint"):
        pools.serve(plane, threading.Event(), endpoint=endpoint)
    assert plane.endpoint == ""


def test_a_pool_that_cannot_be_filled_from_here_is_told_of_at_once(
    plane: control.ControlPlane,
) -> None:
    plane.create(name="ci", template="runner", target_size=0)
    plane.create(name="far", template="runner", target_size=0, provider="ec2", region="eu-west-1")
    with served(plane) as said:
        deadline = time.monotonic() + 20
        while len(said) < 2:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        [line] = said[1:]
    assert line.startswith(
        "pool far cannot be filled: members on EC2 cannot reach http://127.0.0.1"
    )
    assert "--endpoint" in line
