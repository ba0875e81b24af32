"""Text of `dmesg`, `dmesg -T`, `dmesg --time-format iso`, each also with `-x` or `-r`.

Samples::

[60794.882329] ena 0000:00:05.0 eth0: TX q 5 is paused for too long
[Mon Nov 16 17:52:34 2026] ena 0000:00:05.0 eth0: TX q 5 is paused for too long
kern  :warn  : 2026-11-16T17:52:34,882605+00:00 ena 0000:00:05.0 eth0: TX q 5 is paused for too long
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from overnight.ingest import logs

NAME = "dmesg"
LINE = re.compile(
    r"(?:(?P<facility>[a-z]{2,8}\d?) {0,8}:[a-z]{2,8} {0,8}: )?(?:<(?P<number>\d{1,3})>)?"
    r"(?:\[ {0,8}(?P<seconds>\d{1,10})\.(?P<micros>\d{6})\]"
    r"|\[(?P<day>[A-Z][a-z]{2} [A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d \d{4})\]"
    r"|(?P<iso>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d,\d{6}[+-]\d\d:\d\d))"
    r" ?(?:\[ {0,8}[TC]\d{1,10}\] )?(?P<text>.*)",
    re.ASCII,
)
KERNEL = (None, "kern")
UNKNOWN_WRITER = (
    "the log does not show which lines a process wrote (dmesg -x does): all count as the kernel's"
)


def sniff(head: bytes) -> bool:
    return logs.find_line(LINE, head) is not None


def needs_boot(head: bytes) -> bool:
    """Return whether the times are seconds since boot."""
    first = logs.find_line(LINE, head)
    return first is not None and first["seconds"] is not None


def read(file: logs.LogFile) -> Iterator[logs.Line]:
    for text in file.lines():
        line = LINE.match(text)
        if line is None:
            # A message of several lines has its time on the first only.
            file.damaged += bool(text.strip()) and not text.startswith((" ", "\t"))
            continue
        if line["facility"] is None and line["number"] is None:
            file.note(UNKNOWN_WRITER)
        wall_us = monotonic_us = None
        try:
            if line["seconds"]:
                monotonic_us = int(line["seconds"] + line["micros"])
            elif line["iso"]:
                wall_us = logs.parse_iso(line["iso"])
            else:
                wall_us = file.local(logs.parse_naive(line["day"], "%a %b %d %H:%M:%S %Y"))
        except (ValueError, OverflowError):
            file.damaged += 1
            continue
        by_process = line["facility"] not in KERNEL or int(line["number"] or 0) > 7
        yield logs.Line(wall_us, monotonic_us, line["text"], by_process)
