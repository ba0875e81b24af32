"""Times of the week with a minimum pool size, in the callers' time zone."""

from __future__ import annotations

import dataclasses
import datetime
import re
import zoneinfo

from overnight import errors

DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
TEXT = re.compile(
    r"(?P<days>\*|[A-Za-z,-]+)\s+(?P<begin>\d{1,2}:\d\d)-(?P<end>\d{1,2}:\d\d)"
    r"(?:\s+(?P<zone>[A-Za-z][A-Za-z0-9_+/-]*))?\s*=\s*(?P<size>\d{1,6})",
    re.ASCII,
)
DAY_MINUTES = 24 * 60


@dataclasses.dataclass(frozen=True)
class Opening:
    """A local time of the week with a minimum size; one that ends before it begins runs past midnight."""

    days: frozenset[int]  # 0 is Monday; the day on which it begins
    begin_minute: int
    end_minute: int
    zone: zoneinfo.ZoneInfo
    size: int
    text: str

    def holds(self, now: datetime.datetime) -> bool:
        """Whether an aware instant lies within it."""
        local = now.astimezone(self.zone)
        minute = local.hour * 60 + local.minute
        if self.begin_minute < self.end_minute:
            return local.weekday() in self.days and self.begin_minute <= minute < self.end_minute
        if minute >= self.begin_minute:
            return local.weekday() in self.days
        return minute < self.end_minute and (local.weekday() - 1) % 7 in self.days


def parse(text: str) -> Opening:
    """Parse `mon-fri 08:30-10:00 Europe/Berlin = 20`; `*` is every day, no zone is UTC.

    >>> parse("sat,sun 22:00-02:00 = 5").days == {5, 6}
    True
    """
    match = TEXT.fullmatch(" ".join(text.split()))
    if match is None:
        raise _refuse(text, "a schedule is DAYS BEGIN-END [ZONE] = SIZE")
    begin, end = _minute(text, match["begin"]), _minute(text, match["end"])
    if begin in (end, DAY_MINUTES):
        raise _refuse(text, "it begins when it ends, or after the end of the day")
    try:
        zone = zoneinfo.ZoneInfo(match["zone"] or "UTC")
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        raise _refuse(text, f"{match['zone']} is not a time zone that this host knows") from None
    return Opening(
        frozenset(_days(text, match["days"].lower())), begin, end, zone, int(match["size"]), text
    )


def _days(text: str, written: str) -> set[int]:
    if written == "*":
        return set(range(7))
    days: set[int] = set()
    for part in written.split(","):
        first, dash, last = part.partition("-")
        if first not in DAYS or (dash and last not in DAYS):
            raise _refuse(text, f"{part!r} is not a day; use {', '.join(DAYS)}")
        begin = DAYS.index(first)
        length = (DAYS.index(last) - begin) % 7 if dash else 0
        days |= {(begin + number) % 7 for number in range(length + 1)}
    return days


def _minute(text: str, written: str) -> int:
    hour, minute = (int(part) for part in written.split(":"))
    if minute > 59 or hour * 60 + minute > DAY_MINUTES:
        raise _refuse(text, f"{written} is not a time of day")
    return hour * 60 + minute


def _refuse(text: str, why: str) -> errors.UsageError:
    return errors.UsageError(
        f"invalid schedule {text!r}",
        why=why,
        todo="write it like 'mon-fri 08:30-10:00 Europe/Berlin = 20'",
    )
