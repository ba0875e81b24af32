"""systemd: whether it runs this host, and the states of its services, here and in machines inside."""

from __future__ import annotations

import functools
import pathlib

from overnight import sources
from overnight.sources.systemd import manager, units

booted = manager.booted
manager_state = manager.manager_state


@functools.lru_cache(maxsize=4)
def _shared(root: pathlib.Path) -> units.Fleet:
    # Both signals share one query.
    return units.Fleet(root)


def open_states(root: pathlib.Path) -> sources.FactReader:
    fleet = _shared(root)
    return lambda: {key: unit.fact() for key, unit in fleet.read().items()}


def open_restarts(root: pathlib.Path) -> sources.Reader:
    fleet = _shared(root)
    return lambda: {
        key: (unit.restarts, unit.since)
        for key, unit in fleet.read().items()
        if unit.restarts or unit.restart != "no"
    }


SIGNALS = (
    sources.FactSignal("units", 30.0, "unit", open_states),
    sources.Signal("unit-restarts", 30.0, "unit", ("restarts", "since"), open_restarts),
)
