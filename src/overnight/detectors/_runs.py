"""Runs of marked rows."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

__all__ = ["longest_run"]


def longest_run(marked: npt.NDArray[np.bool_]) -> npt.NDArray[np.int64]:
    """Return the rows of the longest run of marked ones, the first of several.

    >>> longest_run(np.array([True, False, True, True])).tolist()
    [2, 3]
    """
    rows = np.flatnonzero(marked).astype(np.int64)
    return max(np.split(rows, np.flatnonzero(np.diff(rows) > 1) + 1), key=len)
