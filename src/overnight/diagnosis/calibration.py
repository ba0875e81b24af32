"""Confidence: the probability that a verdict of a given score blames a true cause.

`calibration.toml` is fitted to diagnoses whose truth is known: `python -m benchmarks.support.calibration --write`.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib.resources
import tomllib

import numpy as np

# People change production for a claimed cause, and stop looking for the true one: a wrong claim costs as
# much as three right causes that are only suspected.
WRONG_COSTS = 3.0
CLAIMED = WRONG_COSTS / (WRONG_COSTS + 1.0)  # the confidence from which a claim costs less


@dataclasses.dataclass(frozen=True)
class Calibration:
    """Scores and their probabilities, both rising, and what they were measured on."""

    scores: tuple[float, ...]
    probabilities: tuple[float, ...]
    diagnoses: int
    families: int

    def probability(self, score: float) -> float:
        """Interpolate; never 0 or 1, and constant beyond the scores that were measured."""
        return float(np.interp(score, self.scores, self.probabilities))


@functools.cache
def known() -> Calibration:
    file = importlib.resources.files("overnight.diagnosis") / "calibration.toml"
    table = tomllib.loads(file.read_text("utf-8"))
    scores, probabilities = zip(*table["knots"], strict=True)
    return Calibration(scores, probabilities, table["diagnoses"], table["families"])
