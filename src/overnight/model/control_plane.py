"""What a server knows about its hosts and those who ask: values of the control plane."""

from __future__ import annotations

import base64
import dataclasses
import enum
import json
from collections.abc import Mapping, Sequence
from typing import Any, Generic, TypeVar

from overnight import errors
from overnight.model.uplink import Task, TaskKind, TaskState

Item = TypeVar("Item")


class Role(enum.StrEnum):
    """Each role may do what the one before it may; `agent` is apart: its token enrols one host."""

    VIEWER = "viewer"
    OPERATOR = "operator"
    ADMIN = "admin"
    AGENT = "agent"

    def allows(self, needed: Role) -> bool:
        """Return whether it may do what `needed` may.

        >>> Role.ADMIN.allows(Role.VIEWER), Role.VIEWER.allows(Role.OPERATOR), Role.AGENT.allows(Role.VIEWER)
        (True, False, False)
        """
        if Role.AGENT in (self, needed):
            return self is needed
        return [*Role].index(self) >= [*Role].index(needed)


@dataclasses.dataclass(frozen=True)
class Token:
    """`text` is the secret, known only to the caller of `create`."""

    id: str
    role: Role
    name: str
    created_us: int
    expires_us: int
    created_by: str = ""
    host: str = ""  # the only host that an agent's token enrols; '': any new one
    used_us: int | None = None  # of an agent's token
    revoked_us: int | None = None
    assistant: bool = False  # people confirm what it asks for
    text: str = dataclasses.field(default="", repr=False)

    def as_json(self) -> dict[str, object]:
        """Return it without the secret, unless it was just created."""
        return {name: value for name, value in vars(self).items() if name != "text" or value}


@dataclasses.dataclass(frozen=True)
class Principal:
    """Who asks. What an `assistant` asks for is confirmed by a person where it is destructive or costly."""

    id: str
    name: str
    role: Role
    assistant: bool = False

    @property
    def title(self) -> str:
        """How the audit log names it."""
        return f"{self.name} ({self.id}{', assistant' * self.assistant})"


@dataclasses.dataclass(frozen=True)
class AgentIdentity:
    """`credential_hash` is checked again in each operation, so that revocation takes effect at once."""

    host_id: str
    host: str
    credential_hash: str = dataclasses.field(repr=False)


@dataclasses.dataclass(frozen=True)
class Page(Generic[Item]):
    """A part of a list; `next` is the cursor of the part after it, '' for none."""

    items: tuple[Item, ...]
    next: str = ""


@dataclasses.dataclass(frozen=True)
class HostRow:
    """`seen_us`, `booted_us` are on the server's clock; `skew_us` is the host's clock less the server's."""

    id: str
    name: str
    enrolled_us: int
    seen_us: int  # its last report that was not late; 0: never
    boot: str
    booted_us: int
    uptime_us: int
    skew_us: int
    lost_events: int
    lost_rollups: int
    note: str  # the last problem with what the host sent
    labels_us: int | None
    snapshot_us: int | None
    labels: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def as_json(self) -> dict[str, object]:
        return {**vars(self), "labels": dict(self.labels)}


@dataclasses.dataclass(frozen=True)
class HostFilter:
    """Empty filters match everything."""

    labels: Mapping[str, str] = dataclasses.field(default_factory=dict)
    prefix: str = ""  # of the name
    seen_since_us: int = 0
    seen_before_us: int = 0


@dataclasses.dataclass(frozen=True)
class EventFilter:
    """A kind that ends with a dot is a prefix. `severity` is the least; the window is without its end."""

    kinds: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    severity: str = ""
    begin_us: int = 0
    end_us: int = 0


@dataclasses.dataclass(frozen=True)
class WindowRow:
    """Evidence around an event. Without `received_us` only its host holds it."""

    host: str
    sha256: str
    event: str
    begin_us: int
    end_us: int
    bytes: int
    offered_us: int
    received_us: int | None = None
    dropped_us: int | None = None  # removed by retention

    @property
    def is_held(self) -> bool:
        return self.received_us is not None and self.dropped_us is None


@dataclasses.dataclass(frozen=True)
class BlobOffset:
    """Up to where a blob has arrived."""

    offset: int
    complete: bool


@dataclasses.dataclass(frozen=True)
class TaskRow:
    """A task and what became of it."""

    id: str
    host: str
    kind: TaskKind
    arguments: Mapping[str, Any]
    state: TaskState
    created_us: int
    created_by: str
    why: str
    expires_us: int  # it does not start after this
    updated_us: int
    attempts: int = 0
    detail: str = ""
    progress: float = 0.0
    result: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def task(self) -> Task:
        return Task(self.id, self.kind, self.arguments, self.expires_us)

    def as_json(self) -> dict[str, object]:
        return {**vars(self), "arguments": dict(self.arguments), "result": dict(self.result)}


@dataclasses.dataclass(frozen=True)
class AuditRow:
    id: int
    at_us: int
    who: str
    action: str
    target: str
    why: str


@dataclasses.dataclass(frozen=True)
class Change:
    """What a call of an assistant changed, in columns that only the server writes: a target is never parsed."""

    caller: str  # name of the token
    target_kind: str  # such as pool or claim
    target_id: str
    hosts: int = 0  # by which it raised a limit; less than 0: lowered


class OffsetError(errors.ConflictError):
    """A piece of an upload does not begin where the last one ended; continue at `offset`."""

    def __init__(self, sha256: str, offset: int) -> None:
        super().__init__(
            f"the upload of {sha256} continues at byte {offset}",
            why="the piece does not begin where the last one ended",
            todo="send the piece that begins there",
        )
        self.offset = offset
        self.details = {"offset": offset}  # in the answer of a server


def encode_cursor(*values: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(values).encode()).decode().rstrip("=")


def decode_cursor(text: str, *kinds: type) -> Sequence[Any]:
    """Return the values of a cursor; raise UsageError for any other text.

    >>> decode_cursor(encode_cursor(5, "db-7"), int, str)
    [5, 'db-7']
    """
    try:
        values = json.loads(base64.b64decode(text + "=" * (-len(text) % 4), b"-_", validate=True))
        if [type(value) for value in values] == [*kinds] and all(map(_is_plain, values)):
            return list(values)
    except (ValueError, TypeError, RecursionError):
        pass
    raise errors.UsageError(
        "the cursor is not valid",
        why="a cursor is the value of the field next of the page before, unchanged",
        todo="start again without a cursor",
    )


def _is_plain(value: str | int) -> bool:
    """Return whether a database takes it."""
    return value.isprintable() if isinstance(value, str) else abs(value) < 1 << 62
