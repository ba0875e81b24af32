"""A control plane on one core: `overnight serve` and a PostgreSQL of its own, and what they use."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import pathlib
import secrets
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from benchmarks.support import agents_load

sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "tests/support"))
import pooldatabases
import serverprocesses

from overnight.database import engine
from overnight.fleet import blobs, control
from overnight.model.control_plane import Role

__all__ = ["Site", "Usage", "on_core", "running"]

TICKS = os.sysconf("SC_CLK_TCK")
FAR_US = 1 << 52


@contextlib.contextmanager
def on_core(number: int) -> Iterator[None]:
    """Start processes of the block on one core, where there are several."""
    before = os.sched_getaffinity(0)
    cores = sorted(before)
    os.sched_setaffinity(0, {cores[number % len(cores)]})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


@dataclasses.dataclass(frozen=True)
class Usage:
    """CPU seconds of the server, of PostgreSQL, and of everything on their core."""

    server: float
    postgresql: float
    core: float
    cpu_stalled: float  # of the machine (PSI): seconds in which something waited for a core,
    io_stalled: float  # or for a disk
    at: float

    @classmethod
    def read(cls, server: int, postmaster: int, core: int) -> Usage:
        own = sum(_stat(server)[11:13]) / TICKS
        fields = _stat(postmaster)[11:15]  # with children that have ended
        children = [sum(f[11:13]) for pid in _pids() if (f := _stat(pid)) and f[1] == postmaster]
        lines = pathlib.Path("/proc/stat").read_text().splitlines()
        of_core = next(line.split()[1:] for line in lines if line.startswith(f"cpu{core} "))
        user, nice, system, _, _, irq, softirq, steal = map(int, of_core[:8])
        busy = user + nice + system + irq + softirq + steal
        stalled = (_pressure(name) for name in ("cpu", "io"))
        backends = (sum(fields) + sum(children)) / TICKS
        return cls(own, backends, busy / TICKS, *stalled, time.monotonic())

    def since(self, before: Usage) -> Usage:
        return Usage(*(a - b for a, b in zip(dataclasses.astuple(self), dataclasses.astuple(before), strict=True)))  # fmt: skip


def _pressure(name: str) -> float:
    try:
        text = pathlib.Path("/proc/pressure", name).read_text()
    except OSError:
        return 0.0
    return int(text.splitlines()[0].rpartition("total=")[2]) / 1e6


def _pids() -> list[int]:
    return [int(path.name) for path in pathlib.Path("/proc").iterdir() if path.name.isdigit()]


def _stat(pid: int) -> list[int]:
    """Return the numbers of /proc/PID/stat, without the name; the first, the state, is 0."""
    try:
        text = pathlib.Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return []
    return [0, *map(int, text.rpartition(")")[2].split()[1:22])]


class Site:
    """PostgreSQL and a server on the last core; the generator runs on the first."""

    def __init__(self, postgresql: Any, home: pathlib.Path) -> None:
        self.postgresql, self.home = postgresql, home
        self.url = postgresql.get_uri()
        self.core = max(os.sched_getaffinity(0))
        self.agents: list[list[str]] = []
        self.server = self._start()
        database = engine.Database(self.url)
        self.plane = control.ControlPlane(database, blobs.Blobs(home / "blobs"))

    def _start(self, *options: str) -> serverprocesses.Server:
        with on_core(-1):
            return serverprocesses.Server(self.home, *options, database=self.url)

    def kill_server(self) -> None:
        """Kill the server with SIGKILL and start it at the same address."""
        address = self.server.url.removeprefix("http://")
        self.server.stop(signal.SIGKILL)
        self.server = self._start("--listen", address)

    def restart_postgresql(self) -> None:
        with on_core(-1):
            self.postgresql.stop()
            self.postgresql.ensure_postgres_running()

    def stop(self) -> None:
        self.server.stop()
        self.plane.context.database.close()

    def usage(self) -> Usage:
        return Usage.read(*self._pids(), self.core)

    def _pids(self) -> tuple[int, int]:
        return self.server.process.pid, self.postgresql.get_pid()

    def resident_mb(self) -> float:
        text = pathlib.Path(f"/proc/{self.server.process.pid}/status").read_text()
        return int(text.partition("VmHWM:")[2].split()[0]) / 1024

    def token(self, role: Role) -> str:
        return self.plane.tokens.create(role, name="bench", expires_us=FAR_US).text

    def add_agents(self, count: int) -> list[list[str]]:
        """Return that many agents; those that are new have a token, with which they enrol."""
        for number in range(len(self.agents), count):
            host, credential = f"bench-{number:05d}", secrets.token_urlsafe(32)
            self.agents.append([host, credential, self.token(Role.AGENT)])
        return self.agents[:count]

    def load(
        self, count: int, meanwhile: Callable[[], None] = lambda: None, **plan: Any
    ) -> tuple[agents_load.Outcome, Usage]:
        """Run `count` agents; `meanwhile` runs at the same time, while they are measured."""
        given = agents_load.Plan(self.server.url, self.add_agents(count), **plan)
        command = [sys.executable, "-m", "benchmarks.support.agents_load"]
        folder = pathlib.Path(__file__).parents[2]
        with (
            on_core(0),
            subprocess.Popen(
                command, cwd=folder, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
            ) as generator,
        ):
            assert generator.stdin is not None
            assert generator.stdout is not None
            generator.stdin.write(json.dumps(dataclasses.asdict(given)))
            generator.stdin.close()
            if generator.stdout.readline() != "measuring\n":
                raise RuntimeError("the generator of load failed")
            self.agents = [agent[:2] for agent in self.agents]
            before, pids = self.usage(), self._pids()
            beside = threading.Thread(target=meanwhile)
            beside.start()
            generator.stdout.readline()
            used = self.usage().since(before)
            beside.join()
            if pids != self._pids():  # restarted: their times began anew
                used = dataclasses.replace(used, server=float("nan"), postgresql=float("nan"))
            outcome = agents_load.Outcome(**json.loads(generator.stdout.read()))
        return outcome, used

    def stored_events(self, kind: str) -> list[str]:
        """Return "HOST ID" of all stored events of a kind."""
        fleet = self.plane.fleet([kind])
        return [f"{event.host} {event.id}" for host in fleet.hosts for event in host.events]


@contextlib.contextmanager
def running(home: pathlib.Path, settings: Sequence[str] = ()) -> Iterator[Site]:
    """Run a site; PostgreSQL has its defaults, with commits that wait for the disk."""
    with contextlib.ExitStack() as stack:
        with on_core(-1):
            postgresql: Any = stack.enter_context(pooldatabases.server())
        for setting in ("fsync = on", *settings):
            postgresql.psql(f"ALTER SYSTEM SET {setting}")
        postgresql.psql("SELECT pg_reload_conf()")
        site = Site(postgresql, home)
        stack.callback(site.stop)
        yield site
