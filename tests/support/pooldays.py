"""A day of a pool, with a scheduled morning peak and an unexpected burst."""

from __future__ import annotations

import dataclasses

import numpy as np
import poolplay

from overnight.pools import autoscale, policies, schedules, sizing

MONDAY = 1_794_787_200.0  # 2026-11-16T00:00Z
WARM_UP_S = 90.0
PEAK = 12.0
# (from, to, claims a minute); the last is the burst, on top of the baseline
RATES = ((0, 7, 0.02), (7, 9, 1), (9, 10, PEAK), (10, 18, 2), (18, 22, 0.5), (22, 24, 0.02))
BURST = (14.0, 14 + 1 / 12, 12)
DAY_S = 86400.0
MOST = 40
PEAK_SIZE = sizing.recommend(sizing.Demand(PEAK, WARM_UP_S))[1]
SCHEDULE = (schedules.parse(f"mon-fri 09:00-10:00 = {PEAK_SIZE}"),)


def count_claims(
    policy: autoscale.Policy, now_s: float, size: int, claims_s: list[float], since_s: float
) -> autoscale.Seen:
    """Count the claims from their times: at least those of the window, oldest first."""
    window, short = policy.spans(now_s, since_s)
    return autoscale.Seen(
        now_s,
        size,
        since_s,
        sum(1 for when in claims_s if when > now_s - window),
        sum(1 for when in claims_s if when > now_s - short),
        claims_s[-1] if claims_s else None,
    )


@dataclasses.dataclass
class Ruled:
    """A policy as the rule of a simulated pool; records its decisions."""

    policy: autoscale.Policy
    memory: policies.Memory = ()
    decisions: list[tuple[float, policies.Decision]] = dataclasses.field(default_factory=list)

    def __call__(self, now: float, claims: list[float], size: int) -> int:
        since = len(claims) - 500 if len(claims) > 500 else 0
        counts = count_claims(
            self.policy, MONDAY + now, size, [MONDAY + w for w in claims[since:]], MONDAY - DAY_S
        )
        decision = autoscale.decide(self.policy, counts, self.memory)
        self.memory = decision.memory
        self.decisions.append((now, decision))
        return decision.size


def claims(seed: int) -> list[float]:
    random = np.random.default_rng(seed)
    times: list[float] = []
    for begin, end, rate in (*RATES, BURST):
        count = random.poisson((end - begin) * 60 * rate)
        times += (3600 * random.uniform(begin, end, count)).tolist()
    return sorted(times)


def policy(**changes: object) -> autoscale.Policy:
    return autoscale.Policy(**{"max_size": MOST, "warm_up_s": WARM_UP_S, **changes})  # type: ignore[arg-type]


def rules() -> dict[str, int | Ruled]:
    """Return the rules compared in docs/sizing.md, by their names there."""
    mean = sum((end - begin) * rate for begin, end, rate in (*RATES, BURST)) / 24
    return {
        "fixed, the runbook's for the mean of the day": sizing.Demand(mean, WARM_UP_S).runbook,
        "fixed, the runbook's for the peak": sizing.Demand(PEAK, WARM_UP_S).runbook,
        "fixed, 1 % at the peak": PEAK_SIZE,
        "by demand": Ruled(policy()),
        "by demand and schedule": Ruled(policy(openings=SCHEDULE)),
        "the same, to zero after 30 min": Ruled(policy(openings=SCHEDULE, zero_after_s=1800)),
    }


def play(rule: int | Ruled, seed: int) -> poolplay.Played:
    return poolplay.play(
        claims(seed), rule, warm_up_s=WARM_UP_S, interval_s=60, woken=True, until_s=DAY_S
    )
