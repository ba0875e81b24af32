"""One module a kernel interface. Standard library only: this runs on every host.

`read_x(root)` does the I/O and `parse_x(text)` is pure. `root` defaults to `/`, so a fake tree
tests it, and a container can read its host's (`root=/host`). A source never imports another.

What the flight recorder looks at regularly is told by the module itself, in `SIGNALS`: a tuple of
`Signal` (integers) and `FactSignal` (words). A new one is found without any list to edit.
"""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Callable, Mapping
from typing import Literal

__all__ = [
    "ROOT",
    "Column",
    "Fact",
    "FactLook",
    "FactSignal",
    "Facts",
    "Look",
    "NoDataError",
    "Rows",
    "Signal",
]

ROOT = pathlib.Path("/")

Rows = Mapping[str, tuple[int, ...]]
Look = Callable[[], Rows]
Fact = Mapping[str, str | int | float | bool]
Facts = Mapping[str, Fact]
FactLook = Callable[[], Facts]


class NoDataError(Exception):
    """The host does not have this interface, and that is no fault: say so once, and go on."""


@dataclasses.dataclass(frozen=True)
class Column:
    """One integer of a row. A counter only rises (until its thing is born anew); a gauge is a level."""

    name: str
    kind: Literal["counter", "gauge"] = "counter"
    unit: str = ""  # "ticks", "us", "pages", …; "" counts things
    keep: float = 0.0  # seconds apart that the ring keeps it; 0: at each look


@dataclasses.dataclass(frozen=True)
class Signal:
    """Integers read every so often, a row for each key: a core, an interface, a cgroup.

    `open` takes the root and gives the look: what it keeps open between two looks is its own, for
    opening a file costs more than reading it. A look returns the numbers as the kernel tells them,
    rates and shares are derived on read. It raises NoDataError where there is nothing to read.
    """

    name: str
    every: float  # seconds
    key: str  # what a row is about: "core", "interface", …; "" when there is one row, under ""
    columns: tuple[Column, ...]
    open: Callable[[pathlib.Path], Look]
    about: str  # one line for docs/signals.md: file or call it comes from, and what it tells


@dataclasses.dataclass(frozen=True)
class FactSignal:
    """Words and states read every so often; only what changed is stored."""

    name: str
    every: float
    key: str
    open: Callable[[pathlib.Path], FactLook]
    about: str
