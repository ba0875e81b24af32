"""Small data homes for detectors: a ring, events and stacks of one host, and the case of one event."""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Callable, Mapping, Sequence

import captures
import rings

from overnight.model import cpu
from overnight.model.event import Event
from overnight.queries import case
from overnight.store import writer as segments

Rows = Mapping[str, Sequence[int]]
HERTZ = 100
COLUMNS = {
    "cpu": cpu.MODES,
    "memory-cgroups": ("tracked", "in_use", "dying", "stat_read", "stat_reads"),
    "memory-cgroup-parents": ("dying", "at_least", "at_most", "in_use"),
    "cgroup-births": ("born", "died", "short_lived", "lived"),
    "cgroup-supervisors": ("births", "coincided", "looks", "acted", "led", "followed"),
    "unit-restarts": ("restarts", "since"),
    "vmstat": ("pgscan_direct", "pgscan_kswapd", "allocstall", "oom_kill"),
    "pressure": ("some", "full"),
    "limits": ("used", "maximum"),
    "load": ("load1",),
}


@dataclasses.dataclass
class Home:
    """Signals, events and samples of a night that begins at second 0; `case` writes them and opens an event."""

    path: pathlib.Path
    seconds: int
    begin: int = 0
    reboot: int | None = None  # the first second after a reboot
    segment_seconds: int = 3600  # few segments: each is synced to the disk
    readings: dict[str, tuple[float, Callable[[int], Rows]]] = dataclasses.field(
        default_factory=dict
    )
    facts: dict[str, dict[str, dict[str, str | int]]] = dataclasses.field(default_factory=dict)
    events: list[Event] = dataclasses.field(default_factory=list)
    samples: list[captures.Sample] = dataclasses.field(default_factory=list)

    def signal(self, name: str, every: int, read: Callable[[int], Rows]) -> None:
        """Add a signal that is polled every `every` seconds and returns `read(second)`."""
        self.readings[name] = (every, read)

    def add_event(self, second: float, kind: str, **fields: object) -> Event:
        """Add an event; its id ends with its number."""
        event = Event(
            rings.us(second), kind, host=rings.HOST, id=f"{kind}-{len(self.events)}", **fields  # type: ignore[arg-type]
        )  # fmt: skip
        self.events.append(event)
        return event

    def add_samples(
        self,
        begin: int,
        seconds: int,
        functions: Sequence[str],
        *,
        core: int = 0,
        process: str = "app",
        unit: str = "app.service",
        share: float = 1.0,
    ) -> None:
        """Add samples in these kernel functions, outermost first, for a share of a core's samples."""
        path = (captures.user("main"), *map(captures.kernel, functions))
        first = (rings.us(begin)) * 1000
        for n in range(HERTZ * seconds):
            if int((n + 1) * share) > int(n * share):
                self.samples.append(
                    captures.Sample(
                        first + n * captures.SECOND // HERTZ, path, core, process, unit=unit
                    )
                )

    def idle(self, cores: int = 4) -> None:
        """Add idle samples of every core, one every 5 s."""
        for second in range(self.begin, self.seconds, 5):
            for core in range(cores):
                self.samples.append(
                    captures.Sample(
                        rings.us(second) * 1000, captures.IDLE, core, "swapper", pid=0, tid=0
                    )
                )

    def case(self, event: Event) -> case.Case:
        """Write everything and open the case of one event."""
        _record(self)
        if self.samples:
            built = captures.build(
                self.samples,
                host=rings.HOST,
                begin=rings.us(self.begin) * 1000,
                end=rings.us(self.seconds) * 1000,
                cores=(0, 1, 2, 3),
                frequency=HERTZ,
            )
            segments.write_capture(self.path, built, segment_seconds=self.segment_seconds)
        return case.Case(self.path, event)


def _record(home: Home) -> None:
    ring = rings.open_writer(home.path)
    for name, rows in home.facts.items():
        ring.facts(name, rings.at(home.begin), rows)
    paces = [every for every, _ in home.readings.values()]
    step = int(min(paces, default=60))
    for second in range(home.begin, home.seconds, step):
        if second == home.reboot:
            ring.close()
            ring = rings.open_writer(home.path, boot=rings.BOOT[::-1])
        for name, (every, read) in home.readings.items():
            if (second - home.begin) % every == 0:
                ring.numbers(name, COLUMNS[name], rings.at(second), read(second))
        ring.tick(rings.at(second))
    for event in home.events:
        ring.event(event)
    ring.close()
