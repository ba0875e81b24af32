"""Many processes that claim from one pool at the same time, and the totals of the database afterwards."""

from __future__ import annotations

import dataclasses
import multiprocessing
import time
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from overnight import pools
from overnight.database import engine
from overnight.model.pool import new_id
from overnight.pools import control
from overnight.pools.sql import schema

if TYPE_CHECKING:
    from collections.abc import Callable

POOL = "crowd"


@dataclasses.dataclass(frozen=True)
class Claims:
    """Claimed members; `waits` in seconds, the shortest first."""

    names: list[str]
    waits: list[float]
    seconds: float

    @property
    def rate(self) -> float:
        return len(self.names) / self.seconds

    def wait(self, share: float) -> float:
        """Return a percentile of the waits, in ms."""
        return self.waits[min(len(self.waits) - 1, int(len(self.waits) * share))] * 1000


@dataclasses.dataclass(frozen=True)
class Totals:
    """Totals of the tables after all claims."""

    ready: int
    open_claims: int
    members_claimed: int
    events: int
    in_order: bool  # the oldest member was always claimed first


def members(url: str, count: int) -> None:
    """Create a pool with that many ready members, no two of the same age."""
    db = engine.Database(url)
    plane = control.ControlPlane(db, {"none": Nothing()})
    pool = plane.create(name=POOL, template="t", target_size=0, max_size=10_000, provider="none")
    now = plane.context.clock()
    for begin in range(0, count, 2000):
        rows = [
            {
                "id": new_id("m"), "pool_id": pool.id, "state": "ready", "generation": 1,
                "provider": "none", "machine_id": f"i-{n}", "address": "", "region": "",
                "cordoned": False, "reason": "", "warming_started_us": now + n,
                "ready_us": now + 10**9, "attempts": 0, "next_attempt_us": 0,
            }
            for n in range(begin, min(begin + 2000, count))
        ]  # fmt: skip
        with db.write("members") as connection:
            connection.execute(schema.members.insert(), rows)
    db.close()


def claims(url: str, clients: int, each: int, way: Callable[[str], Any]) -> Claims:
    """Start processes that make `each` claims, all from the same moment on."""
    server = multiprocessing.get_context("forkserver")  # imports once what each process needs
    server.set_forkserver_preload([control.__name__, "psycopg", "sqlalchemy.dialects.postgresql"])
    together, answers = server.Barrier(clients + 1), server.Queue()
    processes = [
        server.Process(target=_client, args=(url, way, each, together, answers))
        for _ in range(clients)
    ]
    for process in processes:
        process.start()
    together.wait(120)
    begin = time.perf_counter()
    results = [answers.get() for _ in processes]
    took = time.perf_counter() - begin
    for process in processes:
        process.join()
    return Claims(
        names=[name for names, _ in results for name in names],
        waits=sorted(wait for _, waits in results for wait in waits),
        seconds=took,
    )


def _client(url: str, way: Callable[[str], Any], each: int, together: Any, answers: Any) -> None:
    claim = way(url)
    waits, names = [], []
    together.wait(120)
    for _ in range(each):
        begin = time.perf_counter()
        names.append(claim())
        waits.append(time.perf_counter() - begin)
    answers.put((names, waits))


def claim_from_pool(url: str) -> Callable[[], str]:
    """Return a function that claims as any caller does."""
    plane = control.ControlPlane(engine.Database(url), {"none": Nothing()})
    return lambda: plane.acquire(POOL)[0].member.id


def read_totals(url: str) -> Totals:
    """Read the totals from the database."""
    db, m, c, e = engine.Database(url), schema.members, schema.claims, schema.events
    count = sa.func.count
    query = sa.select(m.c.warming_started_us).join(e, e.c.member_id == m.c.id)
    with db.read() as connection:
        ages = connection.execute(query.order_by(e.c.id)).scalars().all()
        totals = Totals(
            ready=connection.scalar(sa.select(count()).where(m.c.state == "ready")) or 0,
            open_claims=connection.scalar(sa.select(count()).where(c.c.released_us.is_(None))) or 0,
            members_claimed=connection.scalar(sa.select(count(c.c.member_id.distinct()))) or 0,
            events=len(ages),
            in_order=list(ages) == sorted(ages),
        )
    db.close()
    return totals


class Nothing(pools.Provider):
    """A provider that is never called."""

    name = "none"

    def launch(self, order: Any) -> Any:
        raise NotImplementedError  # members are put into the tables by hand

    def terminate(self, machine_id: str) -> None:
        raise NotImplementedError  # and none of them ends

    def inventory(self, owner: str) -> list[Any]:
        return []
