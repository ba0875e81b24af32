"""systemd: whether it runs this host, and what it says of its services, here and in machines inside."""

from __future__ import annotations

import functools
import pathlib

from overnight import sources
from overnight.sources.systemd import manager, units

__all__ = ["SIGNALS", "booted", "manager_state"]

booted = manager.booted
manager_state = manager.manager_state


@functools.lru_cache(maxsize=4)
def _shared(root: pathlib.Path) -> units.Fleet:
    # Both signals are of one question: systemd is asked once for the two of them.
    return units.Fleet(root)


def open_states(root: pathlib.Path) -> sources.FactReader:
    """The look of `units`."""
    fleet = _shared(root)

    def read() -> sources.Facts:
        return {key: one.fact() for key, one in fleet.read().items()}

    return read


def open_restarts(root: pathlib.Path) -> sources.Reader:
    """The look of `unit-restarts`."""
    fleet = _shared(root)

    def read() -> sources.Rows:
        return {
            key: (one.restarts, one.since_us // 1_000_000)
            for key, one in fleet.read().items()
            if one.restarts or one.restart != "no"
        }

    return read


SIGNALS = (
    sources.FactSignal(
        "units",
        30.0,
        "unit",
        open_states,
        "systemd over its own socket: state, result, unit file and preset of every loaded service",
    ),
    sources.Signal(
        "unit-restarts",
        30.0,
        "unit",
        (sources.Column("restarts"), sources.Column("since", "gauge", "s")),
        open_restarts,
        "systemd over its own socket: NRestarts of services that may be restarted, and since when their state",
    ),
)
