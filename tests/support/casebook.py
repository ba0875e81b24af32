"""Small data homes for detectors: cores, processes, counters and stacks second by second.

`Home` begins at `rings.us(0)`; a whole made-up night is `scenarios.build`.
"""

from __future__ import annotations

import pathlib
from collections.abc import Callable, Mapping

import captures
import rings

from overnight.model.event import Event
from overnight.queries import case

CPU = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal")
PROCESSES = ("utime", "stime", "rss", "core", "major_faults", "state", "policy", "rt_priority")
EVENT_SECOND = 900
Shares = Callable[[int, int], tuple[float, float, float]]  # second, core: user, system, softirq


def quiet(_second: int, _core: int) -> tuple[float, float, float]:
    return 0.1, 0.03, 0.01


class Home:
    """A recording of one host that `case` ends."""

    def __init__(self, folder: pathlib.Path, *, cores: int = 4, seconds: int = 960) -> None:
        self.folder, self.cores, self.seconds = folder, cores, seconds
        self.writer = rings.open_writer(folder)
        self._events: list[Event] = []

    def cpu(self, shares: Shares = quiet, first: int = 0) -> Home:
        ticks = {core: [0] * len(CPU) for core in range(self.cores)}
        for second in range(first, self.seconds):
            rows = {str(core): tuple(row) for core, row in ticks.items()}
            self.writer.numbers("cpu", CPU, rings.at(second), rows)
            for core, row in ticks.items():
                user, system, softirq = (round(100 * share) for share in shares(second, core))
                row[0] += user
                row[2] += system
                row[6] += softirq
                row[3] += 100 - user - system - softirq
        return self

    def numbers(
        self,
        signal: str,
        columns: tuple[str, ...],
        rows: Callable[[int], Mapping[str, tuple[int, ...]]],
        seconds: range,
    ) -> Home:
        for second in seconds:
            self.writer.numbers(signal, columns, rings.at(second), rows(second))
        return self

    def queues(self, cores: Mapping[int, int], second: float = 1.0, **fields: object) -> Home:
        """Record which core serves each queue of eth0, from that second on."""
        facts = {
            f"eth0 q{queue}": {
                "interface": "eth0",
                "queue": queue,
                "way": "",
                "core": core,
                **fields,
            }
            for queue, core in cores.items()
        }
        self.writer.facts("nic-queues", rings.at(second), facts)  # type: ignore[arg-type]
        return self

    def stacks(
        self, samples: list[captures.Sample], *, begin: int = 0, end: int | None = None
    ) -> Home:
        """Record samples at 100 Hz; times are from `moment`."""
        recording = captures.build(
            samples,
            host=rings.HOST,
            begin=moment(begin),
            end=moment(end or self.seconds),
            cores=tuple(range(self.cores)),
        )
        captures.store(self.folder, recording)
        return self

    def event(self, kind: str = "net.driver_reset", second: float = EVENT_SECOND, **fields: object) -> Event:  # fmt: skip
        event = Event(
            rings.us(second), kind, host=rings.HOST, id=f"{kind}-{second}", **fields  # type: ignore[arg-type]
        )  # fmt: skip
        self.writer.event(event)
        self._events.append(event)
        return event

    def case(self) -> case.Case:
        """Close the ring and return the case of the last event."""
        self.writer.close()
        return case.Case(self.folder, self._events[-1])


def moment(second: float) -> int:
    """Convert seconds since the beginning to nanoseconds since the epoch."""
    return rings.BEGIN_US * 1000 + round(second * 1e9)


def busy(
    begin: float,
    end: float,
    core: int,
    process: str,
    path: tuple[captures.Function, ...],
    *,
    unit: str = "",
    pid: int = 100,
    hertz: int = 100,
) -> list[captures.Sample]:
    """Return samples of a process that uses a core, or a share of it."""
    return [
        captures.Sample(moment(begin + n / hertz), path, core, process, process, pid, pid, unit)
        for n in range(round((end - begin) * hertz))
    ]
