"""Which samples a question is about."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable

from overnight import errors

__all__ = ["Coverage", "Selection", "Window", "match_event", "parse_event"]


@dataclasses.dataclass(frozen=True)
class Window:
    """A stretch of time, in µs since the epoch; the end is not in it."""

    begin_us: int
    end_us: int

    def __post_init__(self) -> None:
        if self.end_us <= self.begin_us:
            raise errors.UsageError(
                f"-e must be after -b (the window is {self.end_us - self.begin_us} µs long)",
                why="a window ends after it begins",
                todo="exchange them, or write the end as a duration: -e +10m",
            )

    @property
    def seconds(self) -> float:
        """Its length."""
        return (self.end_us - self.begin_us) / 1e6


@dataclasses.dataclass(frozen=True)
class Selection:
    """Filters; an empty one lets everything through. Texts are regular expressions, searched."""

    cores: tuple[int, ...] = ()
    process: str = ""
    thread: str = ""
    function: str = ""
    unit: str = ""
    side: str = ""  # "kernel", "user" or '' for both: where the sample's innermost frame runs
    idle: bool = False  # whether idle samples count too
    # Samples of one event only: different ones do not add up. Its place in each capture, or its name.
    event: int | str = 0

    def __post_init__(self) -> None:
        for name in ("process", "thread", "function", "unit"):
            try:
                re.compile(getattr(self, name))
            except (re.error, OverflowError, RecursionError) as error:
                raise errors.UsageError(
                    f"{getattr(self, name)!r} is not a regular expression",
                    why=str(error),
                    todo=f"mend --{name}; a literal bracket is written as \\[",
                ) from error
        if self.side not in ("", "kernel", "user"):
            raise errors.UsageError(
                f"no side {self.side!r}",
                why="code runs in kernel or user mode",
                todo="kernel, user",
            )

    @property
    def by_task(self) -> bool:
        """Whether it depends on who ran."""
        return bool(self.process or self.thread or self.unit)

    @property
    def by_node(self) -> bool:
        """Whether it depends on the stack."""
        return bool(self.function or self.side)


def parse_event(text: str) -> int | str:
    """An event as somebody writes it: a number counts from 0, everything else is a name."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 4 else text


def match_event(wanted: str, names: Iterable[str]) -> str:
    """The event of that name, or the only one whose name begins so."""
    known = tuple(dict.fromkeys(names))
    found = [name for name in known if name == wanted] or [
        name for name in known if wanted and name.startswith(wanted)
    ]
    if len(found) == 1:
        return found[0]
    raise errors.UsageError(
        f"{len(found)} events begin with {wanted!r}" if found else f"no event {wanted!r}",
        why=f"recorded are {', '.join(found or known) or 'none'}",
        todo="give the whole name of one, or its number from 0 on",
    )


@dataclasses.dataclass(frozen=True)
class Coverage:
    """How much of what was asked for is there. Every answer carries one."""

    hosts: tuple[str, ...]
    window: Window
    recorded_seconds: float  # summed over hosts
    core_seconds: float  # the same, times each host's cores
    capacity: float  # samples that all cores would have made; 0: not known
    samples: int
    idle: int
    lost: int
    segments: int
    gaps: tuple[tuple[int, int, str], ...]  # begin and end in µs, why
    notes: tuple[str, ...] = ()

    def as_json(self) -> dict[str, object]:
        """The stable form."""
        return dataclasses.asdict(self)
