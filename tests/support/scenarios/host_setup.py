"""The start of every scenario: a host, its ordinary load, names chosen by the seed."""

from __future__ import annotations

import dataclasses
import random
import uuid
from collections.abc import Iterable

from scenarios import nights, stacks, work

NIGHT_US = 1_794_700_800 * 1_000_000  # an evening; a multiple of two minutes
WORDS = (
    "amber", "birch", "cobalt", "delta", "ember", "fjord", "garnet", "harbor", "indigo", "juniper",
    "krill", "lumen", "maple", "nickel", "onyx", "pollen", "quartz", "rowan", "sable", "tundra",
)  # fmt: skip


@dataclasses.dataclass
class HostSetup:
    """A night before any incident: scenarios add to it, then `node` builds the night to record."""

    chance: random.Random
    seed: int
    host: nights.Host
    seconds: int
    begin_us: int
    background: list[work.Work]
    units: dict[str, dict[str, str]]
    taken: set[str] = dataclasses.field(default_factory=set)
    used: set[int] = dataclasses.field(default_factory=set)
    episodes: list[work.Episode] = dataclasses.field(default_factory=list)
    profiles: bool = True
    missing: frozenset[str] = frozenset()  # signals that this host does not have
    lost: float = 0.0
    bystander: bool = False  # another process saturates another core at the same time
    close: float = 0.0  # seconds between recurrences, 0 for random times
    pids: int = 1000
    layout: str = ""  # of a crash loop's cgroups, "" for one chosen by the seed
    every: float = 0.0  # seconds between two of them, 0 for a random number
    supervisors: dict[str, tuple[float, float]] | None = (
        None  # units that acted; None: the true one
    )
    restarted: int = 0  # how often the runtime itself restarted that loop's container
    spawns: list[nights.Spawn] = dataclasses.field(default_factory=list)

    def word(self) -> str:
        """Return a word that names nothing else in this night."""
        word = self.chance.choice([candidate for candidate in WORDS if candidate not in self.taken])
        self.taken.add(word)
        return word

    def pid(self) -> int:
        """Return the next process id."""
        self.pids += self.chance.randint(1, 400)
        return self.pids

    def new_task(self, process: str, unit: str = "", rt: int = 0) -> work.Task:
        """Create a task; comm is cut to 15 characters."""
        return work.Task(process[:15], self.pid(), unit, rt=rt)

    def node(self) -> nights.Night:
        """Build the night from everything added so far."""
        load = work.Load(
            self.seconds,
            self.host.cores,
            self.background,
            self.episodes,
            self.seed,
            keep_samples=self.profiles,
        )
        return nights.Night(
            self.host,
            self.begin_us,
            self.seconds,
            load,
            self.seed,
            units=dict(self.units),
            absent=self.missing,
            lost=self.lost,
            spawns=self.spawns,
        )

    def queue(self) -> tuple[int, int]:
        """Choose a queue and its core: never core 0, which does everything, and no core twice."""
        free = [n for n, core in enumerate(self.host.queue_cores) if core and core not in self.used]
        queue = self.chance.choice(free)
        self.used.add(self.host.queue_cores[queue])
        return queue, self.host.queue_cores[queue]

    def moments(self, count: int, apart: float = 150.0) -> list[float]:
        """Choose the times of an incident: the last one near the end of the night, the others before it."""
        last = self.seconds - self.chance.uniform(70.0, 160.0)
        if self.close:
            return [last - n * self.close for n in reversed(range(count))]
        moments = [last]
        for _ in range(200):
            if len(moments) >= count or last - apart < 60.0:
                break
            moment = self.chance.uniform(60.0, last - apart)
            if all(abs(moment - other) >= apart for other in moments):
                moments.append(moment)
        return sorted(moments)


def make(
    seed: int,
    *,
    story: str = "",
    cores: int = 16,
    minutes: float = 30.0,
    profiles: bool = True,
    busy: float | None = None,
    missing: Iterable[str] = (),
    lost: float = 0.0,
    bystander: bool = False,
    close: float = 0.0,
    layout: str = "",
    every: float = 0.0,
    supervisors: dict[str, tuple[float, float]] | None = None,
    restarted: int = 0,
    **fixed: object,
) -> HostSetup:
    """Set up a host with an ordinary load.

    `busy` is the mean load of its cores, `missing` are signals that it does not have, `lost` is the share of
    samples that the kernel dropped. With `bystander`, another process saturates a core without a queue during
    the incident. `close` is the number of seconds between recurrences. `layout`, `every`,
    `supervisors` and `restarted` are those of a crash loop that systemd does not count. `fixed` are fields of `nights.Host`.
    """
    chance = random.Random(f"{story} {seed}")
    queues = min(cores, chance.choice((4, 8, 8, 16, 32)))
    fields: dict[str, object] = {
        "name": f"{chance.choice(('node', 'gpu', 'worker', 'ip-10-0'))}-{chance.randrange(1, 999)}",
        "cores": cores,
        "uptime_seconds": chance.uniform(6, 14) * 86400,
        "zone": chance.choice(("us-east-1a", "us-east-1b", "us-east-1d")),
        "image": f"ami-{chance.getrandbits(48):012x}",
        "instance_type": chance.choice(("g5.4xlarge", "p4d.24xlarge", "g5.48xlarge")),
        "interface": chance.choice(("eth0", "eth0", "ens5", "ens32")),
        "bus": f"0000:{chance.randrange(256):02x}:{chance.randrange(32):02x}.0",
        "queue_cores": tuple(chance.sample(range(cores), queues)),
        "boot": str(uuid.UUID(int=chance.getrandbits(128), version=4)),
        **fixed,
    }
    host = nights.Host(**fields)  # type: ignore[arg-type]  # parts of a Host
    # Kept to whole microseconds: a recording begins at any moment, not on the minute.
    begin_us = NIGHT_US + chance.randrange(0, 3600 * 8) * 1_000_000 + chance.randrange(1_000_000)
    setup = HostSetup(chance, seed, host, round(minutes * 60), begin_us, [], {}, profiles=profiles)
    setup.missing, setup.lost, setup.bystander = frozenset(missing), lost, bystander
    setup.close = close
    setup.layout, setup.every, setup.supervisors = layout, every, supervisors
    setup.restarted = restarted
    _fill(setup, busy if busy is not None else chance.uniform(0.08, 0.22))
    return setup


def _fill(setup: HostSetup, busy: float) -> None:
    """Add ordinary programs; one of them is the main job of the host."""
    chance, cores = setup.chance, setup.host.cores
    job = setup.word()
    parts = [
        (f"{job}-train", "job.slice", 0.62, ("forward", "backward", "memcpy", "allreduce"), 0.15),
        (f"{setup.word()}-loader", "job.slice", 0.16, ("decode", "resize", "queue_put"), 0.30),
        ("containerd", "containerd.service", 0.05, ("runtime.mallocgc", "ttrpc.serve"), 0.35),
        ("dockerd", "docker.service", 0.03, ("runtime.mallocgc", "runtime.scanobject"), 0.30),
        (f"{setup.word()}-metrics", "metrics.service", 0.03, ("collect", "encode"), 0.45),
        ("systemd", "init.scope", 0.01, ("manager_loop", "hashmap_get"), 0.40),
        ("sshd", "ssh.service", 0.01, ("main_loop", "aes_encrypt"), 0.50),
        (f"{setup.word()}-sync", "sync.service", 0.03, ("compress", "hash_block"), 0.25),
    ]
    for process, unit, share, names, kernel_share in parts:
        module = f"/opt/{process}/bin/{process}"
        task = setup.new_task(process, unit)
        paths = stacks.program(module, names, kernel_share)
        setup.background.append(work.Work(task, paths, busy * cores * share))
        if unit.endswith(".service"):
            setup.units[unit] = {}
    setup.background.append(
        work.Work(work.Task("swapper", 0), stacks.receive_on_idle(), busy * cores * 0.04)
    )
    nightly = setup.background[7]
    recorder = setup.new_task("perf", "overnight.service")
    setup.units[recorder.unit] = {}
    setup.background.insert(8, work.Work(recorder, stacks.recorder(), 0.02))
    # A periodic job sometimes uses a core for a second or two: that is not an incident.
    for _ in range(setup.seconds // 400):
        begin = chance.uniform(5, setup.seconds - 10)
        setup.episodes.append(
            work.Episode(
                nightly,
                chance.randrange(cores),
                begin,
                begin + chance.uniform(0.5, 2.0),
                chance.uniform(0.5, 0.8),
            )
        )
