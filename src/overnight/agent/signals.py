"""Every signal and watch there is: the modules tell them, and no list is kept."""

from __future__ import annotations

import importlib
import pkgutil

from overnight import sources
from overnight.agent import watches

__all__ = ["discover_signals", "discover_watches"]


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
