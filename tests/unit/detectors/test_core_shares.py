"""Rises and falls of a process's share of a core that chance explains, and those that it does not."""

from __future__ import annotations

import pytest

from overnight.detectors import _core_shares
from overnight.model.actor import Actor

WORKER = Actor("worker")


@pytest.mark.parametrize(
    ("now", "before", "error", "rose", "fell"),
    [
        pytest.param(0.5, 0.3, 0.1, True, False, id="a rise"),
        pytest.param(0.5, 0.3, 0.25, False, False, id="a rise within its own error"),
        pytest.param(0.5, 0.4, 0.01, False, False, id="a rise too small to matter"),
        pytest.param(0.3, 0.5, 0.1, False, True, id="a fall"),
        pytest.param(0.3, 0.5, 0.25, False, False, id="a fall within its own error"),
        pytest.param(0.4, 0.5, 0.01, False, False, id="a fall too small to matter"),
    ],
)
def test_near_misses(now: float, before: float, error: float, rose: bool, fell: bool) -> None:
    share = _core_shares.Share(now, before, error)
    assert (share.rose, share.fell) == (rose, fell)
    assert ("cores_added" in _core_shares.magnitude(share)) == rose


@pytest.mark.parametrize(
    ("samples", "capacity", "baseline", "is_ticks", "rose"),
    [
        pytest.param(150, 600, (300, 6000), False, True, id="many samples"),
        pytest.param(2, 8, (300, 6000), False, False, id="few samples now"),
        pytest.param(150, 600, (1, 20), False, False, id="few samples before"),
        pytest.param(3, 12, (1, 20), False, False, id="few samples"),
        pytest.param(3, 12, (1, 20), True, True, id="ticks, which are exact"),
    ],
)
def test_the_error_follows_from_the_number_of_samples(
    samples: int, capacity: int, baseline: tuple[int, int], is_ticks: bool, rose: bool
) -> None:
    """The share rises from 5 % to 25 % each time."""
    used, whole = baseline
    compared = _core_shares.Baseline({WORKER: used}, 0.0, whole, is_ticks)
    share = compared.share(WORKER, samples, capacity)
    assert share.added == pytest.approx(0.2)
    assert share.rose == rose
