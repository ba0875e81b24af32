"""`overnight event`: add what no recorder sees (failed jobs, dead actors, timeouts) as events, and remove it.

A line of a file is a JSON object; `text`, `severity`, `core`, `process` and `unit` may follow::

    {"kind": "job.failed", "at": "2026-11-15T03:14:07Z", "host": "db-7", "labels": {"job": "train-7", "gpu": "h100"}}
"""

from __future__ import annotations

import dataclasses
import itertools
import pathlib
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from overnight import errors
from overnight.app import events as stored
from overnight.app import home as homes
from overnight.model import times
from overnight.model.event import Event
from overnight.model.severity import Severity
from overnight.model.text import printable
from overnight.store import added_events
from overnight.store.ring import journal
from overnight.store.ring import reader as rings

KIND = re.compile(r"[a-z][a-z0-9_-]*(\.[a-z0-9][a-z0-9_-]*)+", re.ASCII)
LABEL = re.compile(r"[A-Za-z_][A-Za-z0-9_./-]{0,62}", re.ASCII)
MAX_TEXT = 1024
# Characters of each text; the longest line, all of it escaped, fits into the journal's 64 KB.
LONGEST = {"kind": 64, "at": 64, "host": 255, "text": MAX_TEXT, "severity": 8, "process": 255, "unit": 255}  # fmt: skip
FIELDS = (*LONGEST, "core", "labels")
MAX_LABELS, MAX_VALUE = 16, 128  # of an event; characters of a value
MAX_EVENTS = 100_000  # of one call
MAX_PROBLEMS = 10
MAX_CORE = 1 << 16
EARLIEST_US = 946_684_800 * times.SECOND_US  # the year 2000
Given = Mapping[str, Any]


@dataclasses.dataclass(frozen=True)
class Added:
    """The events of a call; `added` of them are new."""

    events: tuple[Event, ...]
    added: int
    unrecorded: tuple[str, ...]  # hosts without signals here: maybe a wrong name

    @property
    def known(self) -> int:
        return len(self.events) - self.added

    def as_json(self) -> dict[str, object]:
        return {
            "schema": "overnight.event-add/1",
            "added": self.added,
            "known": self.known,
            "ids": [event.id for event in self.events],
            "hosts_without_signals": list(self.unrecorded),
        }


@dataclasses.dataclass(frozen=True)
class Removed:
    ids: tuple[str, ...]

    def as_json(self) -> dict[str, object]:
        return {"schema": "overnight.event-remove/1", "removed": list(self.ids)}


def add(home: pathlib.Path, events: Iterable[Event]) -> Added:
    """Add events of `make_event` or `read_events`; an event that is there already is not added twice."""
    events = tuple(events)
    homes.need_writable(home)
    try:
        added = added_events.add(home, events)
    except OSError as error:
        raise errors.unwritable(
            home / "signals", error, "free disk space, or run it as the user who records"
        ) from error
    ring = rings.Reader(home)
    hosts = sorted({event.host for event in events})
    return Added(events, added, tuple(host for host in hosts if ring.extent(host) is None))


def remove(home: pathlib.Path, ids: Iterable[str]) -> Removed:
    """Remove added events by id or prefix, all or none; raise CannotError for an event of the recorder."""
    homes.need_writable(home)
    known = added_events.read_ids(home)
    chosen = {text if text in known else stored.find_event(home, text).id for text in ids}
    if kept := sorted(chosen - known):
        raise errors.CannotError(
            f"event {kept[0]} cannot be removed",
            why="it was recorded, or came with a bundle; only events that were added can be removed",
            todo="`overnight events --kind KIND` lists only the events of a kind",
        )
    return Removed(added_events.remove(home, chosen))


def read_events(data: bytes, defaults: Given) -> tuple[Event, ...]:
    """Read JSON lines; raise UsageError with the numbers of invalid lines."""
    events: list[Event] = []
    problems: list[str] = []
    for number, line in enumerate(data.splitlines(), 1):
        if not line.strip():
            continue
        try:
            if len(events) == MAX_EVENTS:
                raise _invalid(f"more than {MAX_EVENTS:,} events; split the file")
            given = journal.parse_line(line)
            if given is None:
                raise _invalid("not a JSON object")
            if isinstance(given.get("labels", {}), dict):
                given["labels"] = {**defaults["labels"], **given.get("labels", {})}
            events.append(make_event({**defaults, **given}))
        except errors.UsageError as error:
            problems.append(f"line {number}: {error.what}")
            if len(problems) == MAX_PROBLEMS:
                problems.append("…")
                break
    if problems:
        raise errors.UsageError(
            "the file has invalid lines; nothing was added",
            why="; ".join(problems),
            todo='write each line as {"kind": "job.failed", "at": "2026-11-15T03:14:07Z", "host": "db-7"}',
        )
    return tuple(events)


def _invalid(what: str) -> errors.UsageError:
    return errors.UsageError(
        printable(what, limit=500),
        why=f"an event has {', '.join(FIELDS)}; the first three are required",
        todo="overnight event add --help",
    )


def make_event(given: Given) -> Event:
    """Return the event of a line or of the command's options; raise UsageError where it is not valid."""
    given = {name: value for name, value in given.items() if value not in ("", None)}
    for problem in _find_problems(given):
        raise _invalid(problem)
    now = times.now_us()
    at_us = times.parse_instant(str(given["at"]), now_us=now, origin_us=0)
    if not EARLIEST_US <= at_us <= now + times.DAY_US:
        raise _invalid(f"at is {times.format_instant(at_us)}, before 2000 or in the future")
    labels = {name: _plain(value) for name, value in sorted(given.get("labels", {}).items())}
    is_labels = given["kind"] == added_events.HOST_LABELS
    event = Event(
        at_us,
        given["kind"],
        given.get("text", " ".join(map("=".join, labels.items())))[:MAX_TEXT],
        given["host"],
        given.get("core", -1),
        given.get("severity", Severity.INFO if is_labels else Severity.WARNING),
        unit=given.get("unit", ""),
        process=given.get("process", ""),
        source=added_events.SOURCE,
        fields=labels,
    )
    return dataclasses.replace(event, id=added_events.event_id(event))


def _find_problems(given: Given) -> Iterator[str]:
    yield from (f"unknown field {name!r}" for name in given if name not in FIELDS)
    yield from (f"{name} is missing" for name in FIELDS[:3] if name not in given)
    for name, longest in LONGEST.items():
        value = given.get(name, "")
        is_stamp = name == "at" and type(value) in (int, float)
        if not is_stamp and (not isinstance(value, str) or len(value) > longest):
            yield f"{name} is not a text of at most {longest} characters"
    if not KIND.fullmatch(given["kind"]):
        yield f"kind {given['kind']!r} is not a dotted name in lower case, such as job.failed"
    if given.get("severity", Severity.INFO) not in tuple(Severity):
        yield f"severity {given['severity']!r} is not one of {', '.join(Severity)}"
    core, labels = given.get("core", 0), given.get("labels", {})
    if type(core) is not int or not 0 <= core < MAX_CORE:
        yield f"core {core!r} is not the number of a core"
    if not isinstance(labels, dict) or len(labels) > MAX_LABELS:
        yield f"labels is not an object of at most {MAX_LABELS} names"
    yield from filter(None, itertools.starmap(_find_label_problem, labels.items()))


def _find_label_problem(name: str, value: object) -> str:
    if not LABEL.fullmatch(name):
        return f"label name {name!r} has other characters than A-Z a-z 0-9 _ . / -, or more than 63"
    if not isinstance(value, str | int | float) or not 0 < len(_plain(value)) <= MAX_VALUE:
        return f"label {name} is not a text or number of 1 to {MAX_VALUE} characters"
    return ""


def _plain(value: str | float) -> str:
    """Return the text of a label; a boolean as JSON writes it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def parse_label(text: str) -> tuple[str, str]:
    """Parse NAME=VALUE.

    >>> parse_label("gpu=h100")
    ('gpu', 'h100')
    """
    name, equals, value = text.partition("=")
    if problem := _find_label_problem(name, value) if equals else "there is no = in it":
        raise errors.UsageError(
            f"{text!r} is not a label",
            why=printable(problem, limit=500),
            todo="write it as gpu=h100",
        )
    return name, value
