"""The victim of every rehearsal: a packet queue whose worker needs most of its core to keep up.

A sender on another core sends numbered packets through a veth pair between two network namespaces, so
that the interface has a name of its own and nothing of the host's network is touched.
"""

from __future__ import annotations

import dataclasses
import json
import pathlib
import random
import subprocess
import time
from typing import TYPE_CHECKING, Any

from overnight import errors
from overnight.rehearsals import processes

if TYPE_CHECKING:
    from overnight import rehearsals

__all__ = ["Plan", "Status", "Victim", "plan"]

READY_SECONDS = 20.0
KEEPS_UP_MS = 200.0
NETNS = pathlib.Path("/run/netns")
FIRST, SECOND = "192.0.2.1", "192.0.2.2"  # for documentation: nobody routes them


@dataclasses.dataclass(frozen=True)
class Plan:
    """What the seed chose for the victim."""

    interface: str
    bus: str
    queue: int
    driver: str
    rate: int  # packets a second
    payload: int  # bytes
    share: float  # of the core that it needs
    name: str
    sender: str

    def as_json(self) -> dict[str, object]:
        """For the report."""
        return dataclasses.asdict(self)


def plan(chance: random.Random, *, brief: bool = False) -> Plan:
    """Draw one. A brief rehearsal has a victim that needs more of its core: it falls behind sooner."""
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
    """How the victim does. `late_ms` counts on while it cannot even say so."""

    completed: int = 0
    dropped: int = 0
    lost: int = 0
    resets: int = 0
    late_ms: float = 0.0
    late_p50_ms: float = 0.0
    worst_ms: float = 0.0
    cpu_share: float = 0.0
    warm: bool = False

    def as_json(self) -> dict[str, object]:
        """For the report."""
        return dataclasses.asdict(self)


class Victim:
    """Worker and sender; the ledger ends both and takes their namespaces away."""

    def __init__(self, stage: rehearsals.Stage, chosen: Plan) -> None:
        self._stage = stage
        self.plan = chosen
        self._file = stage.folder / "victim.json"
        self._processes: list[subprocess.Popen[bytes]] = []

    def start(self) -> None:
        """Until it takes packets and its work is calibrated."""
        inside, outside = self._connect()
        chosen = self.plan
        self._processes.append(
            processes.start(
                self._stage,
                "overnight.rehearsals.victim_worker",
                name=chosen.name,
                core=self._stage.core,
                netns=inside,
                address=FIRST,
                status=str(self._file),
                run=self._stage.journal.run,
                interface=chosen.interface,
                bus=chosen.bus,
                queue=chosen.queue,
                driver=chosen.driver,
                rate=chosen.rate,
                share=chosen.share,
            )
        )
        self._wait("ready")
        self._processes.append(
            processes.start(
                self._stage,
                "overnight.rehearsals.victim_sender",
                name=chosen.sender,
                core=self._stage.spare,
                netns=outside,
                address=FIRST,
                rate=chosen.rate,
                payload=chosen.payload,
                fill=self._stage.seed,
            )
        )
        self._wait("warm")

    def status(self) -> Status:
        """As it last said."""
        said = self._read()
        known = {field.name for field in dataclasses.fields(Status)}
        status = Status(**{name: value for name, value in said.items() if name in known})
        silent_ms = (time.monotonic_ns() - said.get("monotonic_ns", time.monotonic_ns())) / 1e6
        if silent_ms > 1000:
            status = dataclasses.replace(status, late_ms=status.late_ms + silent_ms)
        return status

    def check(self) -> None:
        """Raises where it has ended."""
        for one in self._processes:
            if one.poll() is not None:
                said = " ".join(
                    " ".join(path.read_text(errors="replace").split())[-300:]
                    for path in self._stage.folder.glob("*.err")
                )
                raise errors.CannotError(
                    "the victim of the rehearsal ended",
                    why=said or f"it ended with {one.returncode}",
                    todo="run it again; if it stays so, report it with what stands above",
                )

    def stop(self) -> None:
        """End both."""
        processes.end(*self._processes)

    def _connect(self) -> tuple[str, str]:
        """Two namespaces and a veth pair between them."""
        run, journal = self._stage.journal.run, self._stage.journal
        names = (f"{run}-a", f"{run}-b")
        for name in names:
            journal.write("netns", name)
            _ip("netns", "add", name)
        first, second = names
        _ip(
            "link", "add", self.plan.interface, "netns", first, "type", "veth",
            "peer", "name", self.plan.interface, "netns", second,
        )  # fmt: skip
        for name, address in ((first, FIRST), (second, SECOND)):
            _ip("-n", name, "address", "add", f"{address}/30", "dev", self.plan.interface)
            _ip("-n", name, "link", "set", self.plan.interface, "up")
        return str(NETNS / first), str(NETNS / second)

    def _wait(self, word: str) -> None:
        deadline = time.monotonic() + READY_SECONDS
        while not self._read().get(word):
            self.check()
            if time.monotonic() > deadline:
                raise errors.CannotError(
                    f"the victim was not {word} after {READY_SECONDS:.0f} s",
                    why=f"core {self._stage.core} gave it too little time",
                    todo="try again when less runs here, or with another --core",
                )
            time.sleep(0.05)

    def _read(self) -> dict[str, Any]:
        try:
            said = json.loads(self._file.read_text())
        except (OSError, ValueError):
            return {}
        return said if isinstance(said, dict) else {}


def _ip(*words: str) -> None:
    try:
        done = subprocess.run(
            ["ip", *words], capture_output=True, text=True, timeout=30, check=False
        )
    except FileNotFoundError as error:
        raise errors.MissingToolError(
            "the victim has no network",
            why="the program ip (iproute2) is not installed",
            todo="apt install iproute2, dnf install iproute",
        ) from error
    if done.returncode:
        raise errors.CannotError(
            "the victim's network could not be made",
            why=f"ip {' '.join(words)}: {done.stderr.strip()}",
            todo="run it as root, on a kernel with network namespaces and veth",
        )
