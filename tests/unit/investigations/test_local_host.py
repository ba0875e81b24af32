"""The machine of the test as the host of an investigation, with real child processes."""

from __future__ import annotations

import pathlib
import time
from collections.abc import Callable, Iterator

import pytest

from overnight.agent import task_config
from overnight.investigations import hosts
from overnight.model.event import Event
from overnight.model.pins import Pins
from overnight.model.plan import ExperimentPlan, InstrumentPlan, Plan
from overnight.model.protocol import INTERRUPTED, TaskKind, TaskState
from overnight.store.ring import layout, writer

NOW_US = 1_800_000_000_000_000


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
    event = Event(NOW_US, "net.driver_reset", id="net.driver_reset-1", text="reset")
    assert not (home / "spool").exists()
    host.pin("vm", event)
    assert not (home / "spool").exists(), "nothing is profiled"
    (home / "spool").mkdir()
    ring = writer.Writer(home, "db-7", "1" * 32, budget_bytes=1 << 30, age_seconds=1e9)
    lasting = Event(NOW_US - 5_000_000, "cpu.x", id="cpu.x-1", until_us=NOW_US + 5_000_000)
    for each in (event, lasting):
        ring.event(each)
    ring.close()
    # The reservation names this machine otherwise; what began before is another arm's.
    found = host.list_events(["vm"], NOW_US, NOW_US + 1)
    assert [(each.host, each.id) for each in found] == [("vm", event.id)]
    assert host.list_events([], NOW_US, NOW_US + 1) == []
    host.pin("vm", event)
    [in_ring] = layout.ring_pins(home, "db-7").pins()
    assert Pins(home / "spool" / "pins").pins() == (in_ring,)
    assert in_ring.why == "net.driver_reset: reset"
    assert (in_ring.begin_us, in_ring.end_us) == (NOW_US - 60_000_000, NOW_US + 30_000_000)
    host.pin("vm", lasting)
    ends = {pin.id: pin.end_us for pin in Pins(home / "spool" / "pins").pins()}
    assert ends[lasting.id] == NOW_US + 35_000_000


def test_the_space_of_all_files_counts_and_that_of_holes_does_not(
    host: hosts.LocalHost, home: pathlib.Path
) -> None:
    before = host.used_bytes()
    (home / "a" / "b").mkdir(parents=True)
    for name in ("one", "a/two", "a/b/three"):
        (home / name).write_bytes(b"x" * 1_000_000)
    with (home / "hole").open("wb") as file:
        file.truncate(1 << 30)
    assert 3_000_000 <= host.used_bytes() - before < 4_000_000


def test_this_machine_may_do_what_its_configuration_lists_and_what_the_plan_names(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    own = task_config.Command(("/usr/bin/true",), 5.0)
    listed = task_config.TaskConfig(
        allow=frozenset(), max_seconds=60, builtin=frozenset({"softnet"}),
        changes={"purge": own, "mask-scout": own},
    )  # fmt: skip
    monkeypatch.setattr(task_config, "read", lambda: listed)
    plan = Plan(
        name="x",
        instruments=(InstrumentPlan(name="offcpu"),),
        experiment=ExperimentPlan(allow=("purge", "mask-unit")),
    )
    config = hosts.own_config(plan)
    assert config.allow == set(TaskKind)
    assert config.max_seconds == 14 * 86_400
    assert config.builtin == {"softnet", "offcpu"}
    # What root wrote down comes first.
    assert {name: config.changes[name] is own for name in config.changes} == {
        "purge": True,
        "mask-unit": False,
        "mask-scout": True,
    }
    change = config.changes["mask-unit"]
    assert isinstance(change, task_config.BuiltinChange)
    assert change.check("ember.service").target == "ember.service"
