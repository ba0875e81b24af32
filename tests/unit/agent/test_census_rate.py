"""Removed cgroups raise the rate at which memory cgroups are counted, within its cost."""

from __future__ import annotations

import pytest

from overnight.agent import census_rate, schedule

COUNT, PARENTS = census_rate.COUNTS


def births(*died: int) -> dict[str, tuple[int, ...]]:
    return {f"/{number}": (count, count, count, 0) for number, count in enumerate(died)}


def rate(*readings: dict[str, tuple[int, ...]], cost: float = 0.0) -> census_rate.CensusRate:
    """A count at second 100, then readings of births."""
    made = census_rate.CensusRate()
    made.note(census_rate.BIRTHS, births(500), 99.0, 0.0)
    made.note(COUNT, {"": (1,)}, 100.0, cost)
    made.note(PARENTS, {}, 100.0, cost)
    for number, rows in enumerate(readings):
        made.note(census_rate.BIRTHS, rows, 101.0 + number, 0.0)
    return made


@pytest.mark.parametrize(
    ("readings", "is_due"),
    [
        pytest.param([births(519)], False, id="too few"),
        pytest.param([births(520)], True, id="enough"),
        pytest.param([births(510), births(520)], True, id="enough in two seconds"),
        pytest.param([births(510, 10)], True, id="of two parents"),
        pytest.param([births(), births(20)], True, id="of a parent that was forgotten"),
        pytest.param([births()], False, id="a parent is forgotten"),
    ],
)
def test_removed_cgroups_bring_the_next_count_forward(
    readings: list[dict[str, tuple[int, ...]]], is_due: bool
) -> None:
    assert set(rate(*readings).due()) == ({COUNT, PARENTS} if is_due else set())


@pytest.mark.parametrize(("cost", "at"), [(0.0001, 102.0), (0.004, 102.0), (0.006, 103.0), (0.05, 125.0)])  # fmt: skip
def test_a_count_that_costs_more_comes_later(cost: float, at: float) -> None:
    assert rate(births(600), cost=cost).due()[COUNT] == pytest.approx(at)


def test_a_count_begins_anew() -> None:
    made = rate(births(600))
    made.note(COUNT, {"": (1,)}, 103.0, 0.0)
    assert set(made.due()) == {PARENTS}


def test_a_count_that_failed_is_not_repeated_sooner_than_others() -> None:
    made = rate()
    made.note(COUNT, None, 110.0, 0.0)
    made.note(census_rate.BIRTHS, births(600), 111.0, 0.0)
    assert made.due()[COUNT] == 110.0 + schedule.RETRY_SECONDS
