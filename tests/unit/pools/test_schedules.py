"""Weekly schedules, in the time zone of the callers."""

from __future__ import annotations

import datetime

import pytest

from overnight import errors
from overnight.pools import schedules


def at(text: str) -> datetime.datetime:
    return datetime.datetime.fromisoformat(text).replace(tzinfo=datetime.UTC)


@pytest.mark.parametrize(
    ("text", "when", "holds"),
    [
        ("mon-fri 08:30-10:00 = 20", "2026-11-16T08:29", False),  # a Monday
        ("mon-fri 08:30-10:00 = 20", "2026-11-16T08:30", True),
        ("Mon-FRI 08:30-10:00 = 20", "2026-11-16T08:30", True),
        ("mon-fri 08:30-10:00 = 20", "2026-11-16T10:00", False),
        ("mon-fri 08:30-10:00 = 20", "2026-11-15T09:00", False),  # a Sunday
        ("sat-mon 00:00-24:00 = 2", "2026-11-15T23:59", True),  # over the end of the week
        ("sat-mon 00:00-24:00 = 2", "2026-11-17T00:00", False),
        ("fri 22:00-02:00 = 5", "2026-11-14T01:59", True),  # Friday's, on Saturday
        ("fri 22:00-02:00 = 5", "2026-11-13T01:59", False),
        ("sun 22:00-02:00 = 5", "2026-11-16T01:00", True),  # Sunday's, on Monday
        ("mon-fri 09:00-10:00 Europe/Berlin = 3", "2026-11-16T08:30", True),  # winter: UTC+1
        ("mon-fri 09:00-10:00 Europe/Berlin = 3", "2026-07-13T07:30", True),  # summer: UTC+2
        ("mon-fri 09:00-10:00 Europe/Berlin = 3", "2026-07-13T08:30", False),
        (
            "* 02:15-02:45 Europe/Berlin = 3",
            "2026-03-29T01:30",
            False,
        ),  # 02:30 does not exist that day
        (
            "* 02:15-02:45 Europe/Berlin = 3",
            "2026-10-25T00:30",
            True,
        ),  # 02:30 occurs twice that day
        ("* 02:15-02:45 Europe/Berlin = 3", "2026-10-25T01:30", True),
    ],
)
def test_a_schedule_holds_at_its_times(text: str, when: str, holds: bool) -> None:
    assert schedules.parse(text).holds(at(when)) is holds


@pytest.mark.parametrize(
    "text",
    [
        "", "mon 8-10 = 3", "mon 08:00-10:00", "mon 08:00-10:00 = -3", "mon 08:00-10:00 = x",
        "moon 08:00-10:00 = 3", "mon-moon 08:00-10:00 = 3", "mon 08:00-08:00 = 3",
        "mon 25:00-26:00 = 3", "mon 08:60-09:00 = 3", "mon 24:00-10:00 = 3",
        "mon 08:00-10:00 Mars/Olympus = 3", "mon 08:00-10:00 ../etc/passwd = 3",
        "mon 08:00-10:00 UTC = 3 or so",
    ],
)  # fmt: skip
def test_an_invalid_schedule_is_refused(text: str) -> None:
    with pytest.raises(errors.UsageError, match="invalid schedule"):
        schedules.parse(text)
