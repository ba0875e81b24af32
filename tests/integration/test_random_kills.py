"""Recorder, uplink and server are killed at random: every kernel line, event and window is stored once, or reported lost.

    .venv/bin/pytest -m long tests/integration/test_random_kills.py    500 kills, in pieces of a hundred

All three are real processes on this host, with its kernel log; each piece prints its seed. `OVERNIGHT_KILLS` and
`OVERNIGHT_SEED` choose another number and another seed for the short one.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import pathlib
import platform
import random
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator

import fleetworld
import kernellines
import pytest
import serverprocesses
import uplinks

from overnight.agent.uplink import windows
from overnight.app import pools
from overnight.fleet import blobs, control
from overnight.model.control_plane import EventFilter
from overnight.model.event import LINES_LOST, Event
from overnight.sources import kmsg, perf
from overnight.store import added_events
from overnight.store.ring import layout, reader

pytestmark = [pytest.mark.needs_root, pytest.mark.timeout(580)]
HOST = platform.node()
WINDOW_BYTES = 400_000  # some pieces
SETTLE_SECONDS = 150.0


class Stored:
    """What the server has in its database."""

    def __init__(self, home: pathlib.Path) -> None:
        self._database = pools.Pools(home, "").plane.context.database
        self._plane = control.ControlPlane(self._database, blobs.Blobs(home / "blobs"))

    def close(self) -> None:
        self._database.close()

    def events(self) -> list[Event]:
        found: list[Event] = []
        cursor = ""
        while True:
            page = self._plane.events(EventFilter(hosts=(HOST,)), cursor, 1000)
            found += page.items
            if not page.next:
                return found
            cursor = page.next

    def lost_events(self) -> int:
        return self._plane.host(HOST).lost_events

    def windows(self) -> set[str]:
        rows = self._plane.windows(HOST, begin_us=0, end_us=1 << 60)
        return {
            row.sha256
            for row in rows
            if row.is_held and self._plane.open_window(row.sha256).exists()
        }


class Truth:
    """Writes lines, events and bundles in a thread of its own, and remembers them."""

    def __init__(self, home: pathlib.Path, seed: int) -> None:
        self.home = home
        self.mark = f"ovn{seed}x{time.time_ns()}"
        self.sequences: dict[int, int] = {}  # of the kernel, by number
        self.events: list[str] = []
        self.windows: dict[str, str] = {}  # digests, by name
        self._chance = random.Random(f"truth {seed}")
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._write)

    def __enter__(self) -> Truth:
        (self.home / "rules").mkdir(parents=True)
        (self.home / "rules/test.toml").write_text(kernellines.make_rules(self.mark))
        (self.home / "uplink/windows").mkdir(parents=True)
        self.home.chmod(0o700)
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._done.set()
        if self._thread.ident:
            self._thread.join()

    def _write(self) -> None:
        number, wanted = 0, self.mark.encode()
        with contextlib.closing(kmsg.KernelLog.open()) as log:
            # Fewer than 300 lines a minute, the most new events of ten kinds that the recorder takes.
            while not self._done.wait(self._chance.uniform(0.1, 1.0)):
                for _ in range(self._chance.choice((1, 1, 1, 4))):
                    kernellines.write(self.mark, [number])
                    number += 1
                for record in log.read(wanted=lambda data: wanted in data):
                    found = re.search(r"line (\d+) of", record.text)
                    self.sequences[int(found[1])] = record.sequence if found else -1
                if self._chance.random() < 0.3:
                    self._add_event()
                if self._chance.random() < 0.1:
                    self._add_window()
        assert len(self.sequences) == number

    def _add_event(self) -> None:
        name = f"job.failed-{len(self.events)}"
        event = Event(time.time_ns() // 1000, "job.failed", "a job", HOST, id=name, source="operator", severity="info")  # fmt: skip
        with contextlib.suppress(Exception):  # the recorder has not created the ring yet
            added_events.add(self.home, [event])
            self.events.append(name)

    def _add_window(self) -> None:
        content = self._chance.randbytes(WINDOW_BYTES // 2).hex()
        name = f"job.failed-w{len(self.windows)}"
        data = fleetworld.bundle(HOST, content=content)
        digest = hashlib.sha256(data).hexdigest()
        folder = self.home / "uplink/windows"
        offer = {"event": name, "sha256": digest, "bytes": len(data), "begin_us": 1, "end_us": 2}
        (folder / f"{name}{windows.BUNDLE}").write_bytes(data)
        (folder / f".{name}").write_text(json.dumps(offer))
        (folder / f".{name}").rename(folder / f"{name}{windows.OFFER}")
        self.windows[name] = digest


class Processes:
    """The three processes, each started again after it was killed."""

    def __init__(self, folder: pathlib.Path, home: pathlib.Path) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self._listen = f"127.0.0.1:{free.getsockname()[1]}"
        self.home, self.server_home = home, folder / "server"
        self.kills = {"recorder": 0, "uplink": 0, "server": 0}
        self._token = ""
        self._start_server()
        self._token = self.server.create_token("agent")
        self._start_recorder()
        self._start_uplink()

    def _start_server(self) -> None:
        self.server = serverprocesses.Server(self.server_home, "--listen", self._listen)

    def _start_recorder(self) -> None:
        command = [sys.executable, "-m", "overnight.agent", "--home", str(self.home)]
        self.recorder = subprocess.Popen(command, stdout=subprocess.DEVNULL)

    def _start_uplink(self) -> None:
        self.uplink = uplinks.Process(
            self.home, self.server.url, host=HOST, boot=perf.read_identity().boot,
            ring=str(layout.host_folder(self.home, HOST)), token=self._token, insecure=True,
        )  # fmt: skip

    def kill(self, name: str, pause: float) -> None:
        if name == "uplink":
            self.uplink.kill()
        else:
            self._kill_child(self.recorder if name == "recorder" else self.server.process)
        self.kills[name] += 1
        time.sleep(pause)
        getattr(self, f"_start_{name}")()

    def _kill_child(self, child: subprocess.Popen[str] | subprocess.Popen[bytes]) -> None:
        child.kill()
        child.wait()
        if child.stderr is not None:
            child.stderr.close()

    def close(self) -> None:
        if self.uplink.child.poll() is None:
            self.uplink.kill()
        self._kill_child(self.recorder)
        self._kill_child(self.server.process)


@contextlib.contextmanager
def running(folder: pathlib.Path, home: pathlib.Path) -> Iterator[Processes]:
    made = Processes(folder, home)
    try:
        yield made
    finally:
        made.close()


def wait_until(done: Callable[[], object]) -> bool:
    deadline = time.monotonic() + SETTLE_SECONDS
    while not done() and time.monotonic() < deadline:
        time.sleep(0.5)
    return bool(done())


def read_events(home: pathlib.Path) -> dict[str, Event]:
    return {event.id: event for event in reader.Reader(home).events(0, 1 << 62, (HOST,))}


def find_wrong_lines(truth: Truth, stored: dict[str, Event]) -> dict[int, int]:
    """Return the lines that are neither stored once nor reported lost, or both, and how often they are stored."""
    lost = [event for event in stored.values() if event.kind == LINES_LOST]
    spans = [(int(event.fields["first"]), int(event.fields["last"])) for event in lost]
    lines = (event for event in stored.values() if event.kind.startswith(kernellines.KIND))
    counts = kernellines.count(lines)
    return {
        number: counts[number]
        for number, sequence in truth.sequences.items()
        if counts[number] + any(first <= sequence <= last for first, last in spans) != 1
    }


def check(truth: Truth, processes: Processes) -> None:
    """Compare what was written with what host and server store, once everything has arrived."""
    wait_until(lambda: not find_wrong_lines(truth, read_events(truth.home)))
    assert processes.recorder.poll() is processes.uplink.child.poll() is processes.server.process.poll() is None  # fmt: skip
    assert find_wrong_lines(truth, read_events(truth.home)) == {}
    with contextlib.closing(Stored(processes.server_home)) as stored:

        def lines(events: Iterable[Event]) -> dict[str, Event]:
            # Others may still go on: this is a real host.
            kinds = (kernellines.KIND, "job.failed", LINES_LOST)
            return {event.id: event for event in events if event.kind.startswith(kinds)}

        wait_until(lambda: lines(stored.events()) == lines(read_events(truth.home).values()))
        assert lines(stored.events()) == lines(read_events(truth.home).values())
        ids = [event.id for event in stored.events()]
        assert len(ids) == len({*ids})
        assert {*truth.events} <= {*ids}
        assert stored.lost_events() == 0
        wait_until(lambda: stored.windows() >= {*truth.windows.values()})
        assert {*truth.windows.values()} - stored.windows() == set()


def play(folder: pathlib.Path, kills: int, seed: int) -> None:
    sys.stderr.write(f"seed {seed}\n")
    chance = random.Random(f"kills {seed}")
    with Truth(folder / "home", seed) as truth, running(folder, truth.home) as processes:
        wait_until(lambda: list(truth.home.glob("signals/*/kernel-log.json")))
        truth.start()
        for _ in range(kills):
            time.sleep(chance.uniform(0.05, 2.5))
            processes.kill(chance.choice([*processes.kills]), chance.uniform(0.0, 0.8))
        time.sleep(1.0)
        truth.stop()
        check(truth, processes)
        lost = [event for event in read_events(truth.home).values() if event.kind == LINES_LOST]
        sys.stderr.write(
            f"{processes.kills}: {len(truth.sequences)} lines, {sum(event.count for event in lost)} reported lost, "
            f"{len(truth.events)} events, {len(truth.windows)} windows\n"
        )


def test_random_kills(tmp_path: pathlib.Path) -> None:
    kills, seed = os.environ.get("OVERNIGHT_KILLS", "9"), os.environ.get("OVERNIGHT_SEED", "7")
    play(tmp_path, int(kills), int(seed))


@pytest.mark.long
@pytest.mark.parametrize("seed", [1, 2, 3, 4, 5])
def test_500_random_kills(tmp_path: pathlib.Path, seed: int) -> None:
    play(tmp_path, 100, seed)
