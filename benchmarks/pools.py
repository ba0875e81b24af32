"""Concurrent claims on SQLite and PostgreSQL, compared with two common designs.

The peers run on the same PostgreSQL in the same run: a plain `FOR UPDATE`, where all queue for the oldest row, and
optimistic retry, where all read it and one wins.

`python -m benchmarks.pools 1000000 [sqlite|postgresql]` makes that many claims and checks the tables afterwards.
"""

from __future__ import annotations

import dataclasses
import pathlib
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from typing import Any

import benchmarks

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "tests/support"))
import poolcrowd
import pooldatabases

CLIENTS, CLAIMS = 16, 16_000
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
    results = []
    with tempfile.TemporaryDirectory() as folder:
        ours = _run(f"sqlite:///{folder}/pools.db", poolcrowd.claim_from_pool, CLAIMS)
        results += _results("SQLite", ours, 3000, 10, worst=250)
        results += _processes(pathlib.Path(folder))
    with pooldatabases.server() as running:
        url = running.get_uri()
        ours = _run(url, poolcrowd.claim_from_pool, CLAIMS)
        peers = {}
        for peer, way in PEERS.items():
            pooldatabases.emptied(url)
            peers[peer] = _run(url, way, PEER_CLAIMS).rate
        first, *others = _results("PostgreSQL", ours, 1500, 20)
        results += [
            dataclasses.replace(first, peer=peer, peer_value=rate, more_is_better=True)
            for peer, rate in peers.items()
        ]
        results += others
    return results


def _results(
    name: str, claims: poolcrowd.Claims, goal: float, p99: float, worst: float = 0
) -> list[benchmarks.Result]:
    late, last = claims.wait(0.99), claims.wait(1)
    rows = [
        benchmarks.Result(
            f"claims of {CLIENTS} processes, {name}",
            claims.rate,
            "claims/s",
            f">= {goal:g}",
            claims.rate >= goal,
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


def claim_many(count: int, kinds: Sequence[str]) -> None:
    """Make the claims on each database, and check the tables."""
    count -= count % CLIENTS
    with tempfile.TemporaryDirectory() as folder, pooldatabases.server() as running:
        urls = {"sqlite": f"sqlite:///{folder}/pools.db", "postgresql": running.get_uri()}
        for url in [urls[kind] for kind in kinds]:
            claims = _run(url, poolcrowd.claim_from_pool, count)
            totals = poolcrowd.read_totals(url)
            assert totals.ready == 0, "a claim was lost"
            assert totals.open_claims == totals.members_claimed == totals.events == count
            print(
                f"{url.partition(':')[0]}: {count:,} claims of {CLIENTS} processes, none twice and none"
                f" lost; {claims.rate:,.0f} a second, 50 % in {claims.wait(0.5):.1f} ms, 99 % in"
                f" {claims.wait(0.99):.1f} ms, 99.9 % in {claims.wait(0.999):.1f} ms, the slowest"
                f" {claims.wait(1):.1f} ms; oldest first: {'always' if totals.in_order else 'nearly'}",
                flush=True,
            )


def _run(url: str, way: Callable[[str], Any], count: int) -> poolcrowd.Claims:
    """Check that every member was claimed once."""
    poolcrowd.members(url, count)
    claims = poolcrowd.claims(url, CLIENTS, count // CLIENTS, way)
    assert len(set(claims.names)) == len(claims.names) == count, "a member was claimed twice"
    return claims


def _locked(url: str) -> Any:
    import psycopg

    connection = psycopg.connect(url, autocommit=True)

    def claim() -> str:
        while True:
            row = connection.execute(LOCKED).fetchone()
            if row is not None:  # else another process took the row that was waited for
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


PEERS = {"FOR UPDATE without SKIP LOCKED": _locked, "optimistic retry": _optimistic}


def _processes(folder: pathlib.Path) -> list[benchmarks.Result]:
    """Measure a process member from intent to ready, and a claim through the command line."""
    import threading

    from overnight.app import pool_serving, pools

    home = folder / "home"
    home_pools = pools.Pools(home)
    plane = home_pools.plane
    stop = threading.Event()
    reaper = threading.Thread(
        target=pool_serving.serve, args=(home_pools, stop), kwargs={"interval": 1.0}
    )
    plane.create(name="p", template="plain", target_size=ROUNDS_OF_PROCESSES)
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


if __name__ == "__main__":
    claim_many(int(sys.argv[1]), sys.argv[2:] or pooldatabases.KINDS)
