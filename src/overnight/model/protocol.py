"""Terms and limits of the uplink protocol that the uplink process and the server share.

Few imports: the uplink process has 20 MB, and dataclasses alone takes more than one of them. `model.uplink` has the
documents as dataclasses, for the server.
"""

from __future__ import annotations

import enum
import math
import re
from typing import Any

from overnight.model.severity import Severity

VERSION = 1
# Of an event: characters of each text, and its fields.
TEXTS = {"text": 4_096, "host": 255, "unit": 255, "process": 255, "source": 255, "boot": 64}
MAX_FIELDS, MAX_FIELD_NAME, MAX_FIELD_TEXT = 64, 64, 1_024
ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:-]{0,127}")  # of an event or a task


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


INTERRUPTED = "the agent ended while it ran"  # detail of such a task, which may be asked for again
REPORTED = (TaskState.RUNNING, TaskState.DONE, TaskState.FAILED, TaskState.REFUSED)


def fit_event(event: dict[str, Any]) -> None:
    """Shorten the texts of an event of schema event-1, and drop fields, so that the server accepts it.

    Recorded events have texts of the kernel and of other programs. The server refuses one that is too long.
    """
    for name, longest in TEXTS.items():
        if isinstance(event.get(name), str):
            event[name] = event[name][:longest]
    if "severity" in event:
        event["severity"] = Severity.of(event["severity"])
    if isinstance(event.get("fields"), dict):
        cut = (
            (name[:MAX_FIELD_NAME], value[:MAX_FIELD_TEXT] if isinstance(value, str) else value)
            for name, value in event["fields"].items()
        )
        event["fields"] = dict([field for field in cut if is_scalar(field[1])][:MAX_FIELDS])


def is_scalar(value: object) -> bool:
    """Return whether a value may be a field of an event."""
    if isinstance(value, str):
        return len(value) <= MAX_FIELD_TEXT
    if isinstance(value, float):
        return math.isfinite(value)
    return isinstance(value, int) and abs(value) < 1 << 63
