"""The rules in force on this host, tried on lines of a log that somebody has."""

from __future__ import annotations

import dataclasses
import pathlib
import re
from collections.abc import Iterable, Iterator

from overnight.sources import kernelrules, kmsg
from overnight.sources.kernelrules import matcher, rulefiles

__all__ = ["Found", "lines_of", "load", "rules_folder", "try_lines"]

# What dmesg, journalctl and syslog put before the message.
PREFIX = re.compile(
    r"^(?:<\d{1,3}>)?"
    r"(?:[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d \S{1,255} kernel: |\d{4}-\d\d-\d\dT\S{8,24} \S{1,255} kernel: )?"
    r"(?:\[[ \d]{0,12}\d\.\d{6}\] |\[[A-Z][a-z]{2} [A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d \d{4}\] )?"
)


@dataclasses.dataclass(frozen=True)
class Found:
    """A line, and what one rule says of it."""

    number: int
    text: str
    match: matcher.Match


def rules_folder(home: pathlib.Path) -> pathlib.Path:
    """Where a user's own rules lie."""
    return home / "rules"


def load(home: pathlib.Path, folder: pathlib.Path | None = None) -> list[kernelrules.Rule]:
    """Ours, those of the data home, those of the folder; each may override what came before."""
    return rulefiles.load(rules_folder(home), *([folder] if folder else []))


def lines_of(data: bytes) -> Iterator[str]:
    """Lines as /dev/kmsg, dmesg, journalctl or syslog give them, without what is not the message."""
    for raw in data.splitlines():
        if re.match(rb"\d{1,4},\d{1,20},\d{1,20},[^;]{1,100};", raw):
            record = kmsg.parse_record(raw)
            if record is not None:
                yield record.text
                continue
        text = raw.decode("utf-8", "backslashreplace")
        yield kmsg.visible(PREFIX.sub("", text, count=1))[: kmsg.TEXT_LIMIT]


def try_lines(rules: Iterable[kernelrules.Rule], lines: Iterable[str]) -> Iterator[Found]:
    """What the rules see there."""
    rules_matcher = matcher.Matcher(rules)
    for number, text in enumerate(lines, 1):
        for match in rules_matcher.match(text):
            yield Found(number, text, match)
