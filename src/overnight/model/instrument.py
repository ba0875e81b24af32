"""Readings of an instrument, a tool that traces the kernel for a while, and what the tool itself cost."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Mapping


class ReadingKind(enum.StrEnum):
    """What a reading is about. The values are stored."""

    RUN_QUEUE = "run-queue"  # how long tasks waited for a core
    SOFTIRQ = "softirq"
    HARDIRQ = "hardirq"
    CGROUP_CREATED = "cgroup-created"
    CGROUP_REMOVED = "cgroup-removed"
    CGROUP_RELEASED = "cgroup-released"  # nothing holds it any more; a zombie never gets here
    SYSCALL = "syscall"
    OFF_CPU = "off-cpu"
    FUNCTION = "function"
    LINE = "line"  # of a command


@dataclasses.dataclass(frozen=True)
class Reading:
    """One event, or the sum of a second; times in `values` are microseconds."""

    time_us: int  # wall clock; the end of the second
    kind: str  # a value of ReadingKind, maybe of a newer version
    core: int = -1
    pid: int = 0
    subject: str = ""  # softirq, interrupt, process, syscall or function
    text: str = ""  # cgroup, stack (outermost function last) or line
    values: Mapping[str, float] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Usage:
    """What an instrument cost so far."""

    cpu_seconds: float = 0.0  # of its processes and of overnight, which reads them
    # Of its BPF programs, in whatever they interrupt; None: unknown.
    kernel_seconds: float | None = None
    lost: int = 0  # events that the tool lost
    dropped: int = 0  # readings above the limits of overnight


@dataclasses.dataclass(frozen=True)
class Recording:
    """One run of an instrument, as far as it is stored."""

    id: str
    host: str
    instrument: str
    target: str
    began_us: int
    until_us: int  # the last reading, or the end
    ended: bool  # False: cut off, or still running
    running: bool  # its process exists on this machine
    usage: Usage = Usage()

    @property
    def seconds(self) -> float:
        return (self.until_us - self.began_us) / 1e6

    def describe_cost(self) -> str:
        """Return what it cost, for people."""
        usage, seconds = self.usage, max(self.seconds, 1e-9)
        programs = ""
        if usage.kernel_seconds is not None:
            programs = f", {100 * usage.kernel_seconds / seconds:.2f} % in BPF programs"
        return (
            f"it used {100 * usage.cpu_seconds / seconds:.2f} % of a core{programs}; lost {usage.lost:,} events,"
            f" dropped {usage.dropped:,} readings"
        )

    def as_json(self) -> dict[str, object]:
        """Schema docs/schemas/instrument-1.json."""
        return dataclasses.asdict(self)


@dataclasses.dataclass(frozen=True)
class Row:
    """All readings of one kind, core and subject in a window, summed."""

    kind: str
    core: int
    subject: str
    text: str
    count: float  # of waits, interrupts, calls or events
    total_us: float
    max_us: float
    p99_us: float  # the highest of any second

    @property
    def weight(self) -> tuple[float, float, float]:
        """Sorts rows of one kind: the longest time first, events by their number."""
        return self.total_us, self.max_us, self.count

    def describe(self) -> str:
        """Return the row as one line.

        >>> Row("softirq", 3, "NET_RX", "", 1200, 812_000, 950, 0).describe()
        'softirq  core 3  NET_RX  1,200 times  total 812 ms  max 950 µs'
        """
        words = [self.kind, f"core {self.core}" if self.core >= 0 else "", self.subject]
        if self.count and self.kind != ReadingKind.OFF_CPU:
            words.append(f"{self.count:,.0f} {'time' if self.count == 1 else 'times'}")
        numbers = {"total": self.total_us, "p99": self.p99_us, "max": self.max_us}
        words += [f"{name} {format_us(us)}" for name, us in numbers.items() if us]
        return "  ".join(filter(None, (*words, self.text)))

    def as_json(self) -> dict[str, object]:
        return dataclasses.asdict(self)


def format_us(us: float) -> str:
    """Return a duration with three digits.

    >>> format_us(0.8), format_us(15), format_us(812_000), format_us(3_250_000)
    ('0.8 µs', '15 µs', '812 ms', '3.25 s')
    """
    for unit, size in (("s", 1e6), ("ms", 1e3)):
        if us >= size:
            return f"{us / size:.3g} {unit}"
    return f"{us:.3g} µs"
