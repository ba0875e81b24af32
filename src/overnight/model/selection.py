"""Which samples a query selects, and how much of them was recorded."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

from overnight import errors
from overnight.model import times

if TYPE_CHECKING:
    from overnight.model.emptiness import Empty
    from overnight.model.unknown import Unknown


@dataclasses.dataclass(frozen=True)
class Window:
    """A span of time in µs since the epoch, without its end."""

    begin_us: int
    end_us: int

    def __post_init__(self) -> None:
        if self.end_us <= self.begin_us:
            early = times.format_duration((self.begin_us - self.end_us) / times.SECOND_US)
            raise errors.UsageError(
                f"-e must be after -b (it is {early} before it)",
                why="a window ends after it begins",
                todo="swap them, or write the end as a duration: -e +10m",
            )

    @property
    def seconds(self) -> float:
        return (self.end_us - self.begin_us) / 1e6


@dataclasses.dataclass(frozen=True)
class Selection:
    """Filters; empty ones match everything. Texts are regular expressions that match anywhere."""

    cores: tuple[int, ...] = ()
    process: str = ""
    thread: str = ""
    function: str = ""
    unit: str = ""
    pids: tuple[int, ...] = ()  # for detectors: a pid means nothing to a user after the night
    side: str = ""  # "kernel", "user" or '' for both: the mode of the innermost frame
    idle: bool = False  # include idle samples
    # One sampled event, by name or by index in each capture: samples of different events do not add up.
    event: int | str = 0

    def __post_init__(self) -> None:
        for name in ("process", "thread", "function", "unit"):
            try:
                re.compile(getattr(self, name))
            except (re.error, OverflowError, RecursionError) as error:
                raise errors.UsageError(
                    f"{getattr(self, name)!r} is not a regular expression",
                    why=str(error),
                    todo=f"correct --{name}; write a literal bracket as \\[",
                ) from error
        if self.side not in ("", "kernel", "user"):
            raise errors.UsageError(
                f"--side must be kernel or user (got {self.side})",
                why="code runs in kernel or user mode",
                todo="--side kernel, or --side user",
            )

    @property
    def by_task(self) -> bool:
        """Whether it filters by process, thread or unit."""
        return bool(self.process or self.thread or self.unit or self.pids)

    @property
    def by_node(self) -> bool:
        """Whether it filters by stack."""
        return bool(self.function or self.side)

    def event_in(self, events: tuple[str, ...]) -> int:
        """Return the number of the selected event in a capture; -1: not recorded there."""
        if isinstance(self.event, int):
            return self.event
        return events.index(self.event) if self.event in events else -1


def parse_event(text: str) -> int | str:
    """Read a sampled event: an index from 0, or a name."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 4 else text


def match_event(wanted: str, names: Iterable[str]) -> str:
    """Return the event of that name, or the only one that begins with it."""
    known = tuple(dict.fromkeys(names))
    matching = [name for name in known if name == wanted] or [
        name for name in known if wanted and name.startswith(wanted)
    ]
    if len(matching) == 1:
        return matching[0]
    raise errors.UsageError(
        f"{len(matching)} events begin with {wanted!r}" if matching else f"no event {wanted!r}",
        why=f"recorded events: {', '.join(matching or known) or 'none'}",
        todo="give the full name of an event, or its index from 0",
    )


@dataclasses.dataclass(frozen=True)
class Damage:
    """A stored segment that a query left out; the numbers are those within the window."""

    host: str
    segment: str
    begin_us: int
    end_us: int
    seconds: float
    samples: int | None  # in proportion to the time; None: not known
    why: str

    def __str__(self) -> str:
        samples = "" if self.samples is None else f" with about {self.samples:,} samples"
        return (
            f"segment {self.segment} of {self.host} is damaged and left out, "
            f"{self.seconds:g} s{samples}: {self.why} (`overnight store check`)"
        )


@dataclasses.dataclass(frozen=True)
class Coverage:
    """How much of the selected time was recorded. Every answer carries one."""

    hosts: tuple[str, ...]
    window: Window
    recorded_seconds: float  # summed over hosts
    core_seconds: float  # the same, times each host's cores
    capacity: float  # samples of all cores at full load; 0: not known
    samples: int
    idle: int
    lost: int
    segments: int
    gaps: tuple[tuple[int, int, str], ...]  # begin and end in µs, why
    notes: tuple[str, ...] = ()
    damaged: tuple[Damage, ...] = ()  # also gaps and notes
    event: str = ""  # the sampled event; '': not known
    empty: Empty | None = None  # why there are no samples; None if there are some
    unknown: Unknown | None = None  # None: the query did not read stacks

    @property
    def core_rate(self) -> float:
        """Samples a second of one saturated core; 0: not known."""
        return self.capacity / self.core_seconds if self.core_seconds else 0.0

    def remarks(self) -> tuple[str, ...]:
        """Return why the answer is empty, and which of its stacks are unknown."""
        empty = () if self.empty is None else (str(self.empty),)
        return (*empty, *(self.unknown.lines() if self.unknown else ()))

    def as_json(self) -> dict[str, object]:
        return dataclasses.asdict(self)
