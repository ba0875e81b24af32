from __future__ import annotations

from overnight.load.workloads import _training


def test_the_same_seed_gives_the_same_loss_and_it_learns() -> None:
    steps = []
    first = _training.train("numpy", 1, 300, steps.append)
    assert len(steps) == 300
    assert _training.train("numpy", 1, 300, lambda _: None) == first
    assert _training.train("numpy", 2, 300, lambda _: None) != first
    assert first < 0.5 * _training.train("numpy", 1, 1, lambda _: None)
