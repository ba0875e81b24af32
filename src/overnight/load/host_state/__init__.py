"""State that is put on a host before a recording: a week of leaks, made in seconds. One module per `Kind`."""

from __future__ import annotations

import dataclasses
import pathlib
import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NoReturn, Protocol

from overnight import errors, sources
from overnight.model import sizes

if TYPE_CHECKING:
    from overnight.undo import journal

# Of the memory available at the start: a host that is short of memory is another incident.
SHARE = 0.25


def ignore_progress(done: int, text: str) -> None:
    pass


@dataclasses.dataclass(frozen=True)
class Request:
    """How much to create. `options` holds those of TAKES that were given."""

    count: int
    home: pathlib.Path
    options: Mapping[str, str] = dataclasses.field(default_factory=dict)
    share: float = SHARE
    on_progress: Callable[[int, str], None] = ignore_progress  # how many so far, and their cost
    stop: threading.Event = dataclasses.field(default_factory=threading.Event)


@dataclasses.dataclass(frozen=True)
class Aged:
    """What was created. `counts` names the number of `count` that must have grown by `made`."""

    made: int
    where: str
    bytes_each: int
    counts: str
    remarks: tuple[str, ...] = ()


class Kind(Protocol):
    """One kind of state: a module with these names."""

    NAME: str
    ABOUT: str
    TAKES: frozenset[str]

    def age(self, request: Request, journal: journal.Journal) -> Aged:
        """Create it. Raises CannotError where the host cannot; the caller then undoes the journal."""

    def plan(self, request: Request) -> Aged:
        """Return what `age` would create, none of it made; raises as it would, and changes nothing."""

    def count(self, root: pathlib.Path = sources.ROOT) -> dict[str, int]:
        """Count it on this host, whoever created it; empty where it cannot be counted."""

    def remains(self, root: pathlib.Path = sources.ROOT) -> str:
        """Describe what the kernel keeps after an undo, and until when; '' for nothing."""


def check_cost(kind: str, count: int, each: float, most: int) -> None:
    """Raise CannotError where `count` of them at `each` bytes exceed `most` bytes."""
    if count * each > most:
        raise errors.CannotError(
            f"{count:,} {kind} would take about {sizes.format_size(count * each)} of memory",
            why=f"one costs about {sizes.format_size(each)} here, and overnight uses at most "
            f"{sizes.format_size(most)}, a share of the available memory",
            todo=f"create {max(0, int(most / each)):,} or fewer, or free memory first",
        )


def raise_short_memory(kind: str, created: int, floor: int) -> NoReturn:
    raise errors.CannotError(
        f"memory ran short after {created:,} {kind}",
        why=f"less than {sizes.format_size(floor)} was available, and the host must stay usable",
        todo="find out what else uses memory, or create fewer",
    )
