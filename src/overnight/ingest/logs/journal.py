"""Output of `journalctl -k` (short, short-precise, short-iso, short-unix, json), and syslog's kern.log.

Samples::

Nov 16 17:52:34 db-7 kernel: ena 0000:00:05.0 eth0: TX q 5 is paused for too long
2026-11-16T17:52:34+0000 db-7 kernel: ena 0000:00:05.0 eth0: TX q 5 is paused for too long
{"__REALTIME_TIMESTAMP":"1794851554882605","_HOSTNAME":"db-7","_TRANSPORT":"kernel","MESSAGE":"ena …"}
"""

from __future__ import annotations

import datetime
import json
import re
from collections.abc import Iterator
from typing import Any

from overnight.ingest import logs

NAME = "journal"
LINE = re.compile(
    r"(?:<\d{1,3}>)?"
    r"(?:(?P<day>[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d)(?:\.(?P<fraction>\d{6}))?"
    r"|(?P<iso>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:[.,]\d{1,6})?(?:[+-]\d\d:?\d\d|Z))"
    r"|(?P<unix>\d{9,10}\.\d{6}))"
    r" (?P<host>\S{1,255}) (?P<writer>[^:\s]{1,255}): (?:\[ {0,8}(?P<stamp>\d{1,10}\.\d{6})\] )?(?P<text>.*)",
    re.ASCII,
)
JSON = re.compile(r'\{.*"__REALTIME_TIMESTAMP"')
NO_YEAR = "the times have no year: the last such day before the file was modified is assumed"
MAX_TEXT = 2048


def sniff(head: bytes) -> bool:
    return any(logs.find_line(form, head) for form in (LINE, JSON))


def read(file: logs.LogFile) -> Iterator[logs.Line]:
    for text in file.lines():
        if not text.strip() or text.startswith("-- "):
            continue  # "-- Boot 1a2b… --", "-- Journal begins at …"
        try:
            line = _parse_json(file, text) if text.startswith("{") else _parse_text(file, text)
        except (ValueError, TypeError, KeyError, OverflowError, RecursionError):
            file.damaged += 1
            continue
        if line is not None:
            yield line


def _parse_text(file: logs.LogFile, text: str) -> logs.Line | None:
    """Parse a line; None: not of the kernel. Raise ValueError for any other."""
    line = LINE.match(text)
    if line is None:
        if text.startswith((" ", "\t")):
            return None  # the message above goes on
        raise ValueError(text)
    # journald gives lines that a process wrote to /dev/kmsg another name.
    if line["writer"] != "kernel":
        return None
    file.host = file.host or line["host"]
    if line["unix"]:
        wall_us = int(line["unix"].replace(".", ""))
    elif line["iso"]:
        wall_us = logs.parse_iso(line["iso"])
    else:
        file.note(NO_YEAR)
        wall_us = file.local(_add_year(file, line["day"])) + int(line["fraction"] or 0)
    stamp = line["stamp"]
    return logs.Line(wall_us, int(stamp.replace(".", "")) if stamp else None, line["text"])


def _add_year(file: logs.LogFile, day: str) -> datetime.datetime:
    latest = file.modified.replace(tzinfo=None) + datetime.timedelta(days=1)
    for year in range(latest.year, latest.year - 5, -1):  # 29 February has few years
        try:
            when = logs.parse_naive(f"{year} {day}", "%Y %b %d %H:%M:%S")
        except ValueError:
            continue
        if when <= latest:
            return when
    raise ValueError(day)


def _parse_json(file: logs.LogFile, text: str) -> logs.Line | None:
    entry: Any = json.loads(text)
    if entry.get("_TRANSPORT", "kernel") != "kernel":
        return None
    wall_us = int(entry["__REALTIME_TIMESTAMP"])
    stamp = entry.get("_SOURCE_MONOTONIC_TIMESTAMP")
    monotonic_us = None if stamp is None else int(stamp)
    if monotonic_us is not None:
        # The other two are when the journal received it: at boot, seconds after the kernel wrote it.
        wall_us -= max(0, int(entry.get("__MONOTONIC_TIMESTAMP", 0)) - monotonic_us)
    message = entry.get("MESSAGE") or ""
    if isinstance(message, list):  # not UTF-8
        message = bytes(message).decode("utf-8", "backslashreplace")
    if isinstance(entry.get("_HOSTNAME"), str):
        file.host = file.host or entry["_HOSTNAME"][:255]
    by_process = str(entry.get("SYSLOG_FACILITY", "0")) != "0"
    return logs.Line(wall_us, monotonic_us, str(message)[:MAX_TEXT], by_process)
