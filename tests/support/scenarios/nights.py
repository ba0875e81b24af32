"""One night of a simulated host, from which everything recorded follows."""

from __future__ import annotations

import collections
import dataclasses
import uuid
from typing import TYPE_CHECKING

from overnight.model import clock

if TYPE_CHECKING:
    from scenarios import work

Counted = tuple[str, str, str]  # signal, key, column
Span = tuple[float, float]
Spawn = tuple[
    "work.Task", float, float, float
]  # a child with a launcher, begin, end, starts per second


@dataclasses.dataclass(frozen=True)
class Host:
    """The properties of a host that stay constant during a night."""

    name: str = "node-1"
    cores: int = 16
    uptime_seconds: float = 9 * 86400.0
    kernel: str = "5.4.0-1103-aws"
    cgroups: str = "v1"
    image: str = "ami-0a1"
    zone: str = "us-east-1a"
    instance_type: str = "g5.4xlarge"
    interface: str = "eth0"
    bus: str = "0000:20:03.0"
    driver: str = "2.11.0g"
    queue_cores: tuple[int, ...] = (0, 1, 2, 3, 4, 5, 6, 7)  # the core of queue 0, 1, …
    threaded: bool = False
    boot: str = str(uuid.UUID(int=7))


@dataclasses.dataclass(frozen=True)
class Creator:
    """A container that a runtime creates again and again, as the flight recorder records it."""

    key: str
    fact: dict[str, str | int]
    supervisors: dict[str, tuple[float, float]]  # by unit: share of births, and of other looks


@dataclasses.dataclass(frozen=True)
class Births:
    """Short-lived cgroups below `parent`, one every `every` seconds; systemd restarts `unit`, if any."""

    parent: str
    every: float
    lived: float
    unit: str = ""
    before: int = 0  # births before the night
    creator: Creator | None = None


@dataclasses.dataclass
class Night:
    """One night of a host: everything recorded follows from these fields and the seed."""

    host: Host
    begin_us: int
    seconds: int
    load: work.Load
    seed: int
    log: list[tuple[float, str]] = dataclasses.field(default_factory=list)
    rates: dict[Counted, list[tuple[float, float, float]]] = dataclasses.field(
        default_factory=lambda: collections.defaultdict(list)
    )  # begin, end, increase per second
    steps: dict[Counted, list[tuple[float, int]]] = dataclasses.field(
        default_factory=lambda: collections.defaultdict(list)
    )  # when, and by how much
    births: list[Births] = dataclasses.field(default_factory=list)
    units: dict[str, dict[str, str]] = dataclasses.field(default_factory=dict)
    dying: float = 40.0  # at the beginning
    dying_per_hour: float = 0.0
    in_use: int = 240
    zombie_parent: str = ""
    zombie_us: float = 0.3  # a read of the root's statistics, for each zombie
    unsynced: bool = False
    absent: frozenset[str] = frozenset()  # signals that this host does not have
    ring_gaps: list[tuple[int, int, str]] = dataclasses.field(default_factory=list)
    profile_gaps: list[tuple[int, int, str]] = dataclasses.field(default_factory=list)
    lost: float = 0.0  # share of the samples that the kernel dropped, and says so
    spawns: list[Spawn] = dataclasses.field(default_factory=list)
    receive: float = 1500.0  # soft interrupts a second of a core that serves a queue

    def clock_at(self, second: float) -> clock.Clock:
        """Return both clocks at a second of the night."""
        return clock.Clock(
            self.begin_us * 1000 + round(second * 1e9),
            round((self.host.uptime_seconds + second) * 1e9),
        )

    def time_us(self, second: float) -> int:
        return self.begin_us + round(second * 1e6)

    def starved(self, core: int) -> list[Span]:
        """Return the spans in which one task holds a core so that nothing else runs there."""
        return [
            (episode.begin, episode.end)
            for episode in self.load.episodes
            if episode.core == core
            and episode.share > 0.9
            and not episode.work.task.process.startswith("ksoft")
        ]
