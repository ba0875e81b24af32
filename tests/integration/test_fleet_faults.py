"""Agents and server in namespaces of their own, with all that goes wrong between them; events counted against the truth.

Uplinks and the server are real processes. A veth pair joins them, with a proxy on the server's side that doubles,
reorders and cuts requests.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import pathlib
import platform
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent import futures
from typing import Any

import faults
import faultyproxy
import pooldatabases
import pytest
import serverprocesses
import uplinks

from overnight.app import pools
from overnight.fleet import blobs, control
from overnight.machines import network
from overnight.model.control_plane import EventFilter
from overnight.model.event import Event
from overnight.store import added_events
from overnight.store.ring import layout, reader
from overnight.undo import journal

pytestmark = [pytest.mark.needs_root, pytest.mark.timeout(300)]
SERVER = ("127.0.0.1", 8416)  # in a namespace of its own
WHAT = "a test of partitions"
CENTRE, FIELD = "10.213.7.1", "10.213.7.2"


def wait_until(done: Callable[[], object], seconds: float = 100) -> None:
    deadline = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < deadline, "it does not happen"
        time.sleep(0.2)


class Network:
    """Two namespaces: `centre` runs what is started there, `field` the same where the agents are."""

    def __init__(
        self, run: str, paths: tuple[str, str], links: tuple[tuple[str, str], ...]
    ) -> None:
        self.run, self.paths, self._links = run, paths, links
        self.centre, self.field = map(self._inside, paths)

    @staticmethod
    def _inside(path: str) -> futures.ThreadPoolExecutor:
        return futures.ThreadPoolExecutor(1, initializer=network.enter, initargs=(path,))

    def inside_again(self) -> None:
        """Make the threads anew, as children of this one: they see its mounts."""
        self.close()
        self.centre, self.field = map(self._inside, self.paths)

    @contextlib.contextmanager
    def partitioned(self, end: int) -> Iterator[None]:
        namespace, interface = self._links[end]
        network.run_ip("-n", namespace, "link", "set", interface, "down")
        try:
            yield
        finally:
            network.run_ip("-n", namespace, "link", "set", interface, "up")

    def close(self) -> None:
        self.centre.shutdown()
        self.field.shutdown()


def processes_of(run: str) -> list[str]:
    """Return the command lines of processes that carry the mark of a run."""
    return processes_with(f"{journal.MARK}={run}", "environ")


def processes_with(text: str, file: str = "cmdline") -> list[str]:
    found = []
    for path in pathlib.Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if text.encode() in (path / file).read_bytes() and int(path.name) != os.getpid():
                found.append((path / "cmdline").read_bytes().replace(b"\0", b" ").decode())
    return found


@pytest.fixture
def net(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Network]:
    journal.clean(what=WHAT)  # of a test that was killed
    with journal.Journal(WHAT) as run_journal:
        run = run_journal.run
        monkeypatch.setenv(journal.MARK, run)
        ends = (f"{run}-c", "centre", CENTRE), (f"{run}-f", "field", FIELD)
        paths = network.connect(run_journal, *ends)
        network.run_ip("-n", ends[0][0], "link", "set", "lo", "up")
        made = Network(run, paths, tuple(end[:2] for end in ends))
        yield made
        made.close()
        wait_until(lambda: not processes_of(run), 20)
    assert run_journal.problems == []
    assert not any(map(os.path.exists, paths))


class Centre:
    """The server, which is killed and started again, behind the proxy."""

    def __init__(self, net: Network, home: pathlib.Path, database: str, seed: int) -> None:
        self._net, self.home, self.database = net, home, database
        self._stack = contextlib.ExitStack()
        self.server = self._start()
        self._stack.callback(self.kill)
        make = net.centre.submit(faultyproxy.Proxy, SERVER, seed, CENTRE)
        self.proxy = self._stack.enter_context(make.result())
        self.url = f"http://{CENTRE}:{self.proxy.port}"

    def __enter__(self) -> Centre:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _start(self) -> serverprocesses.Server:
        words = ("--listen", "{}:{}".format(*SERVER))
        make = self._net.centre.submit(serverprocesses.Server, self.home, *words, database=self.database)  # fmt: skip
        return make.result()

    def kill(self) -> None:
        if self.server.process.poll() is None:
            self.server.stop(signal.SIGKILL)
        assert self.server.process.stderr is not None
        self.server.process.stderr.close()

    def restart(self, pause: float) -> None:
        self.kill()
        time.sleep(pause)
        self.server = self._start()

    def deliver_all(self) -> None:
        self._net.centre.submit(self.proxy.deliver_all).result()

    def token(self) -> str:
        return self.server.create_token("agent")


class Stored:
    """What is in the database."""

    def __init__(self, home: pathlib.Path, database: str) -> None:
        self._pools = pools.Pools(home, database)
        self._plane = control.ControlPlane(
            self._pools.plane.context.database, blobs.Blobs(home / "blobs")
        )

    def __enter__(self) -> Stored:
        return self

    def __exit__(self, *_: object) -> None:
        self._pools.plane.context.database.close()

    def events(self, host: str) -> list[Event]:
        found: list[Event] = []
        cursor = ""
        while True:
            page = self._plane.events(EventFilter(hosts=(host,)), cursor, 1000)
            found += page.items
            if not page.next:
                return found
            cursor = page.next

    def host(self, name: str) -> Any:
        return self._plane.host(name)


class Host:
    """A host that records events, and its uplink, which is killed where `kills`."""

    def __init__(self, net: Network, name: str, folder: pathlib.Path, rings: pathlib.Path, centre: Centre, seed: int, *, kills: bool) -> None:  # fmt: skip
        self.name, self.kills = name, kills
        self.ring = uplinks.LiveRing(rings / name, time.time() - 30 * 86400, host=name)
        self.home = folder / f"uplink-{name}"
        self.step_s = 0
        self.killed = 0
        self._net, self._url, self._token = net, centre.url, centre.token()
        self._chance = random.Random(f"{name} {seed}")
        self._done = threading.Event()
        self._threads = [threading.Thread(target=work) for work in (self._record, self._run_uplink)]
        self._process: uplinks.Process | None = None

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def end_chaos(self) -> None:
        """Record no more; the uplink runs on, killed for the last time if at all."""
        self._done.set()
        for thread in self._threads:
            thread.join()

    def _start_uplink(self) -> uplinks.Process:
        given = {"host": self.name, "ring": str(self.ring.folder), "token": self._token, "insecure": True}  # fmt: skip
        start = self._net.field.submit(uplinks.Process, self.home, self._url, **given)
        self._process = start.result()
        return self._process

    def _run_uplink(self) -> None:
        process = self._start_uplink()
        while self.kills and not self._done.wait(self._chance.uniform(0.1, 2.5)):
            process.kill()
            self.killed += 1
            process = self._start_uplink()
        if self.kills:  # or it would wait until its backoff is over
            process.kill()
            self._start_uplink()

    def _record(self) -> None:
        number = 0
        while not self._done.is_set():
            step_s, self.step_s = self.step_s, 0
            self.ring.wall_ns += step_s * 10**9
            for _ in range(self._chance.randrange(3)):
                self.ring.event(str(number), count=1)
                number += 1
            if self.ring.events and self._chance.random() < 0.2:
                event = self._chance.choice(list(self.ring.events.values()))
                self.ring.emit(dataclasses.replace(event, count=event.count + 1, until_us=max(event.until_us, event.time_us) + 1_000_000))  # fmt: skip
            self.ring.seconds(2)
            time.sleep(0.05)

    def has_all(self, stored: Stored) -> bool:
        return {event.id: event for event in stored.events(self.name)} == self.ring.events

    def stop(self) -> str:
        assert self._process is not None
        assert self._process.stop() == 0
        return self._process.log

    def close(self) -> None:
        self._done.set()
        for thread in self._threads:
            if thread.ident:
                thread.join()
        if self._process is not None and self._process.child.poll() is None:
            self._process.kill()


@contextlib.contextmanager
def hosts(net: Network, disk: pathlib.Path, rings: pathlib.Path, centre: Centre, seed: int) -> Iterator[list[Host]]:  # fmt: skip
    """Start two hosts: the uplink of one is killed all the time, that of the other never."""
    killed = Host(net, "killed", disk, disk, centre, seed, kills=True)
    made = [killed, Host(net, "steady", disk, rings, centre, seed, kills=False)]
    try:
        for host in made:
            host.start()
        yield made
    finally:
        for host in made:
            host.close()


def check(centre: Centre, all_hosts: list[Host]) -> None:
    """All events are in the database, each once, in its latest version; also after everything has arrived once more."""
    centre.proxy.share = 0.0
    for host in all_hosts:
        host.end_chaos()
    with Stored(centre.home, centre.database) as stored:
        for host in all_hosts:
            wait_until(lambda host=host: host.has_all(stored))
        logs = [host.stop() for host in all_hosts]
        centre.deliver_all()
        for host, log in zip(all_hosts, logs, strict=True):
            events = stored.events(host.name)
            assert len(events) == len({event.id for event in events}) == len(host.ring.events)
            assert host.has_all(stored), log
            assert stored.host(host.name).lost_events == 0


@dataclasses.dataclass(frozen=True)
class Plan:
    """How many faults, and how many seconds the longest partition takes."""

    seed: int
    count: int
    longest: float


def play(net: Network, centre: Centre, all_hosts: list[Host], disk: pathlib.Path, plan: Plan) -> None:  # fmt: skip
    """Let faults happen, of each kind at least one."""
    chance = random.Random(f"chaos {plan.seed}")

    def cut_link() -> None:
        with net.partitioned(chance.randrange(2)):
            time.sleep(chance.uniform(0.3, plan.longest))

    def set_clock() -> None:
        chance.choice(all_hosts).step_s = chance.choice((3600, -7200, 86400, -30, 5))

    def fill_disk() -> None:
        with faults.full_disk(disk):
            time.sleep(chance.uniform(0.5, 2.0))

    kinds = [cut_link, set_clock, fill_disk, lambda: centre.restart(chance.uniform(0, 1.0))]
    chosen = (kinds * plan.count)[: plan.count]
    chance.shuffle(chosen)
    for fault in chosen:
        fault()
        time.sleep(chance.uniform(0.0, 1.5))


@pytest.fixture
def disk(tmp_path: pathlib.Path) -> pathlib.Path:
    (tmp_path / "disk").mkdir()
    return tmp_path / "disk"


@pytest.fixture(scope="module")
def postgresql() -> Iterator[Any]:
    with pooldatabases.server() as running:
        yield running


def run_chaos(net: Network, folder: pathlib.Path, disk: pathlib.Path, database: str, plan: Plan) -> None:  # fmt: skip
    net.inside_again()
    home, seed = folder / "server", plan.seed
    pooldatabases.prepare(database or f"sqlite:///{home / 'pools' / 'pools.db'}")
    with (
        Centre(net, home, database, seed) as centre,
        hosts(net, disk, folder, centre, seed) as all_hosts,
    ):
        play(net, centre, all_hosts, disk, plan)
        wanted = {*faultyproxy.FAULTS, faultyproxy.PASS}
        wait_until(lambda: centre.proxy.counts.keys() >= wanted and all_hosts[0].killed > 3)
        check(centre, all_hosts)


@faults.on_small_disk
def test_no_event_is_lost_or_doubled(net: Network, tmp_path: pathlib.Path, disk: pathlib.Path) -> None:  # fmt: skip
    run_chaos(net, tmp_path, disk, "", Plan(seed=1, count=4, longest=2.5))


@pytest.mark.long
@pytest.mark.parametrize("kind", pooldatabases.KINDS)
@pytest.mark.parametrize("seed", [2, 3, 4, 5, 0], ids=["2", "3", "4", "5", "new"])
@faults.on_small_disk
def test_no_event_is_lost_or_doubled_for_long(net: Network, tmp_path: pathlib.Path, disk: pathlib.Path, postgresql: Any, kind: str, seed: int) -> None:  # fmt: skip
    seed = seed or random.SystemRandom().randrange(10**6)
    sys.stderr.write(f"seed {seed}\n")
    database = pooldatabases.emptied(postgresql.get_uri()) if kind == "postgresql" else ""
    run_chaos(net, tmp_path, disk, database, Plan(seed, count=16, longest=12.0))


def test_events_of_a_clock_that_is_ahead_arrive_once(tmp_path: pathlib.Path) -> None:
    """The server stores them with the time of receipt, also if they are sent again and again."""
    ring = uplinks.LiveRing(tmp_path / "home", time.time() + 300 * 86400)
    with serverprocesses.running(tmp_path / "server") as server:
        token = server.create_token("agent")
        state = ring.home / "uplink/state.json"
        for number in range(3):
            event = ring.event(str(number), count=1)
            ring.emit(dataclasses.replace(event, count=2, until_us=event.time_us + 1_000_000))
            with uplinks.running(ring.home, server.url, token=token) as process:
                wait_until(state.exists)
                process.kill()
            state.unlink()  # as if it was killed before it wrote that: all are sent again
        with Stored(server.home, "") as stored:
            events = stored.events(uplinks.HOST)
    assert sorted(event.id for event in events) == sorted(ring.events)
    assert {event.count for event in events} == {2}
    assert all(event.time_us < time.time_ns() // 1000 for event in events)


@pytest.mark.long
def test_kill_9_of_the_agent(tmp_path: pathlib.Path) -> None:
    chance = random.Random(9)
    home, name, ids = tmp_path / "home", platform.node(), []
    with serverprocesses.running(tmp_path / "server") as server:
        (tmp_path / "token").write_text(server.create_token("agent"))
        command = [*serverprocesses.OVERNIGHT, "--home", str(home), "agent", "--server", server.url, "--signals-only", "--token-file", str(tmp_path / "token")]  # fmt: skip
        with Stored(server.home, "") as stored:
            for n in range(8):
                # The recorder of a killed agent ends within a second; systemd waits longer.
                wait_until(lambda: not processes_with(str(home)))
                with subprocess.Popen(command, start_new_session=True) as process:
                    wait_until(layout.host_folder(home, name).exists)
                    time.sleep(chance.uniform(0.0, 5.0))
                    for _ in range(chance.randrange(1, 4)):
                        ids.append(f"job.failed-{len(ids)}")
                        event = Event(time.time_ns() // 1000, "job.failed", "a job", name, id=ids[-1], source="operator", severity="info")  # fmt: skip
                        added_events.add(home, [event])
                    time.sleep(chance.uniform(0.0, 2.0))
                    if n == 7:
                        wait_until(lambda: {*ids} <= {event.id for event in stored.events(name)})
                        process.send_signal(signal.SIGTERM)
                        assert process.wait(100) == 0
                    process.kill()
            events = stored.events(name)
    assert len(events) == len({event.id for event in events})
    assert {event.id for event in events} == {event.id for event in reader.Reader(home).events(0, 1 << 62)}  # fmt: skip
