"""What a detector concluded, about whom, and what it rests on."""

from __future__ import annotations

import dataclasses
import enum
import hashlib
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from overnight.model.event import Value
    from overnight.model.selection import Window

__all__ = ["Answer", "Evidence", "Finding", "Status", "Subject", "finding_id"]


@dataclasses.dataclass(frozen=True)
class Subject:
    """Whom or what a finding is about; only what applies is said. `core` and `queue` are -1 if not."""

    host: str = ""
    core: int = -1
    unit: str = ""
    process: str = ""
    function: str = ""
    cgroup: str = ""
    interface: str = ""
    queue: int = -1
    cohort: str = ""  # hosts that share a label: `zone=us-east-1a`
    item: str = ""  # of a snapshot: `units: agent.service state=enabled`

    def as_json(self) -> dict[str, str | int]:
        """Those that apply."""
        return {
            name: value for name, value in dataclasses.asdict(self).items() if value not in ("", -1)
        }


@dataclasses.dataclass(frozen=True)
class Evidence:
    """One fact that a finding rests on, so that a reader can look it up himself.

    `source` names the signal, event or profile; `values` are numbers with their denominators in their
    names; `look` is the command that shows it.
    """

    text: str
    source: str
    values: Mapping[str, Value] = dataclasses.field(default_factory=dict)
    window: Window | None = None
    look: str = ""

    def as_json(self) -> dict[str, object]:
        """The stable form."""
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
    """`kind` is a dotted name such as `memory.zombie_cgroups`; `confidence` is from 0 to 1.

    `magnitude` holds the numbers by which findings are compared when they are linked: cores burnt,
    births an hour, zombies an hour. Their names say what they are of.
    """

    id: str
    detector: str
    kind: str
    subject: Subject
    window: Window
    confidence: float
    summary: str
    evidence: tuple[Evidence, ...]
    magnitude: Mapping[str, float] = dataclasses.field(default_factory=dict)
    against: tuple[Evidence, ...] = ()  # what speaks against it

    def as_json(self) -> dict[str, object]:
        """The stable form."""
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
            "evidence": [one.as_json() for one in self.evidence],
            "against": [one.as_json() for one in self.against],
        }


def finding_id(detector: str, kind: str, subject: Subject, begin_us: int) -> str:
    """The same finding has the same id wherever the evidence is read."""
    text = "\0".join((detector, kind, repr(sorted(subject.as_json().items())), str(begin_us)))
    digest = hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=4).hexdigest()
    return f"{kind}-{digest}"


class Status(enum.StrEnum):
    """How a detector answered."""

    FOUND = "found"
    CLEAR = "clear"  # it looked, and there is nothing
    NO_DATA = "no-data"  # what it needs was not recorded
    FAILED = "failed"


@dataclasses.dataclass(frozen=True)
class Answer:
    """One detector's answer. `why` says what was missing or went wrong, or why it is clear."""

    detector: str
    status: Status
    findings: tuple[Finding, ...] = ()
    why: str = ""

    def as_json(self) -> dict[str, object]:
        """The stable form."""
        return {
            "detector": self.detector,
            "status": str(self.status),
            "why": self.why,
            "findings": [one.id for one in self.findings],
        }
