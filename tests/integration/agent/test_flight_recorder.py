"""The flight recorder on this host: real incidents become events with their time and core."""

from __future__ import annotations

import http.client
import json
import os
import pathlib
import re
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import kernellines
import livehost
import machines
import noise
import pytest
from prometheus_client.openmetrics import parser

from overnight.sources import cpu, interrupts
from overnight.store.ring import check, reader

if TYPE_CHECKING:
    from overnight.model.event import Event

pytestmark = pytest.mark.needs_root
# Its own supervisor: systemd sees no failure while its tasks die one after the other.
SUPERVISE = """
path=$(sed -n 's/^[0-9]*:name=systemd:/systemd/p' /proc/self/cgroup)
[ -n "$path" ] || path=$(sed -n 's/^0:://p' /proc/self/cgroup)
cd "/sys/fs/cgroup/$path" || exit 1
while :; do
  mkdir task
  sh -c 'echo 0 > task/cgroup.procs; exec sleep 0.05'
  until rmdir task; do :; done
done
"""
CORES = cpu.online()


class Agent:
    """`python -m overnight.agent` in a process of its own."""

    def __init__(self, home: pathlib.Path, *more: str) -> None:
        self.home = home
        self.process = subprocess.Popen(
            [sys.executable, "-m", "overnight.agent", "--home", str(home), *more],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def events(self, kind: str) -> tuple[Event, ...]:
        return reader.Reader(self.home).events(0, time.time_ns() // 1000 + 10**9, kinds=[kind])

    def polls(self, signal_name: str) -> list[int]:
        """The wall times of a signal's polls so far."""
        source = reader.Reader(self.home)
        return [
            when
            for host in source.hosts()
            for frame in source.numbers(host, signal_name, 0, time.time_ns() // 1000 + 10**9)
            for when in frame.wall_us
        ]

    def series(self, signal_name: str, key: str, column: str, begin_us: int) -> dict[int, int]:
        """The numbers of one row since `begin_us`, by wall time."""
        values: dict[int, int] = {}
        source = reader.Reader(self.home)
        for host in source.hosts():
            for frame in source.numbers(host, signal_name, begin_us, begin_us + 10**9, keys=[key]):
                if key in frame.keys and column in frame.columns:
                    values.update(zip(*frame.series(key, column), strict=True))
        return values

    def end(self, number: signal.Signals = signal.SIGTERM) -> dict[str, object]:
        self.process.send_signal(number)
        out, stderr = self.process.communicate(timeout=noise.HANG_SECONDS)
        if number is not signal.SIGKILL:
            assert self.process.returncode == 0, stderr
        return dict(json.loads(out.splitlines()[-1])) if out else {}


@pytest.fixture
def start(tmp_path: pathlib.Path, wait_for: Callable[..., None]) -> Iterator[Callable[..., Agent]]:
    """Start agents and wait for their first poll; end those left by a test."""
    started: list[Agent] = []

    def begin(*more: str, home: pathlib.Path | None = None) -> Agent:
        agent = Agent(home or tmp_path, *more)
        started.append(agent)
        before = len(agent.polls("cpu"))
        wait_for(lambda: len(agent.polls("cpu")) > before)
        return agent

    yield begin
    for agent in started:
        if agent.process.poll() is None:
            agent.process.kill()
        agent.process.communicate()


@pytest.mark.together
def test_a_pinned_core_is_an_event_with_its_core_time_and_process(
    start, wait_for, tmp_path
) -> None:
    """On a fake host: whether a core stands out on the real one depends on its other load."""
    with livehost.LiveHost(tmp_path / "root") as host:
        agent = start("--root", str(host.root), home=tmp_path / "home")
        host.saturate(1, pid=4242, name="the-hog")
        began = time.time()
        wait_for(lambda: agent.events("cpu.core_pinned"))
        wait_for(lambda: all("the-hog" in e.process for e in agent.events("cpu.core_pinned")))
        events = agent.events("cpu.core_pinned")
    assert {event.core for event in events} == {1}
    # The first poll after the start may be late; a starved agent restarts its count.
    assert all(began - 2 <= event.time_us / 1e6 <= began + 60 for event in events)
    assert all(event.process == "the-hog[4242]" for event in events)
    assert all(abs(event.fields["others_percent"] - 10) < 2 for event in events)
    assert {event.severity for event in events} <= {"warning", "critical"}
    # A pin is written, and synced, after its event.
    ids, source = {event.id for event in events}, reader.Reader(agent.home)
    wait_for(lambda: ids <= {pin.id for pin in source.pins(events[0].host)})
    assert int(str(agent.end()["events"])) >= 1


def test_a_busy_core_of_this_host_is_recorded_with_its_process(start, busy, wait_for) -> None:
    """The real files behind the event above, with any load on the other cores."""
    agent = start()
    core = str(CORES[-1])
    with busy(CORES[-1], 1.0, "the-hog") as pid:
        began = time.time_ns() // 1000
        wait_for(lambda: agent.series("processes", f"{pid} the-hog", "utime", began))
        wait_for(lambda: len(agent.series("cpu", core, "idle", began)) >= 4)
        idle = agent.series("cpu", core, "idle", began)
    seconds = (max(idle) - min(idle)) / 1e6
    ticks = (idle[max(idle)] - idle[min(idle)]) / os.sysconf("SC_CLK_TCK")
    assert ticks < 0.1 * seconds


def test_a_driver_line_is_an_event_with_queue_and_core_within_a_second(start, wait_for) -> None:
    agent = start()
    facts = interrupts.open_queues()()
    key = next(k for k, fact in facts.items() if fact["core"] != -1 and fact["queue"] != -1)
    interface, queue = str(facts[key]["interface"]), int(facts[key]["queue"])
    host = os.uname().nodename
    source = reader.Reader(agent.home)
    wait_for(lambda: source.facts(host, "nic-queues", time.time_ns() // 1000).state)
    line = (
        f"ena 0000:20:03.0 {interface}: TX q {queue} is paused for too long (threshold 5000000). "
        "Time since last napi 6596000 usec. napi scheduled: 1"
    )
    before = time.monotonic()
    pathlib.Path("/dev/kmsg").write_text(f"{line} (a test of overnight)\n")
    after = time.monotonic()
    wait_for(lambda: agent.events("net.driver_reset"))
    (event,) = agent.events("net.driver_reset")
    assert event.fields["queue"] == queue
    assert event.fields["interface"] == interface
    assert event.core == interrupts.core_of(facts, interface, queue)
    assert event.fields["written_by_process"] is True
    # The kernel stamps the line itself: however late it is read, the event has the right time.
    assert before - 0.5 < event.monotonic_ns / 1e9 < after + 0.5
    assert event.severity == "critical"


def test_events_are_followed_as_they_happen(start, tmp_path) -> None:
    start()
    words = ["events", "--follow", "-O", "json", "--kind", "rcu.stall"]
    follow = subprocess.Popen(
        [sys.executable, "-m", "overnight", "--home", str(tmp_path), *words],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert follow.stdout is not None
    try:
        deadline = time.monotonic() + 60
        # Repeat: it reports only events after its own start.
        while not select.select([follow.stdout], [], [], 1.0)[0]:
            assert time.monotonic() < deadline
            line = "rcu: INFO: rcu_sched self-detected stall on CPU (a test of overnight)"
            pathlib.Path("/dev/kmsg").write_text(f"{line}\n")
        event = json.loads(follow.stdout.readline())
        assert event["kind"] == "rcu.stall"
        assert event["fields"]["written_by_process"] is True
    finally:
        follow.send_signal(signal.SIGINT)
        follow.communicate(timeout=noise.HANG_SECONDS)
    assert follow.returncode == 0


@pytest.mark.together
def test_kill_9_loses_at_most_the_last_second_and_the_next_agent_continues(
    start, tmp_path, wait_for
) -> None:
    agent = start()
    wait_for(lambda: len(agent.polls("cpu")) >= 2)
    waited = noise.read_waited([agent.process.pid])
    wait_for(lambda: len(agent.polls("cpu")) >= 4)
    killed, waited = time.time(), noise.read_waited([agent.process.pid]) - waited
    agent.end(signal.SIGKILL)
    last = max(agent.polls("cpu")) / 1e6
    # One poll a second, written within the next; the time that the agent waited for a core is not lost.
    assert killed - last < 2.5 + waited
    before = len(agent.polls("cpu"))
    time.sleep(max(0.0, killed + 3.5 - time.time()))  # long enough to count as an absence
    again = start()
    again.end()
    gaps = reader.Reader(tmp_path).gaps(os.uname().nodename)
    (gap,) = [gap for gap in gaps if "this host did not let the agent run" not in gap.why]
    assert gap.why == "the flight recorder did not run"
    assert abs(gap.begin_us / 1e6 - last) < 0.01
    assert len(again.polls("cpu")) > before
    assert check.check(tmp_path).problems == ()


@pytest.mark.together
def test_kernel_lines_that_were_written_while_no_recorder_ran_are_stored_once(
    start, wait_for, tmp_path
) -> None:
    mark = f"ovn{os.getpid()}x{time.time_ns()}"
    (tmp_path / "rules").mkdir()
    (tmp_path / "rules/test.toml").write_text(kernellines.make_rules(mark))
    kernellines.write(mark, range(100))  # before the first recorder
    agent = start()
    kernellines.write(mark, range(100, 110))
    wait_for(lambda: len(agent.events(kernellines.KIND)) >= 5)
    agent.end(signal.SIGKILL)
    kernellines.write(mark, range(110, 130))
    agent = start()
    agent.end()  # stopped, not killed
    kernellines.write(mark, range(130, 140))
    agent = start()
    wait_for(lambda: kernellines.count(agent.events(kernellines.KIND))[139])
    agent.end()
    assert kernellines.count(agent.events(kernellines.KIND)) == dict.fromkeys(range(100, 140), 1)


@pytest.mark.together
def test_metrics_are_served_only_on_loopback(start, wait_for) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    start("--metrics", str(port))

    def page() -> str:
        try:
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
            connection.request("GET", "/metrics")
            answer = connection.getresponse()
            return answer.read().decode() if answer.status == 200 else ""
        except OSError:
            return ""

    wait_for(lambda: "overnight_memory_cgroups" in page())
    names = {family.name for family in parser.text_string_to_metric_families(page())}
    assert {"overnight_host", "overnight_memory_cgroups", "overnight_agent_cpu_seconds"} <= names
    listening = pathlib.Path("/proc/net/tcp").read_text()
    assert re.search(rf"0100007F:{port:04X} 00000000:0000 0A", listening)
    assert f"00000000:{port:04X} " not in listening


@pytest.mark.together
def test_a_second_agent_for_the_same_home_names_the_first(start, tmp_path) -> None:
    start()
    done = subprocess.run(
        [sys.executable, "-m", "overnight.agent", "--home", str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=noise.HANG_SECONDS,
        check=False,
    )
    assert done.returncode == 3
    assert "already being recorded" in done.stderr


@pytest.mark.long  # units are polled every 30 s
@pytest.mark.needs_nspawn
def test_visible_and_hidden_loops_in_a_booted_machine_are_events(start, wait_for) -> None:
    units = {
        "loop.service": machines.unit("exit 3", service="Restart=always\nRestartSec=50ms"),
        "hidden.service": machines.unit("exec sh /supervise", service="Delegate=yes"),
    }
    with machines.machine(units, {"supervise": SUPERVISE}):
        agent = start()

        def units_of(kind: str) -> set[str]:
            return {event.unit.rpartition(":")[2] for event in agent.events(kind)}

        wait_for(lambda: "hidden.service" in units_of("unit.hidden_crash_loop"), 60)
        wait_for(lambda: "loop.service" in units_of("unit.crash_loop"), 90)
        assert "hidden.service" not in units_of("unit.crash_loop")


@pytest.mark.together
def test_a_host_that_died_is_an_event_after_it_came_back(start, wait_for, tmp_path) -> None:
    """A core is saturated, and the host dies: kill -9, and another boot id."""
    root, home = tmp_path / "root", tmp_path / "home"
    with livehost.LiveHost(root) as host:
        agent = start("--root", str(root), home=home)
        host.saturate(1, pid=4242, name="the-hog")
        wait_for(lambda: agent.events("cpu.core_pinned"))
        agent.end(signal.SIGKILL)
    last = max(agent.polls("cpu"))
    before = {event.boot for event in agent.events("cpu.core_pinned")}
    with livehost.LiveHost(root):
        boot = root / "proc/sys/kernel/random/boot_id"
        boot.write_text("9f8e7d6c-4b5a-6978-8796-a5b4c3d2e1f0\n")
        agent = start("--root", str(root), home=home)
        wait_for(lambda: agent.events("host.unclean_reboot"))
        agent.end()
        start("--root", str(root), home=home).end(signal.SIGKILL)  # it dies again in the same boot
        start("--root", str(root), home=home).end()
    (event,) = agent.events("host.")
    assert last - 2_000_000 <= event.time_us <= last
    assert {boot[:8] for boot in before} == {event.boot}
    assert event.id in {pin.id for pin in reader.Reader(home).pins(event.host)}
