"""Pinned windows of a data home: neither profiles nor signals in them are rotated away."""

from __future__ import annotations

import pathlib

from overnight import errors
from overnight.app import spool_paths
from overnight.model.pins import Pin, Pins
from overnight.model.selection import Window
from overnight.store.ring import layout
from overnight.store.ring import reader as ring_reader


def recorded_window(home: pathlib.Path) -> Window:
    """Return the first to the last moment recorded of any host, profiles and signals alike."""
    from overnight.queries import reader
    from overnight.store import segments

    ring = ring_reader.Reader(home)
    spans = [span for host in ring.hosts() if (span := ring.extent(host))]
    profiles = reader.Reader(segments.Catalogue(home))
    try:
        window = profiles.extent()
    except errors.CannotError:
        if not spans:
            raise
    else:
        spans.append((window.begin_us, window.end_us))
    return Window(min(begin for begin, _ in spans), max(end for _, end in spans))


def pin_window(home: pathlib.Path, name: str, window: Window, why: str) -> None:
    """Pin a window of the profiles and of every host's ring; a pin of that name is replaced."""
    pin = Pin(name, window.begin_us * 1000, window.end_us * 1000, why)
    for pins in _folders(home):
        pins.pin(pin)


def unpin(home: pathlib.Path, name: str) -> None:
    """Remove a pin everywhere; raise CannotError if there is none of that name."""
    removed = [pins.unpin(name) for pins in _folders(home)]
    if not any(removed):
        raise errors.CannotError(
            f"no pin is called {name!r}",
            why="it was removed before, or never existed",
            todo="overnight store pin   lists the pins",
        )


def list_pins(home: pathlib.Path) -> tuple[Pin, ...]:
    """Return every pin once, also those that only the profiles or only one ring has."""
    pins: dict[str, Pin] = {}
    for folder in _folders(home):
        for pin in folder.pins():
            pins.setdefault(pin.id, pin)
    return tuple(pins[name] for name in sorted(pins))


def _folders(home: pathlib.Path) -> tuple[Pins, ...]:
    """Return the pins of the profiles, which all hosts share, and of each host's ring."""
    rings = (layout.ring_pins(home, host) for host in layout.hosts(home))
    return Pins(spool_paths.spool_folder(home) / "pins"), *rings
