"""Minimum, maximum, the wrong tool, and what a pre-baked image saves."""

from __future__ import annotations

import pytest
from scipy import stats

from overnight import errors
from overnight.pools import bursts, size_advice, sizing
from overnight.pools.size_advice import Usage, WrongTool


def advise(rate: float = 4.0, warm_up_s: float = 90.0, usage: Usage = Usage(), **more: object) -> size_advice.Advice:  # fmt: skip # noqa: B008
    return size_advice.advise(sizing.size(sizing.Demand(rate, warm_up_s, **more)), usage)  # type: ignore[arg-type]


def kinds(advice: size_advice.Advice) -> list[WrongTool]:
    return [misfit.kind for misfit in advice.misfits]


def test_the_example_of_the_runbook() -> None:
    advice = advise(cost_per_host_hour=0.4)
    assert (advice.min_size, advice.target_size) == (1, 13)
    assert advice.max_size == 13 + advice.claimed_at_once
    assert advice.max_cost_per_hour == pytest.approx(0.4 * advice.max_size)
    assert advice.prebaked is not None
    assert (advice.prebaked.warm_up_s, advice.prebaked.recommended_event_driven) == (45.0, 8)
    assert (advice.prebaked.hosts_saved, advice.prebaked.host_hours_per_month) == (5, 5 * 730)
    assert advice.prebaked.cost_per_month == pytest.approx(0.4 * 5 * 730)
    assert kinds(advice) == []


@pytest.mark.parametrize("hold_s", [15, 60, 600, 3600, 36000])
def test_the_maximum_covers_what_is_claimed_at_once(hold_s: float) -> None:
    """The number of open claims is Poisson distributed: 999 of 1,000 moments have fewer."""
    claimed = advise(usage=Usage(hold_s=hold_s)).claimed_at_once
    exact = stats.poisson.ppf(0.999, 4 / 60 * hold_s)
    assert exact <= claimed <= exact + 2


def test_bursts_raise_the_maximum() -> None:
    usage = Usage(hold_s=600)
    single, bursty = advise(usage=usage), advise(usage=usage, burst=bursts.Burst(5))
    assert bursty.claimed_at_once > single.claimed_at_once + 10
    assert advise(usage=Usage(hold_s=1, together=40)).claimed_at_once == 40


def test_the_minimum_is_the_size_for_quiet_hours() -> None:
    assert advise(usage=Usage(baseline_per_minute=0.1)).min_size == 2
    assert advise(usage=Usage(baseline_per_minute=0.0)).min_size == 1
    assert advise(usage=Usage(baseline_per_minute=99)).min_size == advise().target_size


@pytest.mark.parametrize(("hold_s", "wrong"), [(86399, False), (86400, True)])
def test_persistent_work_is_not_for_a_pool(hold_s: float, wrong: bool) -> None:
    advice = advise(usage=Usage(hold_s=hold_s))
    assert (kinds(advice) == [WrongTool.PERSISTENT]) is wrong
    assert "--cold" in advice.misfits[0].instead if wrong else not advice.misfits


@pytest.mark.parametrize(
    ("rate", "price", "worth", "wrong"),
    [(4, None, None, False), (0.001, None, None, True), (0.001, 0.4, 265, True), (0.001, 0.4, 268, False), (4, 0.4, 0.1, True)],
)  # fmt: skip
def test_claims_that_are_too_rare(
    rate: float, price: float | None, worth: float | None, wrong: bool
) -> None:
    """One host idles 666 h for an hour of waiting saved at 0.001 claims a minute: 266.4 at 0.40."""
    advice = advise(rate, usage=Usage(wait_cost_per_hour=worth), cost_per_host_hour=price)
    assert (kinds(advice) == [WrongTool.TOO_RARE]) is wrong
    if wrong and rate < 1:
        assert advice.idle_per_saved_hour == pytest.approx(666, rel=0.01)
        assert (
            "save callers 1.1 h of waiting: 666 host-hours for each hour" in advice.misfits[0].what
        )
        assert ("(291.56) a month" in advice.misfits[0].what) is (price is not None)


@pytest.mark.parametrize(("together", "wrong"), [(50, False), (51, True)])
def test_more_than_fifty_at_once_are_a_cluster(together: int, wrong: bool) -> None:
    measured = advise(usage=Usage(together=together))
    given = advise(burst=bursts.Burst(together))
    for advice in (measured, given):
        assert (WrongTool.TOO_MANY in kinds(advice)) is wrong
        if wrong:
            assert f"overnight cluster create --count {together} " in advice.misfits[-1].instead


def test_a_given_warm_up_and_one_that_is_longer() -> None:
    faster, slower = (advise(usage=Usage(prebaked_s=s)).prebaked for s in (20, 300))
    assert faster is not None
    assert slower is not None
    assert faster.recommended_event_driven == 5
    assert slower.hosts_saved < 0


def test_without_claims_nothing_is_proposed() -> None:
    advice = advise(0.0, cost_per_host_hour=1.0)
    assert (advice.target_size, advice.min_size, advice.max_size) == (0, 0, 0)
    assert (advice.prebaked, advice.idle_per_saved_hour, advice.misfits) == (None, None, ())


@pytest.mark.parametrize(
    "wrong",
    [{"hold_s": -1.0}, {"prebaked_s": float("nan")}, {"baseline_per_minute": -2.0}, {"wait_cost_per_hour": 1e10}],
    ids=str,
)  # fmt: skip
def test_bad_values_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(errors.UsageError, match="must be from 0 to"):
        Usage(**wrong)
