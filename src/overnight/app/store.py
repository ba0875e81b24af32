"""`overnight store`: verify what is stored, ingest leftovers, pin windows."""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Callable
from typing import TypeAlias

from overnight import errors
from overnight.agent import spool
from overnight.app import spool_ingest, spool_paths, windows
from overnight.store import check as checks
from overnight.store import segments

__all__ = ["CheckReport", "Leftovers", "Pinned", "check", "ingest", "list_pins", "pin", "unpin"]

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

    pins: tuple[spool.Pin, ...]

    def as_json(self) -> dict[str, object]:
        pins = [dataclasses.asdict(pin) for pin in self.pins]
        return {"schema": "overnight.pins/1", "pins": pins}


def check(home: pathlib.Path, *, clean: bool, progress: Callable[[int, int], None]) -> CheckReport:
    """Verify every stored file; `clean` deletes what killed writers left unfinished.

    `progress` gets the number of segments done, and of all.
    """
    report = checks.check(segments.Catalogue(home), progress)
    if clean:
        checks.remove_unfinished(report)
    return report


def ingest(home: pathlib.Path) -> Leftovers:
    """Ingest what a killed recording left in the spool."""
    return Leftovers(tuple(spool_ingest.ingest_leftovers(home)))


def list_pins(home: pathlib.Path) -> Pinned:
    return Pinned(_spool(home).pins())


def pin(home: pathlib.Path, name: str, begin: str, end: str, why: str) -> Pinned:
    """Keep a window whatever the budget; return all pins."""
    pins = _spool(home)
    reader = windows.open_reader(home)
    window = windows.resolve_window(reader, reader.hosts(), begin, end)
    pins.pin(spool.Pin(name, window.begin_us * 1000, window.end_us * 1000, why))
    return Pinned(pins.pins())


def unpin(home: pathlib.Path, name: str) -> Pinned:
    """Remove a pin; return the pins that are left."""
    pins = _spool(home)
    if not pins.unpin(name):
        raise errors.CannotError(
            f"no pin {name!r}",
            why="it was removed before, or never set",
            todo="overnight store pin   lists all pins",
        )
    return Pinned(pins.pins())


def _spool(home: pathlib.Path) -> spool.Spool:
    return spool.Spool(spool_paths.spool_folder(home), 0, 0)
