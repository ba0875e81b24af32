"""Simulated agents: real HTTP with kept connections, one event loop, spools like those of an agent.

`python -m benchmarks.support.agents_load` reads a plan (JSON) from standard input, and prints `measuring` and
`measured` when the measured time begins and ends, then what happened (JSON).

An agent reports every 30 s with jitter, and at once when it has an event. What it could not deliver stays in its
spool, and it retries as the real agent does: 2^n s with jitter, or Retry-After.
"""

from __future__ import annotations

import asyncio
import collections
import dataclasses
import json
import random
import resource
import sys
import time
import urllib.parse
from typing import Any

from overnight.agent.uplink import reports
from overnight.model.event import Event

__all__ = ["Outcome", "Plan", "run"]

KIND = "bench.event"
LONGEST_WAIT = 15.0  # the real agent waits up to minutes; a bounded run cannot
DRAIN_SECONDS = 60.0
ANSWER_SECONDS = 60.0


@dataclasses.dataclass(frozen=True)
class Plan:
    url: str
    agents: list[list[str]]  # host, credential, and the token of one that is not enrolled yet
    name: str = "run"  # event ids begin with it: a host is used in several runs
    warm: float = 30.0  # not measured
    seconds: float = 60.0
    interval: float = 30.0
    event_seconds: float = 600.0  # between two events of an agent, on average
    cores: int = 96
    enrol_at_once: int = 8


@dataclasses.dataclass
class Outcome:
    """`waits_ms` are from the time at which a report was due to the end of its answer, sorted."""

    posts: int = 0
    waits_ms: list[float] = dataclasses.field(default_factory=list)
    failures: dict[str, int] = dataclasses.field(default_factory=dict)
    events: list[str] = dataclasses.field(
        default_factory=list
    )  # "HOST ID" of all that were accepted
    rollups: int = 0  # accepted
    undelivered: int = 0  # events in spools at the end
    body_bytes: float = 0.0  # mean
    cpu_seconds: float = 0.0  # of the generator in the measured time

    def wait(self, share: float) -> float:
        """Return the time in ms within which that share of the reports was answered."""
        last = len(self.waits_ms) - 1
        return self.waits_ms[min(last, int(share * len(self.waits_ms)))] if last >= 0 else 0.0


class _Connection(asyncio.Protocol):
    """A kept connection with one request at a time; reads only answers with a Content-Length."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self._data = bytearray()
        self._answer: asyncio.Future[tuple[int, bytes, bytes]] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self._data += data
        head, found, rest = bytes(self._data).partition(b"\r\n\r\n")
        if not found or self._answer is None or self._answer.done():
            return
        length = int(head.lower().partition(b"content-length:")[2].partition(b"\r")[0] or b"0")
        if len(rest) >= length:
            self._data.clear()
            self._answer.set_result((int(head[9:12]), head.lower(), rest))

    def connection_lost(self, _: Exception | None) -> None:
        self.transport = None
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(ConnectionError("closed"))

    async def ask(self, request: bytes) -> tuple[int, bytes, bytes]:
        if self.transport is None:
            raise ConnectionError("closed")
        self._answer = asyncio.get_running_loop().create_future()
        self.transport.write(request)
        async with asyncio.timeout(ANSWER_SECONDS):
            return await self._answer

    def close(self) -> None:
        if self.transport is not None:
            self.transport.close()


class _Agent:
    def __init__(self, load: _Load, host: str, credential: str, number: int) -> None:
        self._load, self._host, self._credential = load, host, credential
        self._connection: _Connection | None = None
        self._random = random.Random(f"{load.plan.name} {host}")
        # Another boot in each run, later than that of the run before.
        self._boot = f"{self._random.getrandbits(32):08x}"
        self._number = number
        now = time.time_ns() // 1000
        self._booted_us = now - 60_000_000
        self._reported_us = now - 1_000_000
        self._rolled_us = now - round(self._random.random() * load.plan.interval * 1e6)
        self._sent_us = now
        self._labels = True
        self.events: list[dict[str, object]] = []
        self.rollups: list[dict[str, object]] = []
        self._count = 0

    async def post(self, path: str, body: bytes, encoding: str = "gzip") -> tuple[int, bytes, bytes]:  # fmt: skip
        if self._connection is None or self._connection.transport is None:
            loop, where = asyncio.get_running_loop(), self._load.where
            _, self._connection = await loop.create_connection(
                _Connection, where.hostname, where.port
            )
        head = (
            f"POST {path} HTTP/1.1\r\nHost: {self._load.where.netloc}\r\n"
            f"Authorization: Bearer {self._credential}\r\nContent-Type: application/json\r\n"
            f"Content-Encoding: {encoding}\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        return await self._connection.ask(head.encode() + body)

    async def enrol(self, token: str) -> None:
        given = {"token": token, "credential": self._credential, "host": self._host}
        status, _, answer = await self.post(
            "/api/v1/agents/enrol", json.dumps(given).encode(), "identity"
        )
        if status != 200:
            raise RuntimeError(f"enrolment failed: {status} {answer.decode()}")

    async def run(self) -> None:
        """Report until the end of the run, then until the spool is empty."""
        plan, clock = self._load.plan, time.monotonic
        due = self._load.began + self._random.random() * plan.interval
        event_at = self._load.began + self._random.expovariate(1 / plan.event_seconds)
        while (at := min(due, event_at)) < self._load.ends:
            await asyncio.sleep(max(0.0, at - clock()))
            if at == event_at:
                self._add_event()
                event_at = at + self._random.expovariate(1 / plan.event_seconds)
            await self._report(at)
            due = at + plan.interval * (0.9 + self._random.random() / 5)
            due = max(
                due, clock()
            )  # after a long outage it does not catch up: one report has it all
        if self._connection is not None:
            self._connection.close()

    async def _report(self, due: float) -> None:
        failures, load = 0, self._load
        while True:
            body, events, rollups = self._body()
            try:
                status, head, answer = await self.post("/api/v1/agents/report", body)
            except (OSError, TimeoutError) as error:
                status, head, answer = 0, b"", type(error).__name__.encode()
                if self._connection is not None:
                    self._connection.close()
            now = time.monotonic()
            if status == 200:
                load.accept(self._host, due, now, len(body), events, rollups)
                self._labels = b'"labels"' in answer
                self._reported_us = max(self._reported_us, self._sent_us)
                del self.events[: len(events)], self.rollups[: len(rollups)]
                return
            load.fail(due, f"{status}" if status else answer.decode())
            failures += 1
            wait = min(LONGEST_WAIT, 2.0**failures) * (0.5 + self._random.random() / 2)
            after = head.partition(b"retry-after:")[2].partition(b"\r")[0].strip() or b"0"
            wait = max(wait, float(after) * (1 + self._random.random() / 10))
            if now + wait > load.ends + DRAIN_SECONDS:
                return
            await asyncio.sleep(wait)

    def _body(self) -> tuple[bytes, list[dict[str, object]], list[dict[str, object]]]:
        """Return a report with all of the spool; a retry has newer times, as that of an agent."""
        now = self._sent_us = time.time_ns() // 1000
        uptime = now - self._booted_us
        span = round(self._load.plan.interval * 1e6)
        while now - self._rolled_us >= span:
            self.rollups.append(self._rollup(self._rolled_us))
            self._rolled_us += span
        begin = self._reported_us
        events, rollups = list(self.events), list(self.rollups)
        report: dict[str, Any] = {
            "version": 1, "sent_us": now, "boot": self._boot, "uptime_us": uptime,
            "spells": [{"boot": self._boot, "begin_us": begin, "end_us": now, "uptime_us": begin - self._booted_us}],
            "events": events, "rollups": rollups, "windows": [], "lost": {"events": 0, "rollups": 0},
        }  # fmt: skip
        if self._labels:
            report["labels"] = {
                "zone": f"zone-{self._number % 3}", "instance-type": "m7i.metal-24xl", "role": "bench",
                "kernel": "6.1.0-28-cloud-amd64", "image": "bookworm-2026-10", "rack": f"r{self._number // 40}",
            }  # fmt: skip
        return reports.compress([json.dumps(report).encode()]), events, rollups

    def _rollup(self, begin_us: int) -> dict[str, object]:
        bits, cores = self._random.getrandbits, self._load.plan.cores
        mean = [bits(6) for _ in range(cores)]
        top = [min(100, value + bits(5)) for value in mean]
        return {
            "begin_us": begin_us, "seconds": 30, "cores": list(range(cores)), "mean": mean, "max": top,
            "kernel_max": [value // 3 for value in top], "worst_ms": [1000 * (bits(5) % 30) for _ in range(cores)],
        }  # fmt: skip

    def _add_event(self) -> None:
        self._count += 1
        event = Event(
            time.time_ns() // 1000, KIND, "core 17 is saturated", self._host, core=17,
            id=f"{KIND}-{self._load.plan.name}-{self._count:04d}", boot=self._boot,
            unit="bench.service", process="bench", source="watch", fields={"busy": 99.7, "seconds": 12},
        )  # fmt: skip
        self.events.append(event.as_json())


class _Load:
    def __init__(self, plan: Plan) -> None:
        self.plan, self.where = plan, urllib.parse.urlsplit(plan.url)
        self.outcome = Outcome()
        self.began = self.measured_from = self.ends = 0.0
        self._failures: collections.Counter[str] = collections.Counter()
        self._bytes = self._sent = 0

    def accept(
        self, host: str, due: float, now: float, size: int,
        events: list[dict[str, object]], rollups: list[dict[str, object]],
    ) -> None:  # fmt: skip
        self.outcome.events += [f"{host} {event['id']}" for event in events]
        self.outcome.rollups += len(rollups)
        self._sent += 1
        self._bytes += size
        if due >= self.measured_from:
            self.outcome.posts += 1
            self.outcome.waits_ms.append((now - due) * 1000)

    def fail(self, due: float, why: str) -> None:
        if due >= self.measured_from:
            self._failures[why] += 1

    async def run(self) -> Outcome:
        plan = self.plan
        agents = [_Agent(self, *given[:2], number) for number, given in enumerate(plan.agents)]
        turn = asyncio.Semaphore(plan.enrol_at_once)

        async def enrol(agent: _Agent, token: str) -> None:
            async with turn:
                await agent.enrol(token)

        new = [(agent, given[2]) for agent, given in zip(agents, plan.agents, strict=True) if given[2:]]  # fmt: skip
        await asyncio.gather(*(enrol(*pair) for pair in new))
        self.began = time.monotonic()
        self.measured_from = self.began + plan.warm
        self.ends = self.measured_from + plan.seconds
        running = asyncio.gather(*(agent.run() for agent in agents))
        await asyncio.sleep(plan.warm)
        before = _cpu_seconds()
        print("measuring", flush=True)
        await asyncio.sleep(plan.seconds)
        self.outcome.cpu_seconds = _cpu_seconds() - before
        print("measured", flush=True)
        await running
        self.outcome.waits_ms.sort()
        self.outcome.failures = dict(self._failures)
        self.outcome.undelivered = sum(len(agent.events) for agent in agents)
        self.outcome.body_bytes = self._bytes / max(1, self._sent)
        return self.outcome


def _cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def run(plan: Plan) -> Outcome:
    """Run in this process."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, 65_536)), hard))
    return asyncio.run(_Load(plan).run())


if __name__ == "__main__":
    json.dump(dataclasses.asdict(run(Plan(**json.load(sys.stdin)))), sys.stdout)
