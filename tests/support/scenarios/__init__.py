"""Data homes as a recording leaves them, with the truth of each: what a diagnosis is tested against.

    truth = scenarios.build("reference", home, seed=3)

A seed varies cores, names, rates, times and the load. The flight recorder's own loop, watches and kernel-log
rules look at the made-up host, so that its events are those the agent would have written.
"""

from __future__ import annotations

import pathlib

from scenarios import stories
from scenarios.truth import Truth

__all__ = ["LARGE", "NAMES", "Truth", "build"]

NAMES = tuple(stories.STORIES)
# build("reference", home, **LARGE): twelve hours of 96 cores, in two minutes; for benchmarks
LARGE: dict[str, object] = {"cores": 96, "minutes": 720.0, "recurrences": 12}


def build(name: str, home: pathlib.Path, seed: int = 0, **variation: object) -> Truth:
    """Make the data home of a scenario; `variation` is what its story takes, and `setting.make`."""
    return stories.STORIES[name](home, seed, **variation)
