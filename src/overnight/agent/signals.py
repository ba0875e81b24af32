"""Every signal and watch there is: the modules tell them, and no list is kept."""

from __future__ import annotations

import dataclasses
import importlib
import pkgutil
from collections.abc import Mapping

from overnight import errors, sources
from overnight.agent import watches

__all__ = ["discover_signals", "discover_watches", "set_intervals"]


def discover_signals() -> tuple[sources.Signal | sources.FactSignal, ...]:
    """What the source modules declare in SIGNALS, by name."""
    found = [
        signal
        for module in pkgutil.iter_modules(sources.__path__)
        for signal in getattr(
            importlib.import_module(f"{sources.__name__}.{module.name}"), "SIGNALS", ()
        )
    ]
    return tuple(sorted(found, key=lambda one: (one.every, one.name)))


def discover_watches() -> tuple[watches.Watch, ...]:
    """A new watch of every kind that the modules of `watches` declare in WATCHES."""
    return tuple(
        make()
        for module in pkgutil.iter_modules(watches.__path__)
        for make in getattr(
            importlib.import_module(f"{watches.__name__}.{module.name}"), "WATCHES", ()
        )
    )


def set_intervals(
    found: tuple[sources.Signal | sources.FactSignal, ...], every: Mapping[str, float]
) -> tuple[sources.Signal | sources.FactSignal, ...]:
    """The signals, some of them looked at more often or more seldom than they ask for."""
    if strange := every.keys() - {one.name for one in found}:
        raise errors.UsageError(
            f"no signal is called {', '.join(sorted(strange))}",
            why="--every names a signal and its seconds",
            todo=f"one of {', '.join(sorted(one.name for one in found))}",
        )
    return tuple(
        dataclasses.replace(one, every=every[one.name]) if one.name in every else one
        for one in found
    )
