"""What a server does besides HTTP: options, background work."""

from __future__ import annotations

import pathlib
import time

import pytest
import serverworld

from overnight import errors
from overnight.app import serving


def test_background_work_reports_a_failure_once_and_goes_on(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving, "JOB_SECONDS", 0.01)
    lines: list[str] = []
    world = serverworld.World(tmp_path)
    world.server._progress = lines.append
    results = [None, OSError("full"), OSError("full"), errors.CannotError("a", why="b", todo="c")]
    calls = 0

    def maintain() -> int:
        nonlocal calls
        calls += 1
        result = results[calls - 1] if calls <= len(results) else None
        if result is not None:
            raise result
        return 0

    monkeypatch.setattr(world.server.fleet, "maintain", maintain)
    world.server.start("http://127.0.0.1:1")
    while calls < 8:
        time.sleep(0.01)
    world.close()
    assert lines == [
        "background work failed: OSError('full')",
        "background work failed: a: b",
        "background work succeeds again",
    ]


def test_background_work_is_that_of_the_fleet(tmp_path: pathlib.Path) -> None:
    world = serverworld.World(tmp_path)
    world.report(world.enrol("db-7"))
    assert world.server.fleet.maintain() >= 0
    world.server.answers.prune()
    world.close()


@pytest.mark.parametrize("listen", ["127.0.0.1:0", "[::1]:0", "localhost:0", "8416"])
def test_loopback_needs_no_certificate(tmp_path: pathlib.Path, listen: str) -> None:
    assert serving.check(serving.Request(home=tmp_path, listen=listen))[2] is None


@pytest.mark.parametrize("listen", ["0.0.0.0:1", "[::]:1", "10.0.0.5:1", "db-7:1"])
def test_another_address_needs_a_certificate_or_insecure(
    tmp_path: pathlib.Path, listen: str
) -> None:
    with pytest.raises(errors.UsageError, match="refusing plain HTTP"):
        serving.check(serving.Request(home=tmp_path, listen=listen))
    serving.check(serving.Request(home=tmp_path, listen=listen, insecure=True))


def test_members_find_the_server_at_its_endpoint(tmp_path: pathlib.Path) -> None:
    world = serverworld.World(tmp_path)
    world.server.start("http://127.0.0.1:18416")
    assert world.server.pools.plane.endpoint == "http://127.0.0.1:18416"
    world.close()
