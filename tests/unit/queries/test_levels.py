"""A number of the incident window against the baseline and its noise."""

from __future__ import annotations

import pathlib

import evidence
import numpy as np
import pytest
import rings

from overnight.queries import levels


@pytest.mark.parametrize(
    ("level", "rose"),
    [
        (levels.Level(5.0, 1.0, 2.0), False),  # not above the floor
        (levels.Level(5.1, 1.0, 3.4), False),  # not above the highest stretch of the baseline
        (levels.Level(5.1, 1.0, 3.3), True),
        (levels.Level(5.1), None),
        (levels.Level(5.0), False),
    ],
)
def test_a_rise_needs_floor_and_baseline(level: levels.Level, rose: bool | None) -> None:
    assert level.rose(5.0) is rose


def test_the_highest_stretch_is_as_long_as_the_incident_window() -> None:
    now = levels.Series(np.array([4.0, 4.0]), np.ones(2))
    before = levels.Series(np.array([0.0, 9.0, 1.0, 4.0, 0.0]), np.ones(5))
    assert levels.compare(now, before) == levels.Level(4.0, 2.8, 5.0)
    assert before.highest(1) == 9.0
    assert before.highest(99) == before.mean()
    nothing = levels.Series(np.array([3.0]), np.zeros(1))  # no requests: no latency
    assert (nothing.mean(), nothing.highest(1)) == (0.0, 0.0)


def test_rises_are_counted_until_the_last_reading_before_the_event(tmp_path: pathlib.Path) -> None:
    home = evidence.Home(tmp_path, 300)
    home.signal("load", 10, lambda s: {"a": (0 if s <= 260 else 7 if s <= 280 else 100,)})
    case = home.case(home.add_event(284, "net.driver_reset"))
    end_us = rings.us(283)
    level = levels.read_level(case, "load", ("load1",), end_us=end_us, total=True)
    assert level == levels.Level(7.0, 0.0, 0.0)
    whole = levels.read_level(case, "load", ("load1",), total=True)
    assert whole is not None
    assert whole.now == 100.0
    # A key that has no readings did nothing; a signal without readings is not known.
    absent = levels.read_level(case, "load", ("load1",), keys=("b",), total=True)
    assert absent == levels.Level(0.0, 0.0, 0.0)
    assert levels.read_level(case, "pressure", ("some",)) is None
    assert levels.read_level(case, "load", ("other",)) is None


def test_less_than_half_of_the_incident_window_is_not_enough(tmp_path: pathlib.Path) -> None:
    home = evidence.Home(tmp_path, 300, begin=0)
    home.signal("load", 1, lambda s: {"a": (s,)})
    case = home.case(home.add_event(284, "net.driver_reset"))
    early = case.window
    assert levels.read_series(case, early, "load", ("load1",), end_us=rings.us(255)) is not None
    later = type(early)(rings.us(281), rings.us(321))  # 18 of 40 s were recorded
    assert levels.read_series(case, later, "load", ("load1",)) is None
    assert levels.read_series(case, type(early)(rings.us(278), rings.us(318)), "load", ("load1",))
