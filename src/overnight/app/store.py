"""`overnight store`: verify what is stored, ingest leftovers, pin windows.

Listing and removing pins imports neither numpy nor DuckDB.
"""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

from overnight.app import pins as window_pins
from overnight.app import windows

if TYPE_CHECKING:
    from overnight.model.pins import Pin
    from overnight.store import check as checks

    CheckReport: TypeAlias = checks.Report


@dataclasses.dataclass(frozen=True)
class Leftovers:
    """What could not be ingested."""

    problems: tuple[str, ...]

    def as_json(self) -> dict[str, object]:
        return {"schema": "overnight.store-ingest/1", "problems": list(self.problems)}


@dataclasses.dataclass(frozen=True)
class Pinned:
    """The pinned windows of a data home."""

    pins: tuple[Pin, ...]

    def as_json(self) -> dict[str, object]:
        pins = [dataclasses.asdict(pin) for pin in self.pins]
        return {"schema": "overnight.pins/1", "pins": pins}


def check(home: pathlib.Path, *, clean: bool, progress: Callable[[int, int], None]) -> CheckReport:
    """Verify every stored file; `clean` deletes what killed writers left unfinished.

    `progress` gets the number of segments done, and of all.
    """
    from overnight.store import check as checks
    from overnight.store import segments

    report = checks.check(segments.Catalogue(home), progress)
    if clean:
        checks.remove_unfinished(report)
    return report


def ingest(home: pathlib.Path) -> Leftovers:
    """Ingest what a killed recording left in the spool."""
    from overnight.app import spool_ingest

    return Leftovers(tuple(spool_ingest.ingest_leftovers(home)))


def list_pins(home: pathlib.Path) -> Pinned:
    return Pinned(window_pins.list_pins(home))


def pin(home: pathlib.Path, name: str, begin: str, end: str, why: str) -> Pinned:
    """Keep a window of profiles and signals whatever the budget; return all pins."""
    window = windows.resolve_window(window_pins.recorded_window(home), begin, end)
    window_pins.pin_window(home, name, window, why)
    return list_pins(home)


def unpin(home: pathlib.Path, name: str) -> Pinned:
    """Remove a pin; return the pins that are left."""
    window_pins.unpin(home, name)
    return list_pins(home)
