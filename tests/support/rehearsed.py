"""A rehearsal that is right. It is a real incident on a machine that others may use, too: right at once, or
two times of three, and never with anything left behind.
"""

from __future__ import annotations

import pathlib

import noise
import pytest

from overnight import errors
from overnight.app import rehearsal, scoreboard

__all__ = ["BUSY_TRIES", "rehearse"]

ANOTHER = 100
BUSY_TRIES = 3


def rehearse(name: str, seed: int, home: pathlib.Path) -> scoreboard.Outcome:
    """The first right outcome; the seeds that were wrong are listed where the test fails.

    It runs on the quietest core. A machine where no core has room for the victim is said to be too busy.
    """
    wrong: list[str] = []
    busy: list[str] = []
    right: list[scoreboard.Outcome] = []
    tries = iter((seed, seed + ANOTHER, seed + 2 * ANOTHER))
    tried = next(tries)
    while True:
        core = noise.find_quietest_core()
        try:
            made = rehearsal.rehearse(
                rehearsal.find(name), seed=tried, home=home, brief=True, core=core
            )
        except errors.CannotError as error:
            busy.append(f"{error.what}: {error.why}")
            if "too busy" not in error.what:
                raise
            if len(busy) >= BUSY_TRIES:
                pytest.skip("; ".join(busy))
            continue
        assert made.leftovers == (), made.leftovers
        if made.correct:
            assert made.rank == 1
            assert made.problems == (), made.problems
            right.append(made)
        else:
            wrong.append(
                f"seed {tried}: {'; '.join((*made.problems, *made.disturbances, *made.others))}"
            )
        if len(right) > len(wrong):
            return right[0]
        if len(wrong) >= 2:
            raise AssertionError("\n".join(wrong))
        tried = next(tries)
