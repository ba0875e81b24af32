"""The baseline of an event when other events of its kind are near."""

from __future__ import annotations

import pathlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from overnight.model.event import Event
from overnight.model.selection import Window
from overnight.queries import baselines, case

SECOND = 1_000_000
T = 1_700_000_000 * SECOND


def seconds(begin: float, end: float) -> Window:
    return Window(round(begin * SECOND), round(end * SECOND))


spans = st.lists(
    st.tuples(st.integers(0, 1000), st.integers(1, 300)).map(lambda s: (s[0], s[0] + s[1])),
    max_size=6,
)


@given(spans, st.integers(0, 400), st.integers(1, 400), st.integers(0, 300))
def test_a_chosen_baseline_overlaps_no_other_event(
    excluded: list[tuple[int, int]], begin: int, length: int, distance: int
) -> None:
    first, wanted = begin, seconds(begin + distance, begin + distance + length)
    excluded_us = [(b * SECOND, e * SECOND) for b, e in excluded]
    baseline = baselines.choose(wanted, first * SECOND, [excluded_us])
    chosen = baseline.window
    touched = [s for s in excluded_us if s[0] < chosen.end_us and chosen.begin_us < s[1]]
    if baseline.disturbed:
        assert chosen == wanted
        open_seconds = [
            all(not b <= s < e for b, e in excluded)
            for s in range(first, begin + distance + length)
        ]
        longest = max(map(len, "".join("01"[free] for free in open_seconds).split("0")))
        assert longest < 5
    else:
        assert touched == []
        assert chosen.end_us <= wanted.end_us
        assert chosen.seconds <= wanted.seconds
        assert baseline.moved == (chosen.end_us < wanted.end_us)
        assert chosen.begin_us >= first * SECOND


def test_the_latest_long_enough_gap_is_chosen_or_else_the_longest() -> None:
    wanted = seconds(1000, 1600)
    latest = baselines.choose(wanted, 0, [[(s * SECOND, (s + 40) * SECOND) for s in (700, 1500)]])
    assert latest.window == seconds(1540, 1600)
    assert latest.cut
    assert not latest.moved
    often = [(s * SECOND, (s + 90) * SECOND) for s in range(130, 1600, 100)]
    assert baselines.choose(wanted, 0, [often]).window == seconds(0, 130)
    assert baselines.choose(wanted, 100 * SECOND, [often]).window == seconds(100, 130)


def test_time_without_samples_is_chosen_last() -> None:
    wanted, excluded = seconds(1000, 1600), [(1200 * SECOND, 1600 * SECOND)]

    def chosen() -> Window:
        sampled = 500 * SECOND
        return baselines.choose(
            wanted, 0, [excluded], lambda window: window.begin_us < sampled
        ).window

    assert chosen() == seconds(600, 1200)
    excluded.append((700 * SECOND, 900 * SECOND))
    assert chosen() == seconds(100, 700)


def test_the_smaller_margin_is_used_when_the_larger_leaves_nothing() -> None:
    wanted = seconds(0, 100)
    wide, narrow = [(0, 100 * SECOND)], [(30 * SECOND, 60 * SECOND)]
    assert baselines.choose(wanted, 0, [wide, narrow]).window == seconds(60, 100)


def make_event(at_s: float, kind: str = "net.driver_reset", lasts_s: float = 0.0) -> Event:
    at = T + round(at_s * SECOND)
    until = at + round(lasts_s * SECOND)
    return Event(at, kind, host="h", id=f"{kind} {at_s}", until_us=until)


def make_case(
    monkeypatch: pytest.MonkeyPatch, known_s: float, *others: Event
) -> tuple[float, float, case.Case]:
    own_event = make_event(0.0)
    compared_case = case.Case(pathlib.Path("/nowhere"), own_event)
    monkeypatch.setattr(compared_case.ring, "extent", lambda _: (T - round(known_s * SECOND), T))

    def events(
        begin: int, end: int, hosts: tuple[str, ...] = (), kinds: list[str] | None = None
    ) -> tuple[Event, ...]:
        nearby = [event for event in (*others, own_event) if begin <= event.time_us <= end]
        return tuple(event for event in nearby if not kinds or event.kind in kinds)

    monkeypatch.setattr(compared_case.ring, "events", events)
    begin, end = (
        (us - T) / SECOND for us in (compared_case.baseline.begin_us, compared_case.baseline.end_us)
    )
    return begin, end, compared_case


def test_an_earlier_event_of_the_kind_is_excluded(monkeypatch: pytest.MonkeyPatch) -> None:
    begin, end, compared_case = make_case(monkeypatch, 3600, make_event(-120.0, lasts_s=4.0))
    assert (begin, end) == (-810.0, -210.0)  # half a minute and a minute before it
    assert compared_case.baseline_text == "the 10 min before an earlier event"


def test_an_event_of_another_kind_is_not_excluded(monkeypatch: pytest.MonkeyPatch) -> None:
    begin, end, compared_case = make_case(monkeypatch, 3600, make_event(-120.0, "cpu.core_pinned"))
    assert (begin, end, compared_case.baseline_text) == (-690.0, -90.0, "the 10 min before")


def test_an_event_that_lasts_all_night_is_part_of_the_baseline(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A core that a process polls on is such an event, and it never ends."""
    begin, end, compared_case = make_case(monkeypatch, 3600, make_event(-3500.0, lasts_s=3600.0))
    assert (begin, end, compared_case.baseline_text) == (-690.0, -90.0, "the 10 min before")
    assert not compared_case.compared.disturbed
    _, _, compared_case = make_case(
        monkeypatch, 140, make_event(-110.0, lasts_s=60.0)
    )  # a short recording has no such event
    assert compared_case.compared.moved


def test_a_short_recording_with_two_events(monkeypatch: pytest.MonkeyPatch) -> None:
    begin, end, compared_case = make_case(monkeypatch, 80, make_event(-30.0))
    assert begin == -80.0
    assert end == pytest.approx(
        -55.0
    )  # the first event is 50 s into it: 20 s incident window, 5 s between
    assert compared_case.compared.moved


def test_continuous_events_leave_only_a_disturbed_baseline(monkeypatch: pytest.MonkeyPatch) -> None:
    often = [make_event(-n * 20.0) for n in range(1, 200)]
    _, _, compared_case = make_case(monkeypatch, 3600, *often)
    assert compared_case.compared.disturbed
