"""Cost of the flight recorder on a host, compared with common monitoring agents.

All run in the same minute on the same machine, each polled every second. The peers come from Debian's packages,
unpacked into a folder: nothing is installed and no service is started. The 192-core host is a tree of files in
the kernel's formats, so the kernel's own work of producing them is not included.

    python -m benchmarks.agent      this host alone, and beside 2,000 processes and 500 forks a second: it
                                    needs only Python and the package, no peers and no network
"""

from __future__ import annotations

import contextlib
import http.client
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator

from benchmarks import Result
from benchmarks.support import crowd

__all__ = ["measure"]

SECONDS = 60.0
SETTLE = 5.0
STARTS = 11
PROCESSES, FORKS = 2000, 500
SUPPORT = pathlib.Path(__file__).parents[1] / "tests/support"
PACKAGES = ("sysstat", "prometheus-node-exporter", "netdata-core")
TICKS = os.sysconf("SC_CLK_TCK")


def _cost(pid: int) -> tuple[float, float]:
    """Return CPU seconds of a process and its waited-for children, and its resident megabytes."""
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    schedstat = pathlib.Path(f"/proc/{pid}/schedstat")
    cpu = sum(map(int, fields[11:15])) / TICKS
    if schedstat.exists() and len(list(pathlib.Path(f"/proc/{pid}/task").iterdir())) == 1:
        cpu = int(schedstat.read_text().split()[0]) / 1e9
    for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return cpu, int(line.split()[1]) / 1024
    return cpu, 0.0


@contextlib.contextmanager
def _running(command: list[str], **options: object) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **options
    )
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _peers(folder: pathlib.Path) -> pathlib.Path:
    """Return the files of those peers whose Debian packages are available."""
    target = folder / "peers"
    for package in PACKAGES if shutil.which("apt-get") else ():
        download = subprocess.run(
            ["apt-get", "download", "-qq", package], cwd=folder, capture_output=True, check=False
        )
        if download.returncode == 0:
            for file in folder.glob(f"{package}_*.deb"):
                subprocess.run(["dpkg", "-x", str(file), str(target)], check=True)
    return target


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def _scrape(ports: list[int], stop: threading.Event) -> None:
    """Scrape each of them every second, as Prometheus would."""
    begin = time.monotonic()
    for second in range(1, 1 << 30):
        if stop.wait(max(0.0, begin + second - time.monotonic())):
            return
        for port in ports:
            with contextlib.suppress(OSError, http.client.HTTPException):
                connection = http.client.HTTPConnection("127.0.0.1", port, timeout=2)
                connection.request("GET", "/metrics")
                connection.getresponse().read()
                connection.close()


def measure() -> list[Result]:
    with tempfile.TemporaryDirectory(prefix="overnight-bench-") as name:
        folder = pathlib.Path(name)
        return [
            *_side_by_side(folder),
            *_many_processes(folder),
            *_many_cores(folder),
            _start(folder),
        ]


def _agent(folder: pathlib.Path, *arguments: str) -> list[str]:
    home = tempfile.mkdtemp(dir=folder)
    return [sys.executable, "-m", "overnight.agent", "--home", home, *arguments]


def _side_by_side(folder: pathlib.Path) -> list[Result]:
    peers = _peers(folder)
    exporter = peers / "usr/bin/prometheus-node-exporter"
    few = ("cpu", "interrupts", "softnet", "pressure", "stat", "cgroups")
    commands: dict[str, list[str]] = {"overnight": _agent(folder)}
    ports: dict[str, int] = {"overnight, scraped": _free_port()}
    commands["overnight, scraped"] = _agent(folder, "--metrics", str(ports["overnight, scraped"]))
    if (peers / "usr/bin/mpstat").exists():
        commands["mpstat -P ALL 1"] = [str(peers / "usr/bin/mpstat"), "-P", "ALL", "1"]
    if exporter.exists():
        for name, arguments in (
            ("node_exporter", []),
            (
                "node_exporter, six collectors",
                [
                    "--collector.disable-defaults",
                    *(f"--collector.{collector}" for collector in few),
                ],
            ),
        ):
            ports[name] = _free_port()
            commands[name] = [
                str(exporter), f"--web.listen-address=127.0.0.1:{ports[name]}", *arguments
            ]  # fmt: skip
    if (peers / "usr/sbin/netdata").exists():
        commands["netdata"] = _netdata(peers, folder)
    stop = threading.Event()
    with contextlib.ExitStack() as stack:
        processes = {
            name: stack.enter_context(
                _running(command, env={**os.environ, "LD_LIBRARY_PATH": str(peers / "usr/lib")})
            )
            for name, command in commands.items()
        }
        scraper = threading.Thread(target=_scrape, args=(list(ports.values()), stop))
        scraper.start()
        time.sleep(SETTLE)
        before = {
            name: _cost(process.pid)
            for name, process in processes.items()
            if process.poll() is None
        }
        began = time.monotonic()
        time.sleep(SECONDS)
        seconds = time.monotonic() - began
        after = {
            name: _cost(processes[name].pid) for name in before if processes[name].poll() is None
        }
        stop.set()
        scraper.join()
    percent = {name: 100 * (after[name][0] - before[name][0]) / seconds for name in after}
    results = _results("agent", percent["overnight"], 0.2, after["overnight"][1])
    for name, used in percent.items():
        if name != "overnight":
            results += [
                Result(
                    "agent, CPU beside peers", percent["overnight"], "% of a core",
                    peer=name, peer_value=used,
                ),
                Result(
                    "agent, memory beside peers", after["overnight"][1], "MB",
                    peer=name, peer_value=after[name][1],
                ),
            ]  # fmt: skip
    return results


def _results(what: str, percent: float, goal: float, megabytes: float) -> list[Result]:
    where = f"{what}, {os.cpu_count()} cores"
    return [
        Result(where, percent, "% of a core", f"<= {goal}", percent <= goal),
        Result(f"{where}, memory", megabytes, "MB", "<= 30", megabytes <= 30),
    ]


def _alone(folder: pathlib.Path, what: str, goal: float) -> list[Result]:
    command = _agent(folder)
    with _running(command) as agent:
        _wait_for_poll(command)
        time.sleep(SETTLE)
        before, began = _cost(agent.pid), time.monotonic()
        time.sleep(SECONDS)
        after, seconds = _cost(agent.pid), time.monotonic() - began
    return _results(what, 100 * (after[0] - before[0]) / seconds, goal, after[1])


def _many_processes(folder: pathlib.Path) -> list[Result]:
    with crowd.running(PROCESSES, FORKS):
        forks, began = crowd.count_forks(), time.monotonic()
        results = _alone(folder, f"agent beside {PROCESSES:,} processes, {FORKS} forks/s", 0.6)
        rate = (crowd.count_forks() - forks) / (time.monotonic() - began)
        return [
            *results,
            Result("  processes beside it", crowd.count_processes(), "processes"),
            Result("  forks beside it", rate, "forks/s"),
        ]


def _netdata(peers: pathlib.Path, folder: pathlib.Path) -> list[str]:
    """Return a command that runs it in the foreground, on loopback, with its folders in a temporary one."""
    config = folder / "netdata.conf"
    names = ("config", "stock config", "log", "web", "cache", "lib", "home")
    lines = [
        "[global]", "run as user = root", "[directories]",
        *(f"{name} = {folder / 'netdata'}" for name in names),
        f"plugins = {peers / 'usr/lib/netdata/plugins.d'}",
        "[web]", f"bind to = 127.0.0.1:{_free_port()}",
        "[statsd]", "enabled = no", "[ml]", "enabled = no",
    ]  # fmt: skip
    (folder / "netdata").mkdir()
    config.write_text("\n".join(lines) + "\n")
    return [str(peers / "usr/sbin/netdata"), "-D", "-c", str(config)]


def _many_cores(folder: pathlib.Path) -> list[Result]:
    sys.path.insert(0, str(SUPPORT))
    import fakehost

    tree = folder / "192"
    host = fakehost.FakeHost(tree, 192, interfaces={"eth0": "ena"}, queues=32)
    with _running(_agent(folder, "--root", str(tree))) as agent:
        until = time.monotonic() + SETTLE
        while time.monotonic() < until:
            host.advance(1)
            time.sleep(1)
        before, began = _cost(agent.pid), time.monotonic()
        until = began + SECONDS
        while time.monotonic() < until:
            host.advance(1)
            time.sleep(1)
        after, seconds = _cost(agent.pid), time.monotonic() - began
    shutil.rmtree(tree)
    percent = 100 * (after[0] - before[0]) / seconds
    return [
        Result(
            "agent, 192 cores (files)", percent, "% of a core", goal="<= 0.6", met=percent <= 0.6
        ),
        Result("agent, 192 cores, memory", after[1], "MB"),
    ]


def _wait_for_poll(command: list[str]) -> None:
    home = pathlib.Path(command[command.index("--home") + 1])
    while not any(home.glob("signals/*/*.open")):
        time.sleep(0.002)


def _start(folder: pathlib.Path) -> Result:
    """Return the time from exec until the first reading is on disk."""
    times = []
    for _ in range(STARTS):
        command = _agent(folder)
        began = time.monotonic()
        with _running(command):
            _wait_for_poll(command)
            times.append(1000 * (time.monotonic() - began))
    middle = sorted(times)[len(times) // 2]
    return Result("agent, start to first poll", middle, "ms", goal="<= 150", met=middle <= 150)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="overnight-bench-") as temporary:
        home = pathlib.Path(temporary)
        for row in [*_alone(home, "agent", 0.2), *_many_processes(home)]:
            print(f"{row.what:60} {row.value:8.3f} {row.unit:12} {row.goal}")
