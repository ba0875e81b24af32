"""Discover signals and watches from their modules, without a central list."""

from __future__ import annotations

import dataclasses
import importlib
import pkgutil
import types
from collections.abc import Iterator, Mapping
from typing import Any

from overnight import errors, sources
from overnight.agent import watches


def discover_signals() -> tuple[sources.Signal | sources.FactSignal, ...]:
    """Return the signals that the source modules list in SIGNALS, fastest first."""
    listed: Iterator[sources.Signal | sources.FactSignal] = _discover(sources, "SIGNALS")
    return tuple(sorted(listed, key=lambda signal: (signal.every, signal.name)))


def discover_watches() -> tuple[watches.Watch, ...]:
    """Make a new watch of every kind that the modules of `watches` list in WATCHES."""
    return tuple(make() for make in _discover(watches, "WATCHES"))


def _discover(package: types.ModuleType, name: str) -> Iterator[Any]:
    for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
        yield from getattr(importlib.import_module(module.name), name, ())


def set_intervals(
    all_signals: tuple[sources.Signal | sources.FactSignal, ...], every: Mapping[str, float]
) -> tuple[sources.Signal | sources.FactSignal, ...]:
    """Return the signals with other poll intervals, in seconds by name."""
    if unknown := every.keys() - {signal.name for signal in all_signals}:
        raise errors.UsageError(
            f"--every: unknown signal {', '.join(sorted(unknown))}",
            why="--every takes SIGNAL=SECONDS",
            todo=f"use one of {', '.join(sorted(signal.name for signal in all_signals))}",
        )
    return tuple(
        dataclasses.replace(signal, every=every[signal.name]) if signal.name in every else signal
        for signal in all_signals
    )
