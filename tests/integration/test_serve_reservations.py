"""Reservations through a real server and the real command line; each machine is a folder."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import playedlocal
import pytest
import serverprocesses

from overnight.app import reservations as use_cases
from overnight.model.reservation import Reservation, ReservationState
from overnight.reservations.providers import _local_processes

pytestmark = pytest.mark.timeout(120)


class Place:
    """A database, a machine, and servers of them."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.home, self.faults = folder / "home", folder / "run"
        self.faults.mkdir()
        self.mark = self.faults / "overnight" / "reservation.json"
        self.servers: list[serverprocesses.Server] = []
        self.tokens: dict[str, str] = {}

    def serve(self, interval: str = "200ms") -> serverprocesses.Server:
        server = serverprocesses.Server(
            self.home, "--interval", interval, database=self.database, command=playedlocal.COMMAND
        )
        self.servers.append(server)
        return server

    @property
    def database(self) -> str:
        return f"sqlite:///{self.home / 'pools' / 'pools.db'}"

    def start(self, *words: str, role: str = "operator", server: int = 0) -> subprocess.Popen[str]:
        """Start a command that asks a server."""
        at = self.servers[server]
        if role not in self.tokens:
            self.tokens[role] = at.create_token(role.partition(" ")[0], name=role)
        env = {**os.environ, "OVERNIGHT_TOKEN": self.tokens[role]}
        env |= {"OVERNIGHT_HOME": str(self.home / "nothing here")}
        return subprocess.Popen(
            [*serverprocesses.OVERNIGHT, "--server", at.url, *words],
            env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip

    def run(self, *words: str, expect: int = 0, **more: Any) -> tuple[str, str]:
        with self.start(*words, **more) as command:
            output, notes = command.communicate(timeout=60)
        assert command.returncode == expect, (output, notes)
        return output, notes

    def list(self) -> tuple[Reservation, ...]:
        where = use_cases.Reservations(self.home, self.database)
        with contextlib.closing(where.plane.context.database):
            return where.list(ended=True)


@pytest.fixture
def place(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    monkeypatch.setenv(playedlocal.FOLDER, str(tmp_path / "run"))
    made = Place(tmp_path)
    yield made
    for server in made.servers:
        if server.process.poll() is None:
            server.stop()
        assert server.process.stderr is not None
        server.process.stderr.close()
    serverprocesses.Client.close_all()


def find_started(reservation_id: str) -> Sequence[_local_processes.Process]:
    return _local_processes.find_marked(_local_processes.read_processes(), reservation_id)


def wait_for(what: Callable[[], object], seconds: float = 30) -> None:
    until = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < until
        time.sleep(0.05)


@pytest.mark.long  # 15 s
def test_the_command_line_reserves_through_a_server(place: Place) -> None:
    place.serve()
    assert "would reserve 1 host" in place.run("reserve", "--dry-run")[0]
    output, notes = place.run("reserve", "--purpose", "night 4", "-O", "json", expect=1)
    made = json.loads(output)
    assert (made["state"], made["order"]["owner"]) == ("active", "operator")
    assert f"created {made['id']}" in notes
    [host] = made["hosts"]
    assert {check["name"] for check in host["checks"]} >= {"marks", "foreign-workload"}
    assert json.loads(place.mark.read_text())["owner"] == "operator"

    listed, _ = place.run("reservations", "list", role="viewer")
    assert made["id"] in listed
    assert "night 4" in listed
    shown, _ = place.run("reservations", "show", made["id"], role="viewer", expect=1)
    assert f"--server {place.servers[0].url} release {made['id']}" in shown
    place.run("reservations", "check", made["id"], expect=1)
    extended, _ = place.run("reservations", "extend", made["id"], "--for", "13h", "-O", "json", expect=1)  # fmt: skip
    assert json.loads(extended)["until_us"] > made["until_us"]

    _, refused = place.run("reserve", role="viewer", expect=3)
    assert "role" in refused
    _, refused = place.run("release", made["id"], role="operator else", expect=3)
    assert "the reservation belongs to operator" in refused

    (place.faults / "away").touch()
    left, _ = place.run("release", made["id"], expect=3)
    assert "is still marked: no answer: timed out" in left
    (place.faults / "away").unlink()
    released, _ = place.run("release", made["id"], "--why", "done", role="admin")
    assert f"{made['id']}  released" in released
    assert not place.mark.exists()
    admin = serverprocesses.Client(place.servers[0].url, place.tokens["admin"])
    log = [
        (row["action"], row["target"], row["why"]) for row in admin.get("/api/v1/audit")["items"]
    ]
    assert ("reservation.end", made["id"], "done") in log
    assert ("reservation.create", made["id"], "night 4") in log
    place.servers[0].stop()
    assert place.servers[0].log.count("no answer") == 1


def test_another_server_takes_over_from_one_that_is_killed(place: Place) -> None:
    asked, other = place.serve(), place.serve("1s")
    (place.faults / "stall").touch()
    with place.start("reserve") as command:
        wait_for((place.faults / "stalled").exists)
        driver = int((place.faults / "stalled").read_text())
        killed = (
            asked if asked.process.pid == driver else other
        )  # most likely the one that was asked
        killed.stop(signal.SIGKILL)
        assert place.list()[0].state is ReservationState.PREPARING
        assert place.mark.exists()
        (place.faults / "stall").unlink()
        notes = command.communicate(timeout=60)[1]
    [made] = place.list()
    if killed is asked:
        assert "the reservation goes on: `overnight --server " in notes
        assert f" reservations show {made.id}`" in notes
    left = place.servers.index(other if killed is asked else asked)
    wait_for(lambda: place.list()[0].state is ReservationState.ACTIVE)
    place.run("reservations", "extend", made.id, "--for", "2s", server=left, expect=1)
    wait_for(lambda: place.list()[0].state is ReservationState.RELEASED)
    assert not place.mark.exists()
    assert place.list()[0].reason == "the lease ended"


@pytest.mark.long
def test_an_agent_that_is_started_enrols_and_ends_with_the_reservation(place: Place) -> None:
    server = place.serve()
    made = json.loads(place.run("reserve", "--agent", "--for", "3m", "-O", "json")[0])
    assert made["hosts"][0]["agent"] == "started"
    assert made["order"]["agent_server"] == server.url
    viewer = serverprocesses.Client(server.url, server.create_token("viewer"))
    wait_for(lambda: any(h["seen_us"] for h in viewer.get("/api/v1/hosts")["items"]), 120)
    [host] = viewer.get("/api/v1/hosts")["items"]
    assert host["name"] == made["hosts"][0]["name"]
    assert find_started(made["id"])
    place.run("release", made["id"])
    assert not find_started(made["id"])
    admin = serverprocesses.Client(server.url, server.create_token("admin"))
    [token] = [t for t in admin.get("/api/v1/tokens")["items"] if t["role"] == "agent"]
    assert token["used_us"]
    # It is known now: its own credential is in the data home, and the token is not needed.
    again = json.loads(place.run("reserve", "--agent", "--for", "3m", "-O", "json")[0])
    assert again["hosts"][0]["agent"] == "started"
    place.run("release", again["id"])
    states = [bool(t["revoked_us"]) for t in admin.get("/api/v1/tokens")["items"] if t["role"] == "agent"]  # fmt: skip
    assert states == [True, False]
