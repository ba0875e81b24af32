"""State that is put on a host before a recording: what leaks in a week is there in seconds.

One module a kind of state. Each has NAME and ABOUT for the command line, TAKES (the options that it
understands), `age`, which makes the state with every change in the ledger first, and `count`, which says
how much of it the host has.
"""

from __future__ import annotations

import dataclasses
import os
import pathlib
import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Protocol

from overnight import errors
from overnight.model import sizes

if TYPE_CHECKING:
    from overnight.undo import journal

__all__ = ["ROOT", "SHARE", "Aged", "Kind", "Request", "available", "refuse_more_than", "silence"]

ROOT = pathlib.Path("/")
# Of the memory that is available when it begins; a host that is short of memory is another incident.
SHARE = 0.25


def silence(done: int, text: str) -> None:
    """Tells nobody how it goes."""


@dataclasses.dataclass(frozen=True)
class Request:
    """How much of it is asked for. `options` has what TAKES names, and only where it was said."""

    count: int
    home: pathlib.Path
    options: Mapping[str, str] = dataclasses.field(default_factory=dict)
    share: float = SHARE
    tell: Callable[[int, str], None] = silence  # how many are made, and what they cost
    stop: threading.Event = dataclasses.field(default_factory=threading.Event)


@dataclasses.dataclass(frozen=True)
class Aged:
    """What was made. `counts` names the number of `count` that must have grown by so many."""

    made: int
    where: str
    bytes_each: int
    counts: str
    remarks: tuple[str, ...] = ()


class Kind(Protocol):
    """One kind of state: a module."""

    NAME: str
    ABOUT: str
    TAKES: frozenset[str]

    def age(self, request: Request, journal: journal.Journal) -> Aged:
        """Make it. Raises CannotError where the host cannot; whoever has the ledger undoes it then."""

    def count(self, root: pathlib.Path = ROOT) -> dict[str, int]:
        """How much of it there is on this host, whoever made it; nothing where it is not counted."""

    def remains(self, root: pathlib.Path = ROOT) -> str:
        """What the kernel keeps after the undoing, and until when; '' for nothing."""


def available(root: pathlib.Path = ROOT) -> int:
    """Bytes that can be had without swapping: MemAvailable."""
    for line in (root / "proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def refuse_more_than(most: int, count: int, each: float, what: str) -> None:
    """CannotError when so many, at so many bytes each, are more than `most` bytes."""
    if count * each > most:
        raise errors.CannotError(
            f"{count:,} {what} would take about {sizes.format_size(count * each)}",
            why=f"one costs about {sizes.format_size(each)} here, and overnight takes at most "
            f"{sizes.format_size(most)}, a share of the memory that is available",
            todo=f"ask for {max(0, int(most / each)):,} or fewer, or free memory first",
        )
