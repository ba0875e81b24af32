from __future__ import annotations

import pytest

from overnight.load.workloads import _training


# Without the workload's environment, BLAS uses a thread per core; next to other work they wait for each other.
@pytest.mark.timeout(60)
def test_the_same_seed_gives_the_same_loss_and_it_learns() -> None:
    steps = []
    first = _training.train("numpy", 1, 300, lambda: steps.append(1))
    assert len(steps) == 300
    assert _training.train("numpy", 1, 300, lambda: None) == first
    assert _training.train("numpy", 2, 300, lambda: None) != first
    assert first < 0.5 * _training.train("numpy", 1, 1, lambda: None)
