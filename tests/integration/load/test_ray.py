"""Trials over the hosts of a real Ray cluster: two nodes on this machine, each with a core of its own."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import pathlib
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator

import jsonschema
import pytest

from overnight.store import loads
from overnight.undo import journal

pytestmark = [
    pytest.mark.long,
    pytest.mark.alone,
    pytest.mark.timeout(300),
    pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is not installed"),
]
REPOSITORY = pathlib.Path(__file__).parents[3]
CORES = sorted(os.sched_getaffinity(0))[:2]
STORE_BYTES = 80 << 20


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def start_node(core: int, environment: dict[str, str], *options: str) -> subprocess.Popen[bytes]:
    ports = (f"--dashboard-agent-listen-port={free_port()}", f"--metrics-export-port={free_port()}")
    memory = ("--num-cpus=1", f"--object-store-memory={STORE_BYTES}", "--memory=1000000000")
    return subprocess.Popen(
        ["taskset", "-c", str(core), sys.executable, "-m", "ray.scripts.scripts", "start", "--block", "--disable-usage-stats", *ports, *memory, *options],
        env=environment, start_new_session=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip


def processes_in(session: int) -> set[int]:
    found = set()
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if os.getsid(int(folder.name)) == session:
                found.add(int(folder.name))
    return found


def end_node(node: subprocess.Popen[bytes]) -> None:
    node.send_signal(signal.SIGTERM)
    try:
        node.wait(20)
    except subprocess.TimeoutExpired:
        node.kill()
        node.wait()
    for pid in processes_in(node.pid):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


@pytest.fixture(scope="module")
def cluster() -> Iterator[tuple[str, dict[str, str]]]:
    """Start two nodes, and end them; yields their address and the environment of clients."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix="or-"))  # short: a socket path is limited
    token = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
    environment = {**os.environ, **token, "OVERNIGHT_UNDO": str(folder / "undo")}
    port = free_port()
    address = f"127.0.0.1:{port}"
    head = ("--head", f"--port={port}", "--node-ip-address=127.0.0.1", "--include-dashboard=false", f"--temp-dir={folder}/ray")  # fmt: skip
    nodes = [start_node(CORES[0], environment, *head)]
    try:
        deadline = time.monotonic() + 60
        while True:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                break
            assert time.monotonic() < deadline, "the head did not start"
            time.sleep(0.2)
        nodes.append(start_node(CORES[-1], environment, f"--address={address}", "--node-ip-address=127.0.0.1"))  # fmt: skip
        wait_for_nodes(address, environment)
        yield address, environment
    finally:
        for node in reversed(nodes):
            end_node(node)
        shutil.rmtree(folder, ignore_errors=True)


def wait_for_nodes(address: str, environment: dict[str, str]) -> None:
    code = (
        "import ray, sys, time\n"
        f"ray.init(address={address!r}, log_to_driver=False)\n"
        "end = time.monotonic() + 60\n"
        "while sum(node['Alive'] for node in ray.nodes()) < 2 and time.monotonic() < end: time.sleep(0.5)\n"
        "sys.exit(sum(node['Alive'] for node in ray.nodes()) != 2)\n"
    )
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, env=environment, capture_output=True, timeout=90, check=False)
    assert done.returncode == 0, done.stderr.decode()[-2000:]


def start_load(
    home: pathlib.Path, environment: dict[str, str], *options: str
) -> subprocess.Popen[bytes]:
    program = [sys.executable, "-m", "overnight", "--home", str(home), "load", "trials", "--orchestrator", "ray"]  # fmt: skip
    return subprocess.Popen(
        [*program, *options], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )


def workers_left() -> list[str]:
    found = []
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            if "overnight.load.worker" in command and "ray-test" in command:
                found.append(f"{folder.name} {command[:80]}")
    return found


def until_no_worker_is_left() -> None:
    deadline = time.monotonic() + 30
    while workers_left():
        assert time.monotonic() < deadline, workers_left()
        time.sleep(0.2)


@pytest.mark.skipif(len(CORES) < 2, reason="each node needs a core")
def test_one_trial_runs_on_each_host_with_the_same_loss(
    cluster: tuple[str, dict[str, str]], tmp_path: pathlib.Path
) -> None:
    address, environment = cluster
    options = ("--address", address, "--for", "20s", "--duty", "30%", "--steps", "2000", "--name", "ray-test", "-O", "json")  # fmt: skip
    out, err = start_load(tmp_path, environment, *options).communicate(timeout=150)
    outcome = json.loads(out or "{}")
    assert outcome, err.decode()[-3000:]
    jsonschema.validate(outcome, json.loads((REPOSITORY / "docs/schemas/load-1.json").read_text()))
    hosts = outcome["hosts"]
    assert len({host["host"] for host in hosts}) == 2
    assert sorted(core for host in hosts for core in host["cores"]) == CORES
    assert outcome["loss"] is not None
    assert {host["loss"] for host in hosts} == {outcome["loss"]}
    assert all(host["trials"] >= 2 and host["ended_by"] == "time" for host in hosts)
    # How constant they were depends on the machine; that each host was judged does not.
    assert all(host["verdict"]["seconds"] >= 10 for host in hosts)
    judged = {host["host"]: host["verdict"]["seconds"] for host in hosts}
    stored = loads.read_loads(tmp_path)
    assert all(load.ended for load in stored)
    seconds = {load.host: list(loads.read_seconds(tmp_path, load)) for load in stored}
    # A report that is lost, or is sent twice, would show here.
    assert {host: sum(each["warm"] for each in rows) for host, rows in seconds.items()} == judged
    until_no_worker_is_left()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_a_stopped_or_killed_load_leaves_no_trial_on_the_hosts(
    cluster: tuple[str, dict[str, str]], tmp_path: pathlib.Path, number: signal.Signals
) -> None:
    address, environment = cluster
    started = start_load(tmp_path, environment, "--address", address, "--for", "5m", "--duty", "20%", "--name", "ray-test")  # fmt: skip
    try:
        deadline = time.monotonic() + 90
        while len(loads.read_loads(tmp_path)) < 2:
            assert started.poll() is None, started.stderr and started.stderr.read()[-2000:]
            assert time.monotonic() < deadline
            time.sleep(0.2)
        started.send_signal(number)
        started.communicate(timeout=60)
    finally:
        started.kill()
    until_no_worker_is_left()
    ended = {load.ended for load in loads.read_loads(tmp_path)}
    assert ended == {number is signal.SIGINT}
    undo = pathlib.Path(environment["OVERNIGHT_UNDO"])
    deadline = time.monotonic() + 30
    while any(left.state == "running" for left in journal.runs(undo)):
        assert time.monotonic() < deadline
        time.sleep(0.2)
    assert journal.clean(undo)[1] == []


def test_a_missing_host_of_the_cluster_is_reported(
    cluster: tuple[str, dict[str, str]], tmp_path: pathlib.Path
) -> None:
    address, environment = cluster
    started = start_load(tmp_path, environment, "--address", address, "--hosts", "elsewhere")
    _, err = started.communicate(timeout=90)
    assert started.returncode != 0
    assert "does not have elsewhere" in err.decode()


def test_an_address_without_a_cluster_is_reported_at_once(tmp_path: pathlib.Path) -> None:
    address = f"127.0.0.1:{free_port()}"
    environment = {**os.environ, "OVERNIGHT_UNDO": str(tmp_path / "undo")}
    started = start_load(tmp_path, environment, "--address", address)
    _, err = started.communicate(timeout=40)
    assert f"no Ray cluster answers at {address}" in err.decode()


def test_without_an_address_ray_is_started_here_and_ended(tmp_path: pathlib.Path) -> None:
    environment = {**os.environ, "OVERNIGHT_UNDO": str(tmp_path / "undo")}
    options = ("--trials", "2", "--steps", "500", "--cores", str(CORES[-1]), "--name", "ray-test", "-O", "json")  # fmt: skip
    out, err = start_load(tmp_path, environment, *options).communicate(timeout=120)
    outcome = json.loads(out or "{}")
    assert outcome, err.decode()[-3000:]
    assert (outcome["trials"], outcome["ended_by"]) == (2, "work")
    assert outcome["loss"] is not None
    assert len(outcome["hosts"]) == 1
    until_no_worker_is_left()
    assert journal.runs(tmp_path / "undo") == ()
