"""Times for people: read and shown in UTC, or in local time with --local."""

from __future__ import annotations

import contextvars
import datetime
import sys
from typing import Any

from overnight.model import times

LOCAL = contextvars.ContextVar("LOCAL", default=False)  # --local


def read(value: Any) -> Any:
    """Let a TIME option mean local time with --local, unless the time names a zone."""
    if isinstance(value, list):  # TIME[=TEXT]
        split = (each.partition("=") for each in value)
        return ["".join((read(time), *text)) for time, *text in split]
    return f"{value} local" if value and LOCAL.get() else value


def _local(us: int) -> datetime.datetime | None:
    try:
        return (times.EPOCH + datetime.timedelta(microseconds=us)).astimezone()
    except (OverflowError, ValueError):  # a damaged file may hold any number
        return None


def cell(us: int) -> str:
    """Format a time for a table: UTC, or local time with its offset."""
    local = _local(us) if LOCAL.get() else None
    return local.isoformat(timespec="milliseconds") if local else times.format_instant(us)


def short(us: int) -> str:
    """Format a time to the second, for a table with a `heading`."""
    return cell(us)[:19]


def format_instant(us: int) -> str:
    """Format one time; on a terminal in another zone than UTC, with the local time after it."""
    local = _local(us)
    if local is None or LOCAL.get() or not local.utcoffset() or not sys.stdout.isatty():
        return cell(us)
    return f"{times.format_instant(us)} ({local:%H:%M:%S} {local.isoformat()[-6:]})"


def heading() -> str:
    """Return the heading of a column of times, with the local offset on a terminal in another zone."""
    if LOCAL.get():
        return "time (local)"
    now = datetime.datetime.now().astimezone()
    elsewhere = now.utcoffset() and sys.stdout.isatty()
    return f"UTC (local {now.isoformat()[-6:]})" if elsewhere else "time (UTC)"
