"""The machine of the test as the host of an investigation, with real child processes."""

from __future__ import annotations

import pathlib
import time
from collections.abc import Callable, Iterator

import pytest

from overnight.investigations import hosts
from overnight.model.event import Event
from overnight.model.plan import Plan
from overnight.model.protocol import INTERRUPTED, TaskKind, TaskState


@pytest.fixture
def home(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    monkeypatch.setenv("OVERNIGHT_UNDO", str(tmp_path / "undo"))
    return tmp_path / "i-1"


@pytest.fixture
def host(home: pathlib.Path) -> Iterator[hosts.LocalHost]:
    opened = hosts.LocalHost(home, "vm", Plan(name="x"))
    yield opened
    opened.close()


def wait_for(what: Callable[[], object]) -> None:
    until = time.monotonic() + 30
    while not what():
        assert time.monotonic() < until
        time.sleep(0.05)


def state(host: hosts.LocalHost, name: str) -> TaskState | None:
    found = host.look([name])
    return found[name].state if name in found else None


def test_a_task_is_run_once_and_has_a_result(host: hosts.LocalHost, home: pathlib.Path) -> None:
    assert host.look(["t-1"]) == {}
    for _ in range(2):
        host.start("vm", "t-1", TaskKind.AGE, {"state": "uptime", "arm": "fixed"})
    wait_for(lambda: state(host, "t-1") is TaskState.DONE)
    result = host.look(["t-1"])["t-1"].result
    assert (result["arm"], result["uptime_s"] > 0) == ("fixed", True)
    assert len((home / "arms.jsonl").read_text().splitlines()) == 1
    assert host.used_bytes() > 0


def test_a_stop_reaches_a_task_that_begins_after_it(host: hosts.LocalHost) -> None:
    host.start("vm", "t-1", TaskKind.LOAD, {"workload": "cpu", "seconds": 600, "duty": 1})
    while state(host, "t-1") is not TaskState.FAILED:
        host.stop("vm", "t-1")
        time.sleep(0.2)
    found = host.look(["t-1"])["t-1"]
    assert "stopped by task" in found.detail or found.result["status"]


def test_one_process_at_a_time_has_the_tasks(host: hosts.LocalHost, home: pathlib.Path) -> None:
    with pytest.raises(BlockingIOError):
        hosts.LocalHost(home, "vm", Plan(name="x"))


def test_what_a_killed_process_left_is_reported(home: pathlib.Path) -> None:
    first = hosts.LocalHost(home, "vm", Plan(name="x"))
    first.start("vm", "t-1", TaskKind.LOAD, {"workload": "cpu", "seconds": 600, "duty": 1})
    wait_for(lambda: state(first, "t-1") is TaskState.RUNNING)
    # As after kill -9: the lock is free, the child runs on.
    first._ended.set()
    first._thread.join()
    hosts.os.close(first._lock)
    second = hosts.LocalHost(home, "vm", Plan(name="x"))
    found = second.look(["t-1"])["t-1"]
    assert (found.state, found.detail) == (TaskState.FAILED, INTERRUPTED)
    second.close()
    first._runner.close()


def test_events_and_pins_are_those_of_the_home(host: hosts.LocalHost, home: pathlib.Path) -> None:
    assert host.list_events(["vm"], 0, 1 << 60) == []
    (home / "spool").mkdir()
    host.pin("vm", Event(5_000_000, "net.driver_reset", id="net.driver_reset-1"))
    assert [path.name for path in (home / "spool/pins").iterdir()] == ["net.driver_reset-1.json"]
