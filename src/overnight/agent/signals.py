"""Signals and watches of the flight recorder, discovered from their modules."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from overnight import errors, sources
from overnight.agent import watches


def discover_signals() -> tuple[sources.Signal | sources.FactSignal, ...]:
    """Return the signals that the source modules list in SIGNALS, fastest first."""
    listed = sources.discover(sources, "SIGNALS")
    return tuple(sorted(listed, key=lambda signal: (signal.every, signal.name)))


def discover_watches() -> tuple[watches.Watch, ...]:
    """Make a new watch of every kind that the modules of `watches` list in WATCHES."""
    return tuple(make() for make in sources.discover(watches, "WATCHES"))


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
