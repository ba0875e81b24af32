"""Claims by many processes at once, on SQLite and on PostgreSQL; beside two ways that others go.

The peers run on the same PostgreSQL in the same run: a plain `FOR UPDATE`, where everybody queues for the
oldest row, and optimistic retry, where everybody reads it and one of them wins.
"""

from __future__ import annotations

import multiprocessing
import pathlib
import subprocess
import sys
import tempfile
import time
from typing import Any

import benchmarks

CLIENTS, CLAIMS = 16, 4800
PEER_CLAIMS = 1600
ROUNDS_OF_PROCESSES = 5

LOCKED = """
UPDATE pool_members SET state = 'claimed', acquired_us = 1 WHERE id = (
  SELECT id FROM pool_members WHERE state = 'ready' AND gone_us IS NULL
  ORDER BY warming_started_us, id LIMIT 1 FOR UPDATE) RETURNING id"""
LOOK = """
SELECT id FROM pool_members WHERE state = 'ready' AND gone_us IS NULL
ORDER BY warming_started_us, id LIMIT 1"""
SWAP = (
    "UPDATE pool_members SET state = 'claimed', acquired_us = 1 WHERE id = %s AND state = 'ready'"
)


def measure() -> list[benchmarks.Result]:
    sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "tests/support"))
    import pooldatabases

    results = []
    with tempfile.TemporaryDirectory() as folder:
        rate, waits = _run(f"sqlite:///{folder}/pools.db", "ours", CLAIMS)
        results += _told("SQLite", rate, waits, 3000, 10, worst=250)
        results += _processes(pathlib.Path(folder))
    with pooldatabases.server() as running:
        url = running.get_uri()
        rate, waits = _run(url, "ours", CLAIMS)
        peers = {}
        for peer in ("locked", "optimistic"):
            pooldatabases.emptied(url)
            peers[peer] = _run(url, peer, PEER_CLAIMS)[0]
        told = _told("PostgreSQL", rate, waits, 1500, 20)
        results += [
            benchmarks.Result(
                told[0].what, rate, "claims/s", told[0].goal, told[0].met, peer, value, True
            )
            for peer, value in (
                ("FOR UPDATE without SKIP LOCKED", peers["locked"]),
                ("optimistic retry", peers["optimistic"]),
            )
        ]
        results += told[1:]
    return results


def _told(
    name: str, rate: float, waits: list[float], goal: float, p99: float, worst: float = 0
) -> list[benchmarks.Result]:
    late = waits[int(len(waits) * 0.99)] * 1000
    last = waits[-1] * 1000
    rows = [
        benchmarks.Result(
            f"claims of {CLIENTS} processes, {name}", rate, "claims/s", f">= {goal:g}", rate >= goal
        ),
        benchmarks.Result(f"99 % of claims, {name}", late, "ms", f"<= {p99:g} ms", late <= p99),
    ]
    if worst:
        rows.append(
            benchmarks.Result(
                f"the slowest claim, {name}", last, "ms", f"<= {worst:g} ms", last <= worst
            )
        )
    return rows


def _run(url: str, way: str, claims: int) -> tuple[float, list[float]]:
    """Claims a second, and how long each took; every member was given out once."""
    _members(url, claims)
    spawn = multiprocessing.get_context("spawn")
    together, answers = spawn.Barrier(CLIENTS + 1), spawn.Queue()
    each = claims // CLIENTS
    clients = [
        spawn.Process(target=_client, args=(url, way, each, together, answers))
        for _ in range(CLIENTS)
    ]
    for client in clients:
        client.start()
    together.wait()
    begin = time.perf_counter()
    got = [answers.get() for _ in clients]
    took = time.perf_counter() - begin
    for client in clients:
        client.join()
    names = [name for _, names in got for name in names]
    assert len(set(names)) == len(names) == each * CLIENTS, "a member was claimed twice"
    return len(names) / took, sorted(wait for waits, _ in got for wait in waits)


def _members(url: str, count: int) -> None:
    from overnight.pools import control, database, schema, shape

    where = database.Database(url)
    plane = control.ControlPlane(where, {"none": _Nothing()})
    pool = plane.create(name="bench", template="t", target_size=0, max_size=10_000, provider="none")
    now = plane.context.clock()
    rows = [
        {
            "id": shape.new_id("m"), "pool_id": pool.id, "state": "ready", "generation": 1,
            "provider": "none", "machine_id": f"i-{n}", "address": "", "region": "",
            "cordoned": False, "reason": "", "warming_started_us": now + n,
            "ready_us": now + 10**9, "attempts": 0, "next_attempt_us": 0,
        }
        for n in range(count)
    ]  # fmt: skip
    for begin in range(0, count, 500):
        with where.write("members") as connection:
            connection.execute(schema.members.insert(), rows[begin : begin + 500])
    where.close()


def _client(url: str, way: str, claims: int, together: Any, answers: Any) -> None:
    claim = {"ours": _ours, "locked": _locked, "optimistic": _optimistic}[way](url)
    waits, names = [], []
    together.wait()
    for _ in range(claims):
        begin = time.perf_counter()
        names.append(claim())
        waits.append(time.perf_counter() - begin)
    answers.put((waits, names))


def _ours(url: str) -> Any:
    from overnight.pools import control, database

    plane = control.ControlPlane(database.Database(url), {"none": _Nothing()})
    return lambda: plane.acquire("bench")[0].member.id


def _locked(url: str) -> Any:
    import psycopg

    connection = psycopg.connect(url, autocommit=True)

    def claim() -> str:
        while True:
            row = connection.execute(LOCKED).fetchone()
            if row is not None:  # else the one that was waited for is taken
                return str(row[0])

    return claim


def _optimistic(url: str) -> Any:
    import psycopg

    connection = psycopg.connect(url, autocommit=True)

    def claim() -> str:
        while True:
            row = connection.execute(LOOK).fetchone()
            if row is not None and connection.execute(SWAP, row).rowcount:
                return str(row[0])

    return claim


class _Nothing:
    """A provider that is never asked."""

    name = "none"
    inventory_lag_seconds = 0.0

    def launch(self, order: Any) -> Any:
        raise NotImplementedError  # members are put into the tables by hand

    def terminate(self, machine_id: str) -> None:
        raise NotImplementedError  # and none of them ends

    def inventory(self, owner: str) -> list[Any]:  # noqa: ARG002  as every provider has it
        return []


def _processes(folder: pathlib.Path) -> list[benchmarks.Result]:
    """A member that is a process, from intent to ready; and a claim through the command line."""
    import threading

    from overnight.app import pooling

    home = folder / "home"
    plane = pooling.open_plane(home)
    stop = threading.Event()
    reaper = threading.Thread(target=pooling.serve, args=(plane, stop), kwargs={"interval": 1.0})
    plane.create(name="p", template="t", target_size=ROUNDS_OF_PROCESSES)
    reaper.start()
    while plane.show("p").counts.ready < ROUNDS_OF_PROCESSES:
        time.sleep(0.02)
    warm = sorted((m.ready_us or 0) - m.warming_started_us for m in plane.show("p").members)
    command = [sys.executable, "-m", "overnight", "--home", str(home), "pool", "acquire", "p"]
    cold = [*command, "--wait", "20s"]
    took = benchmarks.median_of(5, lambda: subprocess.run(cold, check=True, capture_output=True))
    for member in plane.show("p").members:
        plane.terminate(member.id)
    plane.drain("p")
    stop.set()
    reaper.join()
    slowest = warm[-1] / 1e6
    return [
        benchmarks.Result("a process member is ready", slowest, "s", "<= 1 s", slowest <= 1),
        benchmarks.Result("a claim by command", took * 1000, "ms", "<= 300 ms", took <= 0.3),
    ]
