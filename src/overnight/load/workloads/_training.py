"""One training trial: a small network learns a fixed problem. The same seed gives the same loss, bit by bit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = ["train"]

ROWS, FEATURES, HIDDEN, CLASSES, BATCH = 2048, 64, 128, 10, 128
RATE = 0.05


def train(backend: str, seed: int, steps: int, after_step: Callable[[], None]) -> float:
    """The loss after the last step. Threads are set by the environment and by torch's own setting."""
    return (_torch if backend == "torch" else _numpy)(seed, steps, after_step)


def _problem(seed: int) -> tuple[Any, Any, Any]:
    """Rows, their classes by a hidden linear rule, and what weights are drawn from."""
    import numpy as np

    chance = np.random.default_rng(seed)
    rows = chance.standard_normal((ROWS, FEATURES), dtype=np.float32)
    rule = chance.standard_normal((FEATURES, CLASSES), dtype=np.float32)
    return rows, (rows @ rule).argmax(axis=1), chance


def _numpy(seed: int, steps: int, after_step: Callable[[], None]) -> float:
    import numpy as np

    rows, classes, chance = _problem(seed)
    first = chance.standard_normal((FEATURES, HIDDEN), dtype=np.float32) / np.float32(8)
    second = chance.standard_normal((HIDDEN, CLASSES), dtype=np.float32) / np.float32(11)
    at, loss = np.arange(BATCH), 0.0
    for step in range(steps):
        begin = step * BATCH % ROWS
        batch, wanted = rows[begin : begin + BATCH], classes[begin : begin + BATCH]
        hidden = np.maximum(batch @ first, 0)
        scores = hidden @ second
        odds = np.exp(scores - scores.max(axis=1, keepdims=True))
        odds /= odds.sum(axis=1, keepdims=True)
        loss = float(-np.log(odds[at, wanted] + 1e-9).mean())
        odds[at, wanted] -= 1
        slope = odds / BATCH
        back = (slope @ second.T) * (hidden > 0)
        second -= RATE * (hidden.T @ slope)
        first -= RATE * (batch.T @ back)
        after_step()
    return loss


def _torch(seed: int, steps: int, after_step: Callable[[], None]) -> float:
    import torch

    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    torch.manual_seed(seed)
    raw, labels, _ = _problem(seed)
    rows, classes = torch.from_numpy(raw), torch.from_numpy(labels)
    model = torch.nn.Sequential(
        torch.nn.Linear(FEATURES, HIDDEN), torch.nn.ReLU(), torch.nn.Linear(HIDDEN, CLASSES)
    )
    descent = torch.optim.SGD(model.parameters(), lr=RATE)
    loss = torch.zeros(())
    for step in range(steps):
        begin = step * BATCH % ROWS
        descent.zero_grad()
        scores = model(rows[begin : begin + BATCH])
        loss = torch.nn.functional.cross_entropy(scores, classes[begin : begin + BATCH])
        loss.backward()
        descent.step()
        after_step()
    return float(loss.item())
