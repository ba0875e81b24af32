"""`overnight agent` on this host, against a server in this process."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import platform
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest
import uplink_server

from overnight.model import uplink
from overnight.model.event import Event
from overnight.store import added_events

pytestmark = [pytest.mark.needs_root, pytest.mark.timeout(240)]
EVER = 1 << 60
CONFIG = """
[tasks]
allow = ["snapshot", "upload-window", "load", "instrument", "stop"]
[labels]
rack = "b12"
[instruments.uptime]
argv = ["/usr/bin/cat", "/proc/uptime"]
"""


class Agent:
    def __init__(self, folder: pathlib.Path, url: str) -> None:
        self.home = folder / "home"
        self.token = folder / "token"
        self.token.write_text(uplink_server.TOKEN)
        config = folder / "agent.toml"
        config.write_text(CONFIG)
        config.chmod(0o644)
        folder.chmod(0o755)
        self.words = ["--home", str(self.home), "agent", "--server", url, "--signals-only", "--config", str(config)]  # fmt: skip
        self.process = self.start("--token-file", str(self.token))

    def start(self, *more: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "-m", "overnight", *self.words, *more],
            env={**os.environ, "PYTHONPATH": ":".join(sys.path)},
            start_new_session=True,
        )

    def children(self) -> dict[str, int]:
        """Return the agent's processes by module."""
        found = {}
        for path in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
            with contextlib.suppress(OSError):
                words = path.read_bytes().decode().split("\0")
                status = (path.parent / "stat").read_text().rpartition(")")[2].split()
                if int(status[1]) == self.process.pid and "-m" in words:
                    found[words[words.index("-m") + 1]] = int(path.parent.name)
        return found

    def add_event(self, name: str) -> None:
        event = Event(time.time_ns() // 1000, "job.failed", name, platform.node(), id=f"job.failed-{name}", source="operator", severity="info")  # fmt: skip
        added_events.add(self.home, [event])


@pytest.fixture
def server() -> Iterator[uplink_server.UplinkServer]:
    with uplink_server.running() as running:
        yield running


@pytest.fixture
def agent(tmp_path: pathlib.Path, server: uplink_server.UplinkServer) -> Iterator[Agent]:
    made = Agent(tmp_path, server.url)
    yield made
    made.process.send_signal(signal.SIGTERM)
    try:
        made.process.wait(100)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(made.process.pid, signal.SIGKILL)


def wait_until(done: object) -> None:
    assert callable(done)
    deadline = time.monotonic() + 60
    while not done():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_recorder_uplink_and_tasks(agent: Agent, server: uplink_server.UplinkServer) -> None:
    server.wait_for(lambda s: s.snapshots and s.labels and "kernel" in s.labels, 150)
    assert not agent.token.exists()
    labels = server.stored.labels
    assert labels is not None
    assert (labels["rack"], labels["kernel"]) == ("b12", platform.release())
    agent.add_event("one")
    server.wait_for(lambda s: "job.failed-one" in s.events)
    now = time.time_ns() // 1000
    asked = {
        "w": (uplink.TaskKind.UPLOAD_WINDOW, {"begin_us": now - 3_000_000, "end_us": now}),
        "i": (uplink.TaskKind.INSTRUMENT, {"name": "uptime"}),
        "r": (uplink.TaskKind.RECORD, {"seconds": 5}),
        "l": (uplink.TaskKind.LOAD, {"workload": "cpu", "seconds": 2, "duty": 5}),
    }
    server.tasks = [uplink.Task(name, kind, given, EVER) for name, (kind, given) in asked.items()]
    server.wait_for(lambda s: len({t for t, r in s.task_reports if r.state.is_final}) == 4, 100)
    final = {task: report for task, report in server.stored.task_reports if report.state.is_final}
    assert final["w"].state == "done"
    # An event of this host, such as a pinned core on a busy machine, brings its own window.
    assert final["w"].result["sha256"] in server.stored.complete
    assert float(str(final["i"].result["output"]).split()[0]) > 0
    assert final["r"].state == "refused"
    assert "does not allow record" in final["r"].detail
    assert final["l"].state in ("done", "failed")  # failed: on a loaded machine it is not constant
    assert (agent.home / "loads").exists()
    assert [task for task, report in server.stored.task_reports if report.state.is_final].count("i") == 1  # fmt: skip


def test_a_killed_uplink_is_started_again_while_the_recorder_goes_on(
    agent: Agent, server: uplink_server.UplinkServer
) -> None:
    server.wait_for(lambda s: s.reports)
    before = agent.children()
    for name in ("one", "two"):
        os.kill(agent.children()["overnight.agent.uplink"], signal.SIGKILL)
        agent.add_event(name)
        server.wait_for(lambda s, name=name: f"job.failed-{name}" in s.events)
    after = agent.children()
    assert after["overnight.agent"] == before["overnight.agent"]
    assert after["overnight.agent.uplink"] != before["overnight.agent.uplink"]


def test_kill_9_of_the_agent_ends_all_processes_and_forgets_no_task(
    agent: Agent, server: uplink_server.UplinkServer
) -> None:
    server.wait_for(lambda s: s.reports)
    server.tasks = [uplink.Task("l", uplink.TaskKind.LOAD, {"workload": "cpu", "seconds": 600, "duty": 1}, EVER)]  # fmt: skip
    server.wait_for(lambda s: s.task_reports)
    state = agent.home / "uplink/tasks/l/state.json"
    wait_until(lambda: "pid" in json.loads(state.read_text()))
    load = json.loads(state.read_text())["pid"]
    children = [pid for name, pid in agent.children().items() if name != "overnight"]
    agent.process.kill()
    agent.process.wait()
    wait_until(lambda: not any(pathlib.Path(f"/proc/{pid}").exists() for pid in children))
    agent.process = agent.start()
    server.wait_for(lambda s: s.task_reports[-1][1].state == "failed")
    assert server.stored.task_reports[-1][1].detail == "the agent ended while it ran"
    wait_until(lambda: not pathlib.Path(f"/proc/{load}").exists())


def test_another_agent_of_the_home_is_refused(
    agent: Agent, server: uplink_server.UplinkServer
) -> None:
    server.wait_for(lambda s: s.reports)
    done = subprocess.run(
        [sys.executable, "-m", "overnight", *agent.words],
        env={**os.environ, "PYTHONPATH": ":".join(sys.path)},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 3
    assert "another agent runs with this data home" in done.stderr
