from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from overnight import errors
from overnight.model import times


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("12h", 43200), ("10m20s", 620), ("1d 2h", 93600), ("250ms", 0.25), ("1.5h", 5400), ("7", 7)],
)
def test_what_operators_write(text: str, seconds: float) -> None:
    assert times.parse_duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "3x", "h", "-5s", "5s!", "1e9", "10:20", "٣s"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(errors.UsageError, match="is not a duration"):
        times.parse_duration(text)


@given(st.text(max_size=20))
def test_any_text_is_a_duration_or_a_usage_error(text: str) -> None:
    with contextlib.suppress(errors.UsageError):
        assert times.parse_duration(text) >= 0


@given(st.integers(min_value=1, max_value=86400 * 30))
def test_a_written_duration_is_read_back_to_its_two_largest_units(seconds: int) -> None:
    back = times.parse_duration(times.format_duration(seconds))
    assert back <= seconds
    assert seconds - back < max(60, seconds * 0.05)
