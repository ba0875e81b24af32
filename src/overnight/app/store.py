"""`overnight store`: verify what is stored, ingest leftovers, pin windows.

Neither profiles nor signals in a pinned window are rotated away. Listing and removing pins imports neither
numpy nor DuckDB.
"""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

from overnight import errors
from overnight.app import home as homes
from overnight.app import spool_paths, windows
from overnight.model.pins import Pin, Pins
from overnight.model.selection import Window
from overnight.store.ring import layout
from overnight.store.ring import reader as rings

if TYPE_CHECKING:
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
        homes.need_private(home)
        checks.remove_unfinished(report)
    return report


def ingest(home: pathlib.Path) -> Leftovers:
    """Ingest what a killed recording left in the spool."""
    from overnight.app import spool_ingest

    homes.need_private(home)
    return Leftovers(tuple(spool_ingest.ingest_leftovers(home)))


def list_pins(home: pathlib.Path) -> Pinned:
    """Return every pin once, also those that only the profiles or only one ring has."""
    by_id = {pin.id: pin for folder in reversed(_pin_folders(home)) for pin in folder.pins()}
    return Pinned(tuple(by_id[name] for name in sorted(by_id)))


def pin(home: pathlib.Path, name: str, begin: str, end: str, why: str) -> Pinned:
    """Pin a window of the profiles and of every host's ring, in place of a pin of that name; return all."""
    homes.need_private(home)
    window = windows.resolve_window(_recorded_window(home), begin, end)
    for pins in _pin_folders(home):
        pins.pin(Pin(name, window.begin_us * 1000, window.end_us * 1000, why))
    return list_pins(home)


def unpin(home: pathlib.Path, name: str) -> Pinned:
    """Remove a pin everywhere and return the pins that are left; raise CannotError if there is none."""
    homes.need_private(home)
    removed = [pins.unpin(name) for pins in _pin_folders(home)]
    if not any(removed):
        raise errors.CannotError(
            f"no pin is called {name!r}",
            why="it was removed before, or never existed",
            todo="`overnight store pin` lists the pins",
        )
    return list_pins(home)


def _recorded_window(home: pathlib.Path) -> Window:
    """Return the first to the last moment recorded of any host, profiles and signals alike."""
    ring = rings.Reader(home)
    spans = [span for host in ring.hosts() if (span := ring.extent(host))]
    try:
        window = windows.open_reader(home).extent()
        spans.append((window.begin_us, window.end_us))
    except errors.CannotError:
        if not spans:
            raise
    return Window(min(begin for begin, _ in spans), max(end for _, end in spans))


def _pin_folders(home: pathlib.Path) -> tuple[Pins, ...]:
    """Return the pins of the profiles, which all hosts share, and of each host's ring."""
    of_rings = (layout.ring_pins(home, host) for host in layout.hosts(home))
    return Pins(spool_paths.spool_folder(home) / "pins"), *of_rings
