"""What an agent reports to its server, and what the server answers.

The uplink process writes reports and reads answers as plain JSON: dataclasses do not fit into its 20 MB.
`from_json` checks everything: each field has a type and a limit, and UsageError names the one that is wrong.
Unknown fields are ignored, as a later version may send them. Times are µs since 1970 on the host's wall clock.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from typing import Any

from overnight.model import checked_json, decoding, protocol
from overnight.model.audit import Report as Audit
from overnight.model.event import Event
from overnight.model.severity import Severity
from overnight.model.snapshot import Snapshot
from overnight.model.text import printable

MAX_TIME = checked_json.MAX_INTEGER  # the year 2255
MAX_EVENTS, MAX_SPELLS, MAX_ROLLUPS, MAX_WINDOWS = 2_000, 1_000, 2_000, 200
MAX_CORES = 4_096
SHARES = ("mean", "max", "kernel_max")  # of a rollup, in percent per core
MAX_LABELS, MAX_LABEL_NAME, MAX_LABEL_VALUE = 64, 64, 256
MAX_WINDOW_BYTES = 4 << 30  # of a bundle
MAX_AUDIT_BYTES = 1 << 20  # as JSON; a host with 230 units and no findings has 500
MAX_DETAIL = 2_048

SHA256 = re.compile(r"[0-9a-f]{64}")
HOST = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,252}")
BOOT = re.compile(r"[0-9a-fA-F-]{1,64}")
CREDENTIAL = re.compile(r"[A-Za-z0-9_-]{32,128}")
KIND = re.compile(r"[a-z][a-z0-9_-]*(\.[a-z0-9][a-z0-9_-]*)+")
LABEL = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_./-]{0,63}")

TaskKind = protocol.TaskKind
TaskState = protocol.TaskState


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
        highest = {**dict.fromkeys(SHARES, 100), "worst_ms": seconds * 1_000}
        lists = {name: given.numbers(name, most, MAX_CORES) for name, most in highest.items()}
        for name, values in lists.items():
            if len(values) != len(cores):
                checked_json.refuse(f"{where}.{name}", "one number for each core")
        return cls(given.integer("begin_us"), seconds, cores, **lists)


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
    audit: Audit | None = None  # None: the host was not examined since

    @classmethod
    def from_json(cls, document: object) -> Report:
        given = checked_json.Object(document, "report")
        if given.integer("version", 1, 1 << 31) > protocol.VERSION:
            checked_json.refuse(
                "report.version", f"at most {protocol.VERSION}: update the server first"
            )
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
            _audit(given),
        )


@dataclasses.dataclass(frozen=True)
class Task:
    id: str
    kind: TaskKind
    arguments: Mapping[str, Any]
    expires_us: int

    def as_json(self) -> dict[str, object]:
        return {**vars(self), "arguments": dict(self.arguments)}


@dataclasses.dataclass(frozen=True)
class TaskReport:
    """How a task went; `progress` is from 0 to 1."""

    state: TaskState
    detail: str = ""
    progress: float = 0.0
    result: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    @classmethod
    def from_json(cls, value: object) -> TaskReport:
        given = checked_json.Object(value, "task report")
        progress = given.get("progress", 0)
        if type(progress) not in (int, float) or not 0 <= progress <= 1:
            checked_json.refuse("task report.progress", "a number from 0 to 1")
        return cls(
            TaskState(given.word("state", protocol.REPORTED)),
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


def parse_event(value: object, where: str = "event") -> Event:
    """Parse an event of schema event-1 with an id, within the limits of a report."""
    given = checked_json.Object(value, where)
    fields = given.get("fields", {})
    if not isinstance(fields, dict) or len(fields) > protocol.MAX_FIELDS:
        checked_json.refuse(f"{where}.fields", f"an object of at most {protocol.MAX_FIELDS} values")
    for name, field in fields.items():
        if len(name) > protocol.MAX_FIELD_NAME or not protocol.is_scalar(field):
            checked_json.refuse(
                f"{where}.fields.{name[: protocol.MAX_FIELD_NAME]}", "a short text or a number"
            )
    return Event(
        given.integer("time_us"),
        given.text("kind", 64, form=KIND),
        core=given.integer("core", -1, 1 << 16, default=-1),
        severity=given.word("severity", tuple(Severity), default=Severity.WARNING.value),
        id=given.text("id", form=protocol.ID),
        skew_us=given.integer("skew_us", -MAX_TIME, default=0),
        monotonic_ns=given.integer("monotonic_ns", 0, 1 << 62, default=0),
        until_us=given.integer("until_us", default=0),
        count=given.integer("count", 1, default=1),
        **{name: given.text(name, longest, default="") for name, longest in protocol.TEXTS.items()},
        fields=dict(fields),
    )


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


def _observed(value: object, where: str) -> Observed:
    given = checked_json.Object(value, where)
    begin = given.integer("begin_us")
    end = given.integer("end_us", begin)
    return Observed(given.text("boot", form=BOOT), begin, end, given.integer("uptime_us"))


def _offer(value: object, where: str) -> Offer:
    given = checked_json.Object(value, where)
    return Offer(
        given.text("event", form=protocol.ID, default=""),
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


def _audit(report: checked_json.Object) -> Audit | None:
    if report.get("audit") is None:
        return None
    given = checked_json.Object(report.document("audit", MAX_AUDIT_BYTES), "audit")
    for name in ("units", "enabled"):
        given.integer(name)
    try:
        return decoding.decode(Audit, given.fields)
    except decoding.ShapeError as error:
        checked_json.refuse("audit", f"an audit ({printable(str(error), limit=200)})")
