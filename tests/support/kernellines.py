"""Numbered lines in the real kernel log, each of them an event of its own."""

from __future__ import annotations

import collections
import os
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from overnight.model.event import Event

KIND = "test.kernel_line."
# Ten kinds: the recorder takes at most 30 new events of one kind a minute.
RULE = """
[[rule]]
name = "kernel-line-{digit}-of-a-test"
kind = "test.kernel_line.{digit}"
severity = "info"
regex = '{mark} line (?P<number>\\d*{digit}) of the test'
meaning = "A test wrote a line."
incident = "{{number}}"
fields = {{ number = "int" }}
matches = [{{ line = "{mark} line 7{digit} of the test", fields = {{ number = 7{digit} }} }}]
misses = ["line 7"]
"""


def make_rules(mark: str) -> str:
    """Return rules for the lines with a mark."""
    return "".join(RULE.format(mark=mark, digit=digit) for digit in range(10))


def write(mark: str, numbers: Iterable[int]) -> None:
    for number in numbers:
        # Opened each time: the kernel drops more than ten lines in five seconds of one opening (printk_devkmsg).
        descriptor = os.open("/dev/kmsg", os.O_WRONLY)
        try:
            os.write(descriptor, f"<6>{mark} line {number} of the test\n".encode())
        finally:
            os.close(descriptor)


def count(events: Iterable[Event]) -> dict[int, int]:
    """Return the lines by number in events, of which the last of each id counts."""
    counts: dict[int, int] = collections.Counter()
    for event in {event.id: event for event in events}.values():
        counts[int(event.fields["number"])] += event.count
    return counts
