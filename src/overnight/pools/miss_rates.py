"""How often a claim finds no ready host, for a pool of a given size.

Three models, each at most the next: `woken` (a claim wakes the replenishment, callers give up), `give_up`
(a tick replenishes, callers give up), `wait` (a tick, callers queue and count in the deficit). The order is
used: the model without a formula lies between two that have one. It holds for every sequence of claims, and
more hosts never miss more:

Let A(t) be the claims served up to t, and r(t) the time at which the host of a claim served at t is replaced,
later for later t. The next claim is served when A < S + (those served whose r is past). Of two pools let the
first have more hosts or an earlier r. While A1 >= A2, at least as many of its hosts are back. When A1 = A2 and
the second serves, so does the first; when A1 > A2, one claim cannot reverse it. So A1 >= A2 always. A caller
that waits needs the replacement of the S-th claim before its own; one that gives up needs that of the S-th
served one before, which came no later.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from overnight.pools import bursts, simulation

Numbers = npt.NDArray[np.float64]
Traffic = bursts.Traffic
Rate = simulation.Rate
# With more multiplications a round the exact chain is slower than simulating a million claims.
LARGEST_ROUND = 400_000
MAX_CYCLES = 6
MAX_ROUNDS = 4_000
SETTLED = 1e-13
# With more claims in a refill time the simulation takes too long; the bound is close then.
LARGEST_PLAYED = 2_000


def erlang_b(largest: int, traffic: Traffic) -> Numbers:
    """Return the loss of 0, 1, …, `largest` servers at this load."""
    load = traffic.claims_per_s * traffic.warm_up_s
    loss = np.ones(largest + 1)
    for servers in range(1, largest + 1):
        loss[servers] = load * loss[servers - 1] / (servers + load * loss[servers - 1])
    return loss


def wait(largest: int, traffic: Traffic) -> Numbers:
    """Return the exact rates for sizes 0 to `largest` if callers wait.

    Just after a tick ready + warming - owed = S. So at a time x after the last tick whose hosts have
    arrived, W <= x <= W + R, ready is S minus the claims of those x seconds; x is uniform over the claims.
    In a burst the claims ahead of one's own count too.
    """
    return _tail(bursts.arrivals(traffic, before_a_claim=True), largest)


def idle(largest: int, traffic: Traffic) -> Numbers:
    """Return the mean number of ready hosts for sizes 0 to `largest`; exact if callers wait."""
    counts = bursts.arrivals(traffic)
    return np.concatenate([[0.0], np.cumsum(1 - _tail(counts, largest)[1:])])


def _tail(counts: Numbers, largest: int) -> Numbers:
    """Return P(N >= S) for S from 0 to `largest`; summed from the far end, which keeps small ones exact."""
    counts = np.pad(counts, (0, max(0, largest + 1 - len(counts))))
    above = np.cumsum(counts[::-1])[::-1][: largest + 1]
    above[0] = 1.0
    return np.where(above < 1e-12, 0.0, np.minimum(above, 1.0))


def woken(sizes: Sequence[int], traffic: Traffic) -> list[Rate]:
    """Return the rates if a claim wakes the replenishment; Erlang's formula for single claims."""
    if traffic.burst.mean == 1:
        loss = erlang_b(max(sizes), traffic)
        return [Rate(float(loss[size]), 0.0, "formula") for size in sizes]
    return _simulate(sizes, dataclasses.replace(traffic, interval_s=0))


def give_up(sizes: Sequence[int], traffic: Traffic) -> list[Rate]:
    """Return the rates if a tick replenishes and callers give up: an exact chain, or simulation."""
    cycles = math.floor(traffic.warm_up_s / traffic.interval_s)
    done: dict[int, Rate] = {}
    for size in sizes:
        if cycles <= MAX_CYCLES and (size + 1) ** (cycles + 2) <= LARGEST_ROUND:
            miss = _chain(size, traffic)
            if miss is not None:
                done[size] = Rate(miss, 0.0, "chain")
    left = [size for size in sizes if size not in done]
    if left:
        done |= zip(left, _simulate(left, traffic), strict=True)
    return [done[size] for size in sizes]


def _simulate(sizes: Sequence[int], traffic: Traffic) -> list[Rate]:
    most = wait(max(sizes), traffic)
    if traffic.claims_per_s * traffic.refill_s > LARGEST_PLAYED:
        return [Rate(float(most[size]), 0.0, "bound") for size in sizes]
    least = erlang_b(max(sizes), traffic) if traffic.burst.mean == 1 else 0 * most
    estimates = simulation.give_up(sizes, traffic)
    return [
        _bounded(estimate, float(least[size]), float(most[size]))
        for estimate, size in zip(estimates, sizes, strict=True)
    ]


def _bounded(estimate: Rate, least: float, most: float) -> Rate:
    """Clip a simulated rate to its proved bounds; without a miss the upper bound is the error."""
    miss = min(max(estimate.miss, least), most)
    error = max(estimate.error, 0.0 if estimate.miss else most)
    return Rate(miss, min(error, (most - miss) / simulation.SURE), "simulation")


def _chain(size: int, traffic: Traffic) -> float | None:
    """Return the exact rate from the Markov chain of orders in transit; None if it does not converge.

    A warm-up is k intervals and a remainder. Just before hosts arrive the state is the orders in transit
    and what was sold since the tick; ready is S minus all of them. Until the next tick `sold` grows by the
    claims served, becomes an order, and in the remainder after the tick selling starts again. Only counts
    matter, because while no host arrives served = min(ready, claims).
    """
    cycles = math.floor(traffic.warm_up_s / traffic.interval_s)
    rest = traffic.warm_up_s - cycles * traffic.interval_s
    first = _counts(size, traffic, traffic.interval_s - rest)
    second = _counts(size, traffic, rest)
    # Rows: sold so far. Columns: sold at the tick, before the limit of what is ready.
    growth = np.zeros((size + 1, size + 1))
    for sold in range(size + 1):
        growth[sold, sold:] = first[: size + 1 - sold]
    # Rows: ready. Columns: sold in the remainder, the last one for all larger demand.
    served = np.zeros((size + 1, size + 1))
    for ready in range(size + 1):
        served[ready, :ready] = second[:ready]
        served[ready, ready] = 1 - second[:ready].sum()
    shape = (size + 1,) * (cycles + 1)
    others = np.indices(shape[:-1]).sum(axis=0) if cycles else np.zeros((), dtype=int)
    room = np.maximum(size - others, 0)[..., None]
    column = np.arange(size + 1)
    # After the oldest order arrived: the size that the oldest must have had for j to be ready.
    oldest = room - column
    state = np.zeros(shape)
    state[(0,) * (cycles + 1)] = 1.0
    demand = traffic.claims_per_s * traffic.interval_s
    for _ in range(MAX_ROUNDS):
        total = state.sum(axis=-1, keepdims=True)
        grown = np.where(column < room, state @ growth, 0.0)
        np.put_along_axis(grown, room, total - grown.sum(axis=-1, keepdims=True), axis=-1)
        sales = float((grown.reshape(-1, size + 1) @ column).sum())
        moved = np.moveaxis(grown, 0, -1)
        by_ready = np.where(oldest >= 0, np.take_along_axis(moved, np.maximum(oldest, 0), -1), 0.0)
        after = by_ready @ served
        change = float(np.abs(after - state).sum())
        # Half a step, so that an oscillation between two states converges.
        state = (state + after) / 2
        if change < SETTLED:
            return max(0.0, 1 - sales / demand)
    return None


def _counts(size: int, traffic: Traffic, seconds: float) -> Numbers:
    counts = bursts.arrivals(dataclasses.replace(traffic, warm_up_s=seconds, interval_s=0))
    return np.pad(counts, (0, max(0, size + 1 - len(counts))))[: size + 1]
