"""What an agent reports to its server, and what the server answers. The agent uses it: standard library only.

`from_json` checks everything: each field has a type and a limit, and UsageError names the one that is wrong.
Unknown fields are ignored, as a later version may send them. Times are µs since 1970 on the host's wall clock.
"""

from __future__ import annotations

import dataclasses
import enum
import math
import re
from collections.abc import Mapping
from typing import Any

from overnight.model import checked_json
from overnight.model.event import Event
from overnight.model.severity import Severity
from overnight.model.snapshot import Snapshot

VERSION = 1
MAX_TIME = checked_json.MAX_INTEGER  # the year 2255
MAX_EVENTS, MAX_SPELLS, MAX_ROLLUPS, MAX_WINDOWS, MAX_TASKS = 2_000, 1_000, 2_000, 200, 64
MAX_CORES = 4_096
SHARES = ("mean", "max", "kernel_max")  # of a rollup, in percent per core
MAX_LABELS, MAX_LABEL_NAME, MAX_LABEL_VALUE = 64, 64, 256
MAX_WINDOW_BYTES = 4 << 30  # of a bundle
MAX_DETAIL = 2_048
# Of an event: characters of each text, and its fields.
TEXTS = {"text": 4_096, "host": 255, "unit": 255, "process": 255, "source": 255, "boot": 64}
MAX_FIELDS, MAX_FIELD_NAME, MAX_FIELD_TEXT = 64, 64, 1_024

SHA256 = re.compile(r"[0-9a-f]{64}")
HOST = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,252}")
BOOT = re.compile(r"[0-9a-fA-F-]{1,64}")
CREDENTIAL = re.compile(r"[A-Za-z0-9_-]{32,128}")
KIND = re.compile(r"[a-z][a-z0-9_-]*(\.[a-z0-9][a-z0-9_-]*)+")
ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:-]{0,127}")
LABEL = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_./-]{0,63}")


class TaskKind(enum.StrEnum):
    """What a server may ask of a host; agent.toml on the host allows each."""

    RECORD = "record"
    LOAD = "load"
    AGE = "age"
    SNAPSHOT = "snapshot"
    UPLOAD_WINDOW = "upload-window"  # arguments: event, or begin_us and end_us; result: sha256
    INSTRUMENT = "instrument"
    CHANGE = "change"
    UNDO = "undo"
    STOP = "stop"  # arguments: task


class TaskState(enum.StrEnum):
    PENDING = "pending"
    LEASED = "leased"  # sent to the agent
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    REFUSED = "refused"  # agent.toml does not allow it
    CANCELLED = "cancelled"
    EXPIRED = "expired"

    @property
    def is_final(self) -> bool:
        return self not in (TaskState.PENDING, TaskState.LEASED, TaskState.RUNNING)


REPORTED = (TaskState.RUNNING, TaskState.DONE, TaskState.FAILED, TaskState.REFUSED)


@dataclasses.dataclass(frozen=True)
class Observed:
    """Time in which the host was observed without interruption; `uptime_us` is that at its begin."""

    boot: str
    begin_us: int
    end_us: int
    uptime_us: int


@dataclasses.dataclass(frozen=True)
class Rollup:
    """An interval in percent per core. `worst_ms`: from `begin_us` to the busiest second of each core."""

    begin_us: int
    seconds: int
    cores: tuple[int, ...]
    mean: tuple[int, ...]
    max: tuple[int, ...]
    kernel_max: tuple[int, ...]
    worst_ms: tuple[int, ...]

    @classmethod
    def from_json(cls, value: object, where: str = "rollup") -> Rollup:
        given = checked_json.Object(value, where)
        seconds = given.integer("seconds", 1, 86_400)
        cores = given.numbers("cores", MAX_CORES - 1, MAX_CORES)
        if len({*cores}) < len(cores):
            checked_json.refuse(f"{where}.cores", "different numbers")
        mean, top, kernel = (given.numbers(name, 100, MAX_CORES) for name in SHARES)
        worst = given.numbers("worst_ms", seconds * 1_000, MAX_CORES)
        for name, values in zip((*SHARES, "worst_ms"), (mean, top, kernel, worst), strict=True):
            if len(values) != len(cores):
                checked_json.refuse(f"{where}.{name}", "one number for each core")
        return cls(given.integer("begin_us"), seconds, cores, mean, top, kernel, worst)


@dataclasses.dataclass(frozen=True)
class Offer:
    """A window that the host has as a bundle, and holds for upload."""

    event: str  # id; '' for a window that was asked for by its times
    sha256: str
    bytes: int
    begin_us: int
    end_us: int


@dataclasses.dataclass(frozen=True)
class Lost:
    """What the agent's spool had to drop since the last accepted report."""

    events: int = 0
    rollups: int = 0


@dataclasses.dataclass(frozen=True)
class Report:
    """The same report twice changes nothing the second time."""

    sent_us: int
    boot: str
    uptime_us: int
    spells: tuple[Observed, ...] = ()
    labels: Mapping[str, str] | None = None  # None: not changed
    events: tuple[Event, ...] = ()
    rollups: tuple[Rollup, ...] = ()
    snapshot: Snapshot | None = None  # None: not changed
    windows: tuple[Offer, ...] = ()
    lost: Lost = Lost()

    def as_json(self) -> dict[str, object]:
        plain = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        plain |= {
            "version": VERSION,
            "spells": [vars(spell) for spell in self.spells],
            "events": [event.as_json() for event in self.events],
            "rollups": [vars(rollup) for rollup in self.rollups],
            "windows": [vars(offer) for offer in self.windows],
            "snapshot": self.snapshot and self.snapshot.as_json(),
            "lost": vars(self.lost),
        }
        return {name: value for name, value in plain.items() if value is not None}

    @classmethod
    def from_json(cls, document: object) -> Report:
        given = checked_json.Object(document, "report")
        if given.integer("version", 1, 1 << 31) > VERSION:
            checked_json.refuse("report.version", f"at most {VERSION}: update the server first")
        lost = checked_json.Object(given.get("lost", {}), "lost")
        labels = given.get("labels")
        return cls(
            given.integer("sent_us"),
            given.text("boot", form=BOOT),
            given.integer("uptime_us"),
            tuple(_observed(*item) for item in given.items("spells", MAX_SPELLS)),
            None if labels is None else parse_labels(labels),
            tuple(parse_event(*item) for item in given.items("events", MAX_EVENTS)),
            tuple(Rollup.from_json(*item) for item in given.items("rollups", MAX_ROLLUPS)),
            _snapshot(given.get("snapshot")),
            tuple(_offer(*item) for item in given.items("windows", MAX_WINDOWS)),
            Lost(*(lost.integer(name, default=0) for name in ("events", "rollups"))),
        )


@dataclasses.dataclass(frozen=True)
class Task:
    id: str
    kind: TaskKind
    arguments: Mapping[str, Any]
    expires_us: int

    def as_json(self) -> dict[str, object]:
        return {**vars(self), "arguments": dict(self.arguments)}

    @classmethod
    def from_json(cls, value: object, where: str = "task") -> Task:
        given = checked_json.Object(value, where)
        return cls(
            given.text("id", form=ID),
            TaskKind(given.word("kind", tuple(TaskKind))),
            given.document("arguments"),
            given.integer("expires_us"),
        )


@dataclasses.dataclass(frozen=True)
class TaskReport:
    """How a task went; `progress` is from 0 to 1."""

    state: TaskState
    detail: str = ""
    progress: float = 0.0
    result: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def as_json(self) -> dict[str, object]:
        return {**vars(self), "result": dict(self.result)}

    @classmethod
    def from_json(cls, value: object) -> TaskReport:
        given = checked_json.Object(value, "task report")
        progress = given.get("progress", 0)
        if type(progress) not in (int, float) or not 0 <= progress <= 1:
            checked_json.refuse("task report.progress", "a number from 0 to 1")
        return cls(
            TaskState(given.word("state", REPORTED)),
            given.text("detail", MAX_DETAIL, default=""),
            float(progress),
            given.document("result"),
        )


@dataclasses.dataclass(frozen=True)
class Reply:
    """`want` lists offered windows to upload; `send` what the next report must have: labels, snapshot."""

    interval: int  # seconds until the next report
    now_us: int
    tasks: tuple[Task, ...] = ()
    want: tuple[str, ...] = ()
    send: tuple[str, ...] = ()

    def as_json(self) -> dict[str, object]:
        lists = {"want": list(self.want), "send": list(self.send)}
        return {**vars(self), "tasks": [task.as_json() for task in self.tasks], **lists}

    @classmethod
    def from_json(cls, document: object) -> Reply:
        given = checked_json.Object(document, "reply")
        wanted = [
            checked_json.Object({"sha256": item}, where)
            for item, where in given.items("want", 1_000)
        ]
        sent = [
            checked_json.Object({"part": item}, where) for item, where in given.items("send", 16)
        ]
        return cls(
            given.integer("interval", 1, 86_400),
            given.integer("now_us"),
            tuple(Task.from_json(*item) for item in given.items("tasks", MAX_TASKS)),
            tuple(item.text("sha256", form=SHA256) for item in wanted),
            tuple(item.text("part", 32) for item in sent),
        )


def parse_event(value: object, where: str = "event") -> Event:
    """Parse an event of schema event-1 with an id, within the limits of a report."""
    given = checked_json.Object(value, where)
    fields = given.get("fields", {})
    if not isinstance(fields, dict) or len(fields) > MAX_FIELDS:
        checked_json.refuse(f"{where}.fields", f"an object of at most {MAX_FIELDS} values")
    for name, field in fields.items():
        if len(name) > MAX_FIELD_NAME or not _is_scalar(field):
            checked_json.refuse(
                f"{where}.fields.{name[:MAX_FIELD_NAME]}", "a short text or a number"
            )
    return Event(
        given.integer("time_us"),
        given.text("kind", 64, form=KIND),
        core=given.integer("core", -1, 1 << 16, default=-1),
        severity=given.word("severity", tuple(Severity), default=Severity.WARNING.value),
        id=given.text("id", form=ID),
        skew_us=given.integer("skew_us", -MAX_TIME, default=0),
        monotonic_ns=given.integer("monotonic_ns", 0, 1 << 62, default=0),
        until_us=given.integer("until_us", default=0),
        count=given.integer("count", 1, default=1),
        **{name: given.text(name, longest, default="") for name, longest in TEXTS.items()},
        fields=dict(fields),
    )


def fit_event(event: Event) -> Event:
    """Shorten the texts of an event, and drop fields, so that `parse_event` accepts it.

    Recorded events have texts of the kernel and of other programs; one that is too long must not hold up
    those behind it in the spool. Raise UsageError for an event without a valid kind or id.
    """
    fields = {
        name[:MAX_FIELD_NAME]: value[:MAX_FIELD_TEXT] if isinstance(value, str) else value
        for name, value in event.fields.items()
    }
    scalars = [(name, value) for name, value in fields.items() if _is_scalar(value)]
    texts = {name: getattr(event, name)[:longest] for name, longest in TEXTS.items()}
    severity = Severity.of(event.severity).value
    fitted = dataclasses.replace(event, fields=dict(scalars[:MAX_FIELDS]), severity=severity, **texts)  # fmt: skip
    return parse_event(fitted.as_json())


def is_newer(event: Event, than: Event) -> bool:
    """Return whether an event replaces an earlier one with its id.

    >>> is_newer(Event(5, "a.b", until_us=9), Event(5, "a.b", until_us=9, count=2))
    False
    """
    return (event.until_us, event.count) > (than.until_us, than.count)


def parse_labels(value: object) -> dict[str, str]:
    """Check labels: at most 64, with portable names and printable values."""
    if not isinstance(value, dict) or len(value) > MAX_LABELS:
        checked_json.refuse("labels", f"an object of at most {MAX_LABELS} texts")
    for name, text in value.items():
        if not LABEL.fullmatch(name):
            checked_json.refuse(f"labels.{name[:MAX_LABEL_NAME]}", "named with A-Z a-z 0-9 _ . / - in at most 64 characters")  # fmt: skip
        if not isinstance(text, str) or len(text) > MAX_LABEL_VALUE or not text.isprintable():
            checked_json.refuse(
                f"labels.{name}", f"a printable text of at most {MAX_LABEL_VALUE} characters"
            )
    return value


def _is_scalar(value: object) -> bool:
    if isinstance(value, str):
        return len(value) <= MAX_FIELD_TEXT
    if isinstance(value, float):
        return math.isfinite(value)
    return isinstance(value, int) and abs(value) < 1 << 63


def _observed(value: object, where: str) -> Observed:
    given = checked_json.Object(value, where)
    begin = given.integer("begin_us")
    end = given.integer("end_us", begin)
    return Observed(given.text("boot", form=BOOT), begin, end, given.integer("uptime_us"))


def _offer(value: object, where: str) -> Offer:
    given = checked_json.Object(value, where)
    return Offer(
        given.text("event", form=ID, default=""),
        given.text("sha256", form=SHA256),
        given.integer("bytes", 1, MAX_WINDOW_BYTES),
        begin := given.integer("begin_us"),
        given.integer("end_us", begin),
    )


def _snapshot(value: object) -> Snapshot | None:
    if value is None:
        return None
    try:
        return Snapshot.from_json(checked_json.Object(value, "snapshot").fields)
    except ValueError as error:
        checked_json.refuse("snapshot", f"a snapshot ({error})")
