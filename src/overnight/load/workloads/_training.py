"""One training trial: a small network learns a fixed problem. The same seed gives the same loss, bit for bit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from overnight import errors

ROWS, FEATURES, HIDDEN, CLASSES, BATCH = 2048, 64, 128, 10, 128
RATE = 0.05
# On a GPU the small network would finish a step before the next one is submitted.
GPU_HIDDEN = 8192

AfterStep: TypeAlias = Callable[[float], None]  # gets the seconds that the step took on the GPU


def train(backend: str, seed: int, steps: int, after_step: AfterStep) -> float:
    """Train and return the loss after the last step. The environment and torch's own setting limit threads."""
    if backend == "numpy":
        return _numpy(seed, steps, after_step)
    return _torch(seed, steps, after_step, on_gpu=backend == "cuda")


def _problem(seed: int) -> tuple[Any, Any, Any]:
    """Return rows, their classes by a hidden linear rule, and the generator for the weights."""
    import numpy as np

    chance = np.random.default_rng(seed)
    rows = chance.standard_normal((ROWS, FEATURES), dtype=np.float32)
    rule = chance.standard_normal((FEATURES, CLASSES), dtype=np.float32)
    return rows, (rows @ rule).argmax(axis=1), chance


def _numpy(seed: int, steps: int, after_step: AfterStep) -> float:
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
        after_step(0.0)
    return loss


def _torch(seed: int, steps: int, after_step: AfterStep, *, on_gpu: bool) -> float:
    import torch

    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    torch.manual_seed(seed)
    raw, labels, _ = _problem(seed)
    if on_gpu and not torch.cuda.is_available():
        raise errors.CannotError(
            "no GPU is available for --backend cuda",
            why="PyTorch sees no CUDA device",
            todo="nvidia-smi shows what the driver sees; `overnight load trials --backend torch` uses the CPU",
        )
    device = torch.device("cuda" if on_gpu else "cpu")
    rows, classes = torch.from_numpy(raw).to(device), torch.from_numpy(labels).to(device)
    hidden = GPU_HIDDEN if on_gpu else HIDDEN
    # Weights are drawn where they are used: on a CPU that takes half a second in which the GPU idles (CV 23 %).
    with device:
        model = torch.nn.Sequential(
            torch.nn.Linear(FEATURES, hidden),
            torch.nn.ReLU(),
            *((torch.nn.Linear(hidden, hidden), torch.nn.ReLU()) if on_gpu else ()),
            torch.nn.Linear(hidden, CLASSES),
        )
    descent = torch.optim.SGD(model.parameters(), lr=RATE)
    loss = torch.zeros(())
    # Waiting for an event spins on the core: with blocking events the CPU time varied by 4 to 13 % from second
    # to second, because each wake-up costs another time; spinning, it follows the GPU time (0.4 to 1.7 %).
    begins, ends = (torch.cuda.Event(enable_timing=True) if on_gpu else None for _ in range(2))
    for step in range(steps):
        begin = step * BATCH % ROWS
        if begins is not None:
            begins.record()
        descent.zero_grad()
        scores = model(rows[begin : begin + BATCH])
        loss = torch.nn.functional.cross_entropy(scores, classes[begin : begin + BATCH])
        loss.backward()
        descent.step()
        on_gpu_seconds = 0.0
        if begins is not None and ends is not None:
            # A step is complete when the GPU has finished it, not when it was submitted.
            ends.record()
            ends.synchronize()
            on_gpu_seconds = begins.elapsed_time(ends) / 1000
        after_step(on_gpu_seconds)
    return float(loss.item())
