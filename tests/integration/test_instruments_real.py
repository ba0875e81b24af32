"""Each instrument with the real tool on this kernel, through the command; nothing is left behind."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import secrets
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from overnight import errors, instruments
from overnight.agent import task_runner
from overnight.agent.uplink import tasks
from overnight.app import instrument
from overnight.instruments import runner
from overnight.model.instrument import ReadingKind
from overnight.store import readings

pytestmark = pytest.mark.needs_root
bpftrace = pytest.mark.needs_bpftrace
CLI = (sys.executable, "-m", "overnight")


def find_processes(mark: str) -> list[str]:
    """Return the tools that a test started, also through a process that was killed."""
    found = []
    for path in pathlib.Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            name = (path.parent / "comm").read_text(errors="replace").strip()
            if mark.encode() in path.read_bytes() and name in ("bpftrace", "perf"):
                found.append(f"{path.parent.name} {name}")
    return found


@pytest.fixture(autouse=True)
def nothing_left(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    mark = f"OVERNIGHT_TEST_MARK={secrets.token_hex(8)}"
    monkeypatch.setenv(*mark.split("="))
    folder = pathlib.Path("/sys/kernel/tracing/instances")
    instances = set(folder.iterdir()) if folder.is_dir() else set()
    yield mark
    wait_for(lambda: not find_processes(mark), "a tool is left")
    assert (set(folder.iterdir()) if folder.is_dir() else set()) <= instances


def wait_for(done: Callable[[], object], problem: str) -> None:
    deadline = time.monotonic() + 30
    while not done():
        assert time.monotonic() < deadline, problem
        time.sleep(0.02)


def run(home: pathlib.Path, name: str, target: str = "", act: Callable[[], object] = lambda: None, seconds: float = 20.0, until: Callable[[instrument.Reading], bool] = lambda _: True) -> instrument.Result:  # fmt: skip
    """Run an instrument until a reading is as wanted; `act` is called again and again meanwhile."""
    stop, over = threading.Event(), threading.Event()

    def keep_acting() -> None:
        while not over.wait(0.2):
            act()

    def look(found: object) -> None:
        assert isinstance(found, list)
        if any(map(until, found)):
            stop.set()

    actor = threading.Thread(target=keep_acting)
    actor.start()
    try:
        request = instrument.Request(name, target, seconds, home, "host-a")
        return instrument.run(request, stop, look)
    finally:
        over.set()
        actor.join()


def use_each_core() -> None:
    """Keep each core busy for some ticks: an idle one has no interrupts."""
    allowed = os.sched_getaffinity(0)  # of this thread
    for core in allowed:
        os.sched_setaffinity(0, {core})
        until = time.monotonic() + 0.05
        while time.monotonic() < until:
            pass
    os.sched_setaffinity(0, allowed)


def check_cost(result: instrument.Result) -> None:
    (recording,) = result.recordings
    assert recording.ended
    assert recording.usage.cpu_seconds > 0
    tool = instruments.discover()[recording.instrument].tool
    assert (recording.usage.kernel_seconds is not None) == (tool == "bpftrace")


@pytest.mark.parametrize(
    ("name", "kinds"),
    [
        pytest.param("runqueue-latency", {"run-queue"}, marks=bpftrace),
        pytest.param("interrupt-time", {"softirq", "hardirq"}, marks=bpftrace),
        pytest.param("scheduler-tracepoints", {"run-queue"}, marks=pytest.mark.needs_perf),
        pytest.param("interrupt-tracepoints", {"softirq", "hardirq"}, marks=pytest.mark.needs_perf),
    ],
)
def test_every_second_of_each_core(tmp_path: pathlib.Path, name: str, kinds: set[str]) -> None:
    now_us, missing = time.time_ns() // 1000, {(kind, core) for kind in kinds for core in os.sched_getaffinity(0)}  # fmt: skip

    def is_complete(reading: instrument.Reading) -> bool:
        if "count" in reading.values:
            missing.discard((reading.kind, reading.core))
        return all(kind == "hardirq" for kind, _ in missing)  # a core may have none

    result = run(tmp_path, name, act=use_each_core, seconds=3.0, until=is_complete)
    check_cost(result)
    found = [reading for _, reading in readings.read_readings(tmp_path, "host-a", 0, 1 << 62)]
    assert {reading.kind for reading in found} <= kinds
    sums = [reading for reading in found if "count" in reading.values]
    assert {reading.core for reading in sums} == os.sched_getaffinity(0)
    for reading in sums:
        assert now_us < reading.time_us < now_us + 60_000_000
        assert 0 <= reading.values["max_us"] < 60e6


@bpftrace
def test_a_task_that_waits_for_a_busy_core_is_seen(tmp_path: pathlib.Path) -> None:
    core = max(os.sched_getaffinity(0))
    spin = f"import os\nos.sched_setaffinity(0, {{{core}}})\nwhile True: pass"
    spinners = [subprocess.Popen([sys.executable, "-c", spin]) for _ in range(8)]
    try:
        pids = {process.pid for process in spinners}
        result = run(
            tmp_path,
            "runqueue-latency",
            until=lambda reading: reading.core == core and reading.pid in pids,
        )
    finally:
        for process in spinners:
            process.kill()
            process.wait()
    assert any(row.core == core and row.max_us >= 20_000 and row.subject for row in result.rows)


@bpftrace
def test_the_creating_process_of_a_cgroup(tmp_path: pathlib.Path) -> None:
    top = pathlib.Path("/sys/fs/cgroup/memory")
    top = top if top.is_dir() else pathlib.Path("/sys/fs/cgroup")
    name = f'overnight-test-{os.getpid()} a"b,|é'

    def create() -> None:
        subprocess.run(["/bin/mkdir", str(top / name)], check=True)
        subprocess.run(["/bin/rmdir", str(top / name)], check=True)

    result = run(
        tmp_path, "cgroup-churn", act=create,
        until=lambda reading: reading.kind == ReadingKind.CGROUP_CREATED and reading.text.endswith(name) and reading.subject == "mkdir",
    )  # fmt: skip
    check_cost(result)
    found = [reading for _, reading in readings.read_readings(tmp_path, "host-a", 0, 1 << 62)]
    (created, *_) = [reading for reading in found if reading.text.endswith(name) and reading.kind == ReadingKind.CGROUP_CREATED]  # fmt: skip
    assert (created.subject, created.values["memory"]) == ("mkdir", 1.0)


@bpftrace
@pytest.mark.together
def test_where_a_process_sleeps(tmp_path: pathlib.Path) -> None:
    sleeper = subprocess.Popen(["/bin/sh", "-c", "while :; do sleep 0.1; done"])
    try:
        slow = run(tmp_path / "a", "slow-syscalls", "sleep", until=lambda reading: "sleep" in reading.subject)  # fmt: skip
        stacks = run(tmp_path / "b", "off-cpu", "sleep", until=lambda reading: "nanosleep" in reading.text)  # fmt: skip
    finally:
        sleeper.kill()
        sleeper.wait()
    check_cost(slow)
    check_cost(stacks)
    (row, *_) = slow.rows
    assert (row.kind, row.subject) == ("syscall", "clock_nanosleep")
    assert row.max_us >= 100_000
    assert any(row.subject == "sleep" and "schedule" in row.text.split(";") for row in stacks.rows)


@bpftrace
def test_a_functions_latency_or_why_it_cannot_be_traced(tmp_path: pathlib.Path) -> None:
    """By fentry or kprobe where the kernel allows one; this machine's kernel has neither."""
    problem = None
    try:
        result = run(
            tmp_path, "function-latency", "vfs_read", act=lambda: pathlib.Path("/proc/uptime").read_text(),
            until=lambda reading: reading.subject == "vfs_read",
        )  # fmt: skip
    except errors.CannotError as error:
        problem = error
    if problem is None:
        assert any(row.count and row.kind == "function" for row in result.rows)
    else:
        assert "cannot trace the kernel function vfs_read" in problem.what
        assert "kfunc: " in problem.why
        assert "kprobe: " in problem.why
        assert "CONFIG_KPROBES" in problem.todo
    with pytest.raises(errors.CannotError, match="cannot trace the kernel function no_such_function"):  # fmt: skip
        instruments.discover()["function-latency"].prepare("no_such_function")


@bpftrace
@pytest.mark.together
def test_kill_9_leaves_no_process_and_readable_readings(tmp_path: pathlib.Path) -> None:
    words = ("--home", str(tmp_path), "instrument", "runqueue-latency", "--for", "5m")
    process = subprocess.Popen([*CLI, *words], stdout=subprocess.DEVNULL)

    def find() -> list[object]:
        return [each for found in readings.read_recordings(tmp_path) for each in readings.read_readings(tmp_path, found.host, 0, 1 << 62)]  # fmt: skip

    wait_for(find, "nothing was read")
    (recording,) = readings.read_recordings(tmp_path)
    assert recording.running
    process.kill()
    process.wait()
    (recording,) = readings.read_recordings(tmp_path)
    assert (recording.ended, recording.running) == (False, False)
    assert find()


@pytest.mark.needs_perf
def test_kill_9_leaves_no_perf(tmp_path: pathlib.Path, nothing_left: str) -> None:
    words = ("--home", str(tmp_path), "instrument", "scheduler-tracepoints", "--for", "5m")
    process = subprocess.Popen([*CLI, *words], stdout=subprocess.DEVNULL)
    wait_for(lambda: len(find_processes(nothing_left)) == 2, "perf did not start")
    process.kill()
    process.wait()


@bpftrace
@pytest.mark.together
def test_an_agent_runs_it_as_a_task(tmp_path: pathlib.Path) -> None:
    tmp_path.chmod(0o700)
    config = tmp_path / "agent.toml"
    config.write_text("[tasks]\nallow = ['instrument']\ninstruments = ['interrupt-time']\n")
    config.chmod(0o600)
    agent = task_runner.TaskRunner(tmp_path, "host-a", config)
    arguments = {"name": "interrupt-time", "seconds": 1}
    task = {"id": "1", "kind": "instrument", "arguments": arguments, "expires_us": 1 << 60}
    tasks.Tasks(tmp_path / "uplink" / "tasks").accept(task)
    state = tmp_path / "uplink/tasks/1/state.json"

    def is_done() -> bool:
        agent.step()
        return (tasks.read_json(state) or {}).get("state") in tasks.FINAL

    try:
        wait_for(is_done, "the task did not end")
    finally:
        agent.close()
    assert (tasks.read_json(state) or {})["state"] == "done"
    (recording,) = readings.read_recordings(tmp_path)
    assert list(readings.read_readings(tmp_path, recording.host, 0, 1 << 62))


@bpftrace
def test_a_signal_ends_it_and_the_command_shows_readings(tmp_path: pathlib.Path) -> None:
    words = ("--home", str(tmp_path), "instrument", "interrupt-time", "--for", "5m", "-O", "json")
    process = subprocess.Popen([*CLI, *words], stdout=subprocess.PIPE)
    wait_for(lambda: readings.read_recordings(tmp_path), "it did not start")
    (recording,) = readings.read_recordings(tmp_path)
    wait_for(lambda: list(readings.read_readings(tmp_path, recording.host, 0, 1 << 62)), "nothing was read")  # fmt: skip
    process.send_signal(signal.SIGTERM)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    document = json.loads(output)
    assert document["schema"] == "overnight.instrument/1"
    assert document["recordings"][0]["ended"]
    assert any(row["kind"] == "softirq" for row in document["rows"])
    shown = subprocess.run([*CLI, "--home", str(tmp_path), "instrument", "show"], capture_output=True, text=True, check=True)  # fmt: skip
    assert "softirq  core " in shown.stdout
    assert "% of a core" in shown.stdout
    assert "lost 0 events" in shown.stdout


@bpftrace
@pytest.mark.together
def test_tracefs_is_mounted_for_the_instrument_alone(tmp_path: pathlib.Path) -> None:
    unmount = "for each in /sys/kernel/tracing /sys/kernel/debug/tracing; do while umount $each 2>&-; do :; done; done"
    check = '"$@" && [ -z "$(grep tracefs /proc/mounts)" ]'
    words = (*CLI, "--home", str(tmp_path), "instrument", "interrupt-time", "--for", "1s")
    subprocess.run(
        ["unshare", "--mount", "/bin/sh", "-c", f"{unmount}; {check}", "sh", *words], check=True
    )
    (recording,) = readings.read_recordings(tmp_path)
    assert recording.ended


def test_commands_run_only_if_the_host_lists_them(tmp_path: pathlib.Path) -> None:
    config = tmp_path / "agent.toml"
    program = "echo one; echo two >&2; env; exec sleep 300"
    config.write_text(f'[instruments.talk]\nargv = ["/bin/sh", "-c", "{program}"]\n[instruments.fail]\nargv = ["/bin/false"]\n')  # fmt: skip
    config.chmod(0o600)
    tmp_path.chmod(0o700)
    home = tmp_path / "home"

    def start(name: str) -> instrument.Result:
        stop = threading.Event()
        request = instrument.Request(name, "", 30.0, home, "host-a", config)

        def look(found: object) -> None:
            assert isinstance(found, list)
            if any(reading.text.startswith("PATH=") for reading in found):
                stop.set()

        return instrument.run(request, stop, look)

    (row,) = start("talk").rows
    assert (row.kind, row.subject) == (ReadingKind.LINE, "talk")
    lines = [reading.text for _, reading in readings.read_readings(home, "host-a", 0, 1 << 62)]
    assert lines[0] == "one"
    assert not any(line.startswith("HOME=") for line in lines)  # a clean environment
    with pytest.raises(errors.CannotError, match="false ended with exit code 1"):
        start("fail")
    with pytest.raises(errors.UsageError, match="unknown instrument 'other'"):
        start("other")
    listed = {each.name for each in instrument.list_instruments(config).instruments}
    assert {"talk", "fail", "cgroup-churn"} <= listed


def test_a_tool_that_fails_is_reported_with_its_reason() -> None:
    pipeline = instruments.Pipeline(
        (("/bin/sh", "-c", "echo ERROR: not today >&2; exit 3"),), _Nothing()
    )
    with pytest.raises(errors.CannotError, match="sh ended with exit code 3") as caught:
        runner.run(pipeline, 5.0, threading.Event(), lambda _: None)
    assert caught.value.why == "not today"
    missing = instruments.Pipeline((("/no/such/tool",),), _Nothing())
    with pytest.raises(errors.CannotError, match="cannot start /no/such/tool"):
        runner.run(missing, 5.0, threading.Event(), lambda _: None)


class _Nothing:
    lost = 0

    def feed(self, _: bytes) -> tuple[()]:
        return ()


def test_a_flood_is_bounded(tmp_path: pathlib.Path) -> None:
    class Flood(_Nothing):
        def feed(self, _: bytes) -> Iterator[tuple[int, instrument.Reading]]:  # type: ignore[override]
            yield 0, instrument.Reading(0, ReadingKind.LINE)

    kept: list[object] = []
    pipeline = instruments.Pipeline((("/bin/sh", "-c", "yes | head -n 50000"),), Flood(), is_endless=False)  # fmt: skip
    usage = runner.run(pipeline, 30.0, threading.Event(), kept.extend)
    assert usage.dropped + len(kept) == 50_000
    assert usage.dropped > 0
