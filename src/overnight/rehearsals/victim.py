"""The victim of every rehearsal: a packet queue whose worker needs most of its core to keep up.

A sender on another core sends numbered packets through a veth pair between two network namespaces, so the
interface has its own name and the host's network stays untouched.
"""

from __future__ import annotations

import dataclasses
import json
import random
import subprocess
import time
from typing import TYPE_CHECKING, Any

from overnight import errors
from overnight.machines import network
from overnight.rehearsals import processes

if TYPE_CHECKING:
    from overnight import rehearsals

READY_SECONDS = 20.0
KEEPS_UP_MS = 200.0
FIRST, SECOND = "192.0.2.1", "192.0.2.2"  # documentation addresses: never routed


@dataclasses.dataclass(frozen=True)
class Plan:
    """The victim's properties, drawn from the seed."""

    interface: str
    bus: str
    queue: int
    driver: str
    rate: int  # packets per second
    payload: int  # bytes
    share: float  # of its core
    name: str
    sender: str
    late_ms: int = 5000  # of a completion, at which the driver resets


def plan(chance: random.Random, *, brief: bool = False) -> Plan:
    """Draw a plan. In a brief rehearsal the victim needs more of its core, so it falls behind sooner."""
    slot = chance.randrange(3, 32)
    return Plan(
        interface=chance.choice((f"ens{slot}", f"eth{chance.randrange(1, 5)}", f"enp{slot}s0")),
        bus=f"0000:{chance.randrange(256):02x}:{slot:02x}.0",
        queue=chance.randrange(8),
        driver=f"2.17.{chance.randrange(5)}g",
        rate=chance.randrange(800, 1500, 50),
        payload=chance.randrange(64, 512, 16),
        share=round(chance.uniform(0.68, 0.75) if brief else chance.uniform(0.6, 0.75), 3),
        name=chance.choice(("pktq", "txc", "ringd", "cmplq")) + f"-{chance.randrange(100)}",
        sender=chance.choice(("peer", "feed", "gen")) + f"-{chance.randrange(100)}",
    )


@dataclasses.dataclass(frozen=True)
class Status:
    """The victim's counters. `late_ms` keeps growing while the victim cannot report."""

    completed: int = 0
    dropped: int = 0
    lost: int = 0
    resets: int = 0
    late_ms: float = 0.0
    late_p50_ms: float = 0.0
    worst_ms: float = 0.0
    cpu_share: float = 0.0
    warm: bool = False


class Victim:
    """Worker and sender; the undo journal ends both and removes their namespaces."""

    def __init__(self, stage: rehearsals.Stage, plan: Plan) -> None:
        self._stage = stage
        self.plan = plan
        self._file = stage.folder / "victim.json"
        self._processes: list[subprocess.Popen[bytes]] = []

    def start(self) -> None:
        """Start both; return once the worker takes packets and is calibrated."""
        plan, run_journal = self.plan, self._stage.journal
        inside, outside = network.connect(
            run_journal,
            (f"{run_journal.run}-a", plan.interface, FIRST),
            (f"{run_journal.run}-b", plan.interface, SECOND),
        )
        settings = {"address": FIRST, **dataclasses.asdict(plan)}
        worker = {"core": self._stage.core, "netns": inside, "status": str(self._file)}
        self._run("victim_worker", {**settings, **worker, "run": run_journal.run})
        self._wait("ready")
        sender = {"core": self._stage.spare, "netns": outside, "name": plan.sender}
        self._run("victim_sender", {**settings, **sender, "fill": self._stage.seed})
        self._wait("warm")

    def _run(self, module: str, settings: dict[str, Any]) -> None:
        process = processes.start(self._stage, f"overnight.rehearsals.{module}", **settings)
        self._processes.append(process)

    def status(self) -> Status:
        report = self._read()
        status = Status(**{name: report[name] for name in Status.__annotations__ if name in report})
        silent_ms = (time.monotonic_ns() - report.get("monotonic_ns", time.monotonic_ns())) / 1e6
        if silent_ms > 1000:
            status = dataclasses.replace(status, late_ms=status.late_ms + silent_ms)
        return status

    def check(self) -> None:
        """Raise CannotError if it has ended."""
        for process in self._processes:
            if process.poll() is not None:
                stderr = " ".join(
                    " ".join(path.read_text(errors="replace").split())[-300:]
                    for path in self._stage.folder.glob("*.err")
                )
                raise errors.CannotError(
                    "the rehearsal's victim ended unexpectedly",
                    why=stderr or f"exit code {process.returncode}",
                    todo="run it again; if it fails again, report this message",
                )

    @property
    def pids(self) -> list[int]:
        return [process.pid for process in self._processes]

    def stop(self) -> None:
        processes.end(*self._processes)

    def _wait(self, word: str) -> None:
        deadline = time.monotonic() + READY_SECONDS
        while not self._read().get(word):
            self.check()
            if time.monotonic() > deadline:
                raise errors.CannotError(
                    f"the victim was not {word} after {READY_SECONDS:.0f} s",
                    why=f"core {self._stage.core} gave it too little time",
                    todo="retry when the host is less busy, or choose another --core",
                )
            time.sleep(0.05)

    def _read(self) -> dict[str, Any]:
        try:
            report = json.loads(self._file.read_text())
        except (OSError, ValueError):
            return {}
        return report if isinstance(report, dict) else {}
