from __future__ import annotations

import contextlib
import datetime
import time
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from overnight import errors
from overnight.model import times

NOW, ORIGIN = 1_794_711_247_000_000, 1_794_700_000_000_000


@pytest.fixture
def berlin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A local time of UTC+1, in summer UTC+2."""
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "CET-1CEST,M3.5.0,M10.5.0/3")
        time.tzset()
        yield
    time.tzset()


def instant(text: str) -> int:
    return times.parse_instant(text, now_us=NOW, origin_us=ORIGIN)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("30s", 30), ("10m20s", 620), ("1.5h", 5400), ("2d 3h", 183_600), ("1 h 5 min", 3900), ("250ms", 0.25), ("90", 90), ("0", 0),
     ("1H", 3600), (" 5 m ", 300), ("1m500ms", 60.5), ("0.5", 0.5)],
)  # fmt: skip
def test_durations_are_parsed(text: str, seconds: float) -> None:
    assert times.parse_duration(text) == seconds


@pytest.mark.parametrize(
    "text", ["", " ", "s", "5s!", "10:20", "5x", "-5s", "1..5s", "5s6", "1e5", "٣s", "inf", "nan", "9" * 400, "9" * 400 + "d", "5 y"]
)  # fmt: skip
def test_other_texts_are_not_durations(text: str) -> None:
    with pytest.raises(errors.UsageError, match="is not a duration"):
        times.parse_duration(text)


@given(st.text(max_size=20))
def test_any_text_is_a_duration_or_a_usage_error(text: str) -> None:
    with contextlib.suppress(errors.UsageError):
        assert times.parse_duration(text) >= 0


@given(st.integers(1, 10**9))
def test_a_duration_written_and_read_is_the_same_to_its_second_unit(seconds: int) -> None:
    read = times.parse_duration(times.format_duration(seconds))
    assert 0 <= seconds - read < 3600 * (1 if seconds >= 86400 else 1 / 60)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 s"), (0.25, "250 ms"), (0.9994, "999 ms"), (0.9996, "1 s"), (59.7, "1 min"), (3605, "1 h 5 s"), (90_061, "1 d 1 h")],
)  # fmt: skip
def test_durations_are_formatted(seconds: float, text: str) -> None:
    assert times.format_duration(seconds) == text


@pytest.mark.parametrize(
    ("text", "us"),
    [
        ("now", NOW),
        ("3m ago", NOW - 180_000_000),
        ("1h 30m  ago", NOW - 5_400_000_000),
        ("10m20s", ORIGIN + 620_000_000),
        ("5 m", ORIGIN + 300_000_000),
        ("+5s", ORIGIN + 5_000_000),
        ("5", ORIGIN + 5_000_000),
        ("2026-11-15T03:14:07", 1_794_712_447_000_000),
        ("2026-11-15 03:14:07.123456", 1_794_712_447_123_456),
        ("2026-11-15T03:14:07Z", 1_794_712_447_000_000),
        ("2026-11-15T04:14:07+01:00", 1_794_712_447_000_000),
        ("2026-11-15", 1_794_700_800_000_000),
        ("22:41", 1_794_696_060_000_000),  # of the day before: it is 02:54
        ("02:54:07", NOW),
        ("2:54:07", NOW),
        ("02:54:07.000001", NOW + 1 - 86_400_000_000),
        ("today 22:41", 1_794_696_060_000_000 + 86_400_000_000),
        ("yesterday 03:00", 1_794_625_200_000_000),
        ("yesterday", 1_794_614_400_000_000),
        ("yesterday 03:00 UTC", 1_794_625_200_000_000),
        ("yesterday 03:00+01:00", 1_794_621_600_000_000),
        ("00:30 Europe/Berlin", 1_794_699_000_000_000),
        ("2026-11-15 04:14:07 Europe/Berlin", 1_794_712_447_000_000),
        ("2026-11-15T03:14:07Z Europe/Berlin", 1_794_712_447_000_000),
        ("2026-07-01 04:00 local", 1_782_871_200_000_000),
        ("2026-11-15 04:14:07 local", 1_794_712_447_000_000),
        ("yesterday 03:00 local", 1_794_621_600_000_000),
        ("3m ago local", NOW - 180_000_000),
        ("1794712447", 1_794_712_447_000_000),
        ("1794712447.000001", 1_794_712_447_000_001),
    ],
)
@pytest.mark.usefixtures("berlin")
def test_instants_are_parsed(text: str, us: int) -> None:
    assert instant(text) == us


@pytest.mark.parametrize(
    "text", ["", "tomorrow", "last night", "22:41 Europe/Nowhere", "22:41 +1", "22:4", "ago", "-3m ago", "2026-13-01", "1e9", "9" * 400, "9" * 400 + " ago", "25:00", "\0"]
)  # fmt: skip
def test_other_texts_are_not_instants(text: str) -> None:
    with pytest.raises(errors.UsageError):
        instant(text)


@given(st.text(max_size=30))
def test_any_text_is_an_instant_or_a_usage_error(text: str) -> None:
    with contextlib.suppress(errors.UsageError):
        assert isinstance(instant(text), int)


@given(st.datetimes(timezones=st.just(datetime.UTC)).filter(lambda when: when.year > 1970))
def test_an_instant_reads_back_to_the_microsecond(when: datetime.datetime) -> None:
    us = instant(when.isoformat())
    assert (
        datetime.datetime.fromtimestamp(0, datetime.UTC) + datetime.timedelta(microseconds=us)
        == when
    )
    assert instant(times.format_instant(us)) == us - us % 1000


def test_instants_out_of_range_are_still_formatted() -> None:
    assert times.format_instant(-1_000_000) == "1969-12-31T23:59:59.000Z"
    assert times.format_instant(10**18).endswith("after 1970")


@pytest.mark.parametrize(
    ("begin", "end", "minutes"),
    [
        ("2026-11-15T03:14", "03:20", 6),
        ("2026-11-15T03:14", "03:10", -4),  # a mistake, not the next day
        ("2026-11-15T00:00", "20:00", 1200),
        ("2026-11-15T23:50", "00:05", 15),  # across midnight
        ("2026-11-15T20:00", "07:59", 719),
        ("2026-11-15T20:00", "08:00", 720),
        ("2026-11-15T20:00", "08:01", -719),
        ("2026-11-15T23:50", "23:50", 0),
        ("2026-11-15T23:50", "01:05+01:00", 15),
        ("2026-11-15T23:50", "yesterday 23:55", 5),
    ],
)
def test_an_end_is_on_the_day_of_the_begin_or_in_the_morning_after(
    begin: str, end: str, minutes: int
) -> None:
    now = times.parse_instant("2026-11-16T12:00", now_us=0, origin_us=0)
    begin_us = times.parse_instant(begin, now_us=now, origin_us=0)
    end_us = times.parse_instant(end, now_us=now, origin_us=0, before_us=now, begin_us=begin_us)
    assert (end_us - begin_us) / times.MINUTE_US == minutes
