"""How what is hot and what is usual are cut, in long recordings and in short ones."""

from __future__ import annotations

import pathlib

import pytest

from overnight.model.event import Event
from overnight.queries import case

SECOND = 1_000_000
T = 1_700_000_000 * SECOND


def cut(known_s: float | None, monkeypatch: pytest.MonkeyPatch) -> case.Case:
    told = Event(
        id="e", kind="net.driver_reset", severity="critical", host="h", time_us=T, until_us=T
    )
    made = case.Case(pathlib.Path("/nowhere"), told)
    extent = None if known_s is None else (T - int(known_s * SECOND), T)
    monkeypatch.setattr(made.ring, "extent", lambda _: extent)
    return made


@pytest.mark.parametrize(
    ("known", "usual"), [(None, "10m"), (150, "1m"), (330, "4m"), (690, "10m"), (3600, "10m")]
)
def test_a_long_recording_has_a_guard_of_a_minute(
    known: float | None, usual: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And is compared with what there is: nobody misses what was before the recording began."""
    made = cut(known, monkeypatch)
    assert (T - made.window.begin_us, made.window.begin_us - made.baseline.end_us) == (
        30 * SECOND,
        60 * SECOND,
    )
    assert made.baseline_text == f"{usual} before"


@pytest.mark.parametrize("known", [20, 40, 100, 149])
def test_a_short_recording_is_divided_whole(known: float, monkeypatch: pytest.MonkeyPatch) -> None:
    made = cut(known, monkeypatch)
    assert made.baseline.begin_us == T - known * SECOND
    assert made.baseline.end_us < made.window.begin_us < T
    assert made.baseline.seconds >= 0.49 * known
