"""Which time an event is compared with, where others of its kind are near."""

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
def test_a_chosen_baseline_has_no_trouble_in_it(
    shut: list[tuple[int, int]], begin: int, length: int, room: int
) -> None:
    first, wanted = begin, seconds(begin + room, begin + room + length)
    trouble = [(b * SECOND, e * SECOND) for b, e in shut]
    found = baselines.choose(wanted, first * SECOND, [trouble])
    chosen = found.window
    touched = [s for s in trouble if s[0] < chosen.end_us and chosen.begin_us < s[1]]
    if found.disturbed:
        assert chosen == wanted
        open_seconds = [
            all(not b <= s < e for b, e in shut) for s in range(first, begin + room + length)
        ]
        longest = max(map(len, "".join("01"[free] for free in open_seconds).split("0")))
        assert longest < 5
    else:
        assert touched == []
        assert chosen.end_us <= wanted.end_us
        assert chosen.seconds <= wanted.seconds
        assert found.moved == (chosen.end_us < wanted.end_us)
        assert chosen.begin_us >= first * SECOND


def test_the_latest_that_is_long_enough_is_taken_and_the_longest_where_none_is() -> None:
    wanted = seconds(1000, 1600)
    latest = baselines.choose(wanted, 0, [[(s * SECOND, (s + 40) * SECOND) for s in (700, 1500)]])
    assert latest.window == seconds(1540, 1600)
    assert latest.cut
    assert not latest.moved
    often = [(s * SECOND, (s + 90) * SECOND) for s in range(130, 1600, 100)]
    assert baselines.choose(wanted, 0, [often]).window == seconds(0, 130)
    assert baselines.choose(wanted, 100 * SECOND, [often]).window == seconds(100, 130)


def test_what_was_not_sampled_is_taken_last() -> None:
    wanted, shut = seconds(1000, 1600), [(1200 * SECOND, 1600 * SECOND)]

    def chosen() -> Window:
        sampled = 500 * SECOND
        return baselines.choose(wanted, 0, [shut], lambda one: one.begin_us < sampled).window

    assert chosen() == seconds(600, 1200)
    shut.append((700 * SECOND, 900 * SECOND))
    assert chosen() == seconds(100, 700)


def test_less_careful_where_being_careful_leaves_nothing() -> None:
    wanted = seconds(0, 100)
    careful, plain = [(0, 100 * SECOND)], [(30 * SECOND, 60 * SECOND)]
    assert baselines.choose(wanted, 0, [careful, plain]).window == seconds(60, 100)


def told(at_s: float, kind: str = "net.driver_reset", lasts_s: float = 0.0) -> Event:
    at = T + round(at_s * SECOND)
    until = at + round(lasts_s * SECOND)
    return Event(at, kind, host="h", id=f"{kind} {at_s}", until_us=until)


def cut(
    monkeypatch: pytest.MonkeyPatch, known_s: float, *others: Event
) -> tuple[float, float, case.Case]:
    mine = told(0.0)
    made = case.Case(pathlib.Path("/nowhere"), mine)
    monkeypatch.setattr(made.ring, "extent", lambda _: (T - round(known_s * SECOND), T))

    def events(
        begin: int, end: int, hosts: tuple[str, ...] = (), kinds: list[str] | None = None
    ) -> tuple[Event, ...]:
        those = [one for one in (*others, mine) if begin <= one.time_us <= end]
        return tuple(one for one in those if not kinds or one.kind in kinds)

    monkeypatch.setattr(made.ring, "events", events)
    begin, end = ((us - T) / SECOND for us in (made.baseline.begin_us, made.baseline.end_us))
    return begin, end, made


def test_the_trouble_of_an_earlier_event_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    begin, end, made = cut(monkeypatch, 3600, told(-120.0, lasts_s=4.0))
    assert (begin, end) == (-810.0, -210.0)  # half a minute and a minute before it
    assert made.baseline_text == "10m before an earlier event"


def test_what_another_kind_of_event_had_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    begin, end, made = cut(monkeypatch, 3600, told(-120.0, "cpu.core_pinned"))
    assert (begin, end, made.baseline_text) == (-690.0, -90.0, "10m before")


def test_what_lasts_all_night_is_usual(monkeypatch: pytest.MonkeyPatch) -> None:
    """A core that somebody polls on is an event of the kind, too, and is never over."""
    begin, end, made = cut(monkeypatch, 3600, told(-3500.0, lasts_s=3600.0))
    assert (begin, end, made.baseline_text) == (-690.0, -90.0, "10m before")
    assert not made.compared.disturbed
    _, _, made = cut(monkeypatch, 140, told(-110.0, lasts_s=60.0))  # a short one has none
    assert made.compared.moved


def test_a_short_recording_with_two_events(monkeypatch: pytest.MonkeyPatch) -> None:
    begin, end, made = cut(monkeypatch, 80, told(-30.0))
    assert begin == -80.0
    assert end == pytest.approx(-55.0)  # the first is 50 s into it: 20 s are hot, 5 s between
    assert made.compared.moved


def test_one_event_after_the_other_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    often = [told(-n * 20.0) for n in range(1, 200)]
    _, _, made = cut(monkeypatch, 3600, *often)
    assert made.compared.disturbed
