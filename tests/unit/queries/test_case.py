"""Incident window and baseline of a case, in long recordings and in short ones."""

from __future__ import annotations

import pathlib

import pytest

from overnight.model.event import Event
from overnight.queries import case

SECOND = 1_000_000
T = 1_700_000_000 * SECOND


def make_case(known_s: float | None, monkeypatch: pytest.MonkeyPatch) -> case.Case:
    event = Event(
        id="e", kind="net.driver_reset", severity="critical", host="h", time_us=T, until_us=T
    )
    made_case = case.Case(pathlib.Path("/nowhere"), event)
    extent = None if known_s is None else (T - int(known_s * SECOND), T)
    monkeypatch.setattr(made_case.ring, "extent", lambda _: extent)
    return made_case


@pytest.mark.parametrize(
    ("known", "baseline"),
    [(None, "10 min"), (150, "1 min"), (330, "4 min"), (690, "10 min"), (3600, "10 min")],
)
def test_a_long_recording_has_a_guard_of_a_minute(
    known: float | None, baseline: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The baseline is shorter when the recording began late; nothing is missing."""
    long_case = make_case(known, monkeypatch)
    assert (
        T - long_case.window.begin_us,
        long_case.window.begin_us - long_case.baseline.end_us,
    ) == (
        30 * SECOND,
        60 * SECOND,
    )
    assert long_case.baseline_text == f"the {baseline} before"


@pytest.mark.parametrize("known", [20, 40, 100, 149])
def test_a_short_recording_is_divided_completely(
    known: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    short_case = make_case(known, monkeypatch)
    assert short_case.baseline.begin_us == T - known * SECOND
    assert short_case.baseline.end_us < short_case.window.begin_us < T
    assert short_case.baseline.seconds >= 0.49 * known
