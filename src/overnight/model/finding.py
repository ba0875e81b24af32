"""Findings: what a detector concluded, its subject, and the evidence."""

from __future__ import annotations

import dataclasses
import enum
import hashlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Self

from overnight.model.actor import Actor

if TYPE_CHECKING:
    from overnight.model.event import Value
    from overnight.model.selection import Window


@dataclasses.dataclass(frozen=True)
class Subject:
    """What a finding is about; fields that do not apply are empty."""

    host: str = ""
    core: int | None = None
    unit: str = ""
    process: str = ""
    function: str = ""
    cgroup: str = ""
    container: str = ""  # whose cgroups these are, see `cgroups.names_of`
    image: str = ""  # of the container
    interface: str = ""
    queue: int | None = None
    cohort: str = ""  # hosts that share a label: `zone=us-east-1a`
    item: str = ""  # of a snapshot: `units: agent.service state=enabled`

    @property
    def actor(self) -> Actor:
        return Actor(self.process, self.unit)

    @classmethod
    def of_actor(
        cls, host: str, actor: Actor, *, core: int | None = None, function: str = ""
    ) -> Self:
        return cls(host, core, actor.unit, actor.process, function)

    def as_json(self) -> dict[str, str | int]:
        """Return the fields that apply."""
        return {
            name: value
            for name, value in dataclasses.asdict(self).items()
            if value is not None and value != ""
        }


@dataclasses.dataclass(frozen=True)
class Evidence:
    """One fact behind a finding, with all that a reader needs to check it."""

    text: str
    source: str  # the signal, event or profile
    # Numbers; shares have their denominator in the name.
    values: Mapping[str, Value] = dataclasses.field(default_factory=dict)
    window: Window | None = None
    look: str = ""  # the command that shows it

    def as_json(self) -> dict[str, object]:
        return {
            "text": self.text,
            "source": self.source,
            "values": dict(self.values),
            "begin_us": self.window.begin_us if self.window else None,
            "end_us": self.window.end_us if self.window else None,
            "look": self.look,
        }


@dataclasses.dataclass(frozen=True)
class Finding:
    """`kind` is a dotted name such as `memory.zombie_cgroups`; `confidence`, 0 to 1, is its detector's weight."""

    id: str
    detector: str
    kind: str
    subject: Subject
    window: Window
    confidence: float
    summary: str
    evidence: tuple[Evidence, ...]
    # Numbers by which linked findings are compared: cores used, cgroups an hour.
    magnitude: Mapping[str, float] = dataclasses.field(default_factory=dict)
    against: tuple[Evidence, ...] = ()  # evidence against the finding

    def is_same(self, other: Finding) -> bool:
        """Return whether another one, maybe from another window, is about the same thing at the same time."""
        return (
            (self.kind, self.subject) == (other.kind, other.subject)
            and self.window.begin_us < other.window.end_us
            and other.window.begin_us < self.window.end_us
        )

    def as_json(self) -> dict[str, object]:
        return {
            "id": self.id,
            "detector": self.detector,
            "kind": self.kind,
            "subject": self.subject.as_json(),
            "begin_us": self.window.begin_us,
            "end_us": self.window.end_us,
            "confidence": round(self.confidence, 3),
            "summary": self.summary,
            "magnitude": dict(self.magnitude),
            "evidence": [evidence.as_json() for evidence in self.evidence],
            "against": [evidence.as_json() for evidence in self.against],
        }


def finding_id(detector: str, kind: str, subject: Subject, begin_us: int) -> str:
    """Return the same id for the same finding, wherever the evidence is read."""
    text = "\0".join((detector, kind, repr(sorted(subject.as_json().items())), str(begin_us)))
    digest = hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=4).hexdigest()
    return f"{kind}-{digest}"


class Status(enum.StrEnum):
    FOUND = "found"
    CLEAR = "clear"  # the evidence is there, and shows nothing
    NO_DATA = "no-data"  # the evidence it needs was not recorded
    FAILED = "failed"


class Need(enum.StrEnum):
    """An input of a detector: a signal of the flight recorder by its name, or one of the other sources."""

    CGROUP_BIRTHS = "cgroup-births"
    CPU = "cpu"
    ETHTOOL = "ethtool"
    INTERFACES = "interfaces"
    LIMITS = "limits"
    MEMORY_CGROUPS = "memory-cgroups"
    MEMORY_CGROUP_PARENTS = "memory-cgroup-parents"
    NIC_QUEUES = "nic-queues"
    PRESSURE = "pressure"
    PROCESSES = "processes"
    RECORDER = "recorder"
    RT_THREADS = "rt-threads"
    SOFTIRQS = "softirqs"
    SOFTNET = "softnet"
    TX_TIMEOUTS = "tx-timeouts"
    UNIT_RESTARTS = "unit-restarts"
    UNITS = "units"
    VMSTAT = "vmstat"
    EVENTS = "events"  # of the kernel log and the recorder's watches
    PROFILES = "profiles"  # sampled stacks
    SNAPSHOTS = "snapshots"  # of units, packages and settings
    HOST = "host"  # labels


@dataclasses.dataclass(frozen=True)
class Answer:
    detector: str
    status: Status
    findings: tuple[Finding, ...] = ()
    why: str = ""  # the reason for every status but found
    missing: tuple[Need, ...] = ()  # inputs that were not recorded, where the status is no-data

    def as_json(self) -> dict[str, object]:
        return {
            "detector": self.detector,
            "status": self.status,
            "why": self.why,
            "missing": list(self.missing),
            "findings": [finding.id for finding in self.findings],
        }
