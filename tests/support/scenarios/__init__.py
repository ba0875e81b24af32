"""Data homes as a recording leaves them, each with the truth about it, to test the diagnosis.

    truth = scenarios.build("reference", home, seed=3)

A seed varies cores, names, rates, times and the load. The flight recorder's own loop, watches and kernel-log
rules watch the simulated host, so that its events are those the agent would write.
"""

from __future__ import annotations

import pathlib

from scenarios import catalogue, hard
from scenarios.truth import Truth

__all__ = ["HARD", "LARGE", "NAMES", "Truth", "build"]

NAMES = tuple(catalogue.SCENARIOS)
HARD = tuple(hard.HARD)
# build("reference", home, **LARGE): twelve hours of 96 cores, in two minutes; for benchmarks
LARGE: dict[str, object] = {"cores": 96, "minutes": 720.0, "recurrences": 12}


def build(name: str, home: pathlib.Path, seed: int = 0, **variation: object) -> Truth:
    """Write the data home of a scenario; `variation` has arguments of its builder and of `host_setup.make`."""
    return {**catalogue.SCENARIOS, **hard.HARD}[name](home, seed, **variation)
