"""What `overnight audit` concludes about the units of a host or an image."""

from __future__ import annotations

import dataclasses
import enum

SCHEMA = "overnight.audit/1"


class Risk(enum.StrEnum):
    """How much a finding can hurt. `low` is reported, but does not make the audit fail."""

    HIGH = "high"
    MEDIUM = "medium"
    LOW = "low"


@dataclasses.dataclass(frozen=True)
class Evidence:
    """A file and its line, or a property of the running unit."""

    where: str
    line: int  # 0: the whole file, a link, or no file at all
    says: str

    @property
    def place(self) -> str:
        """`/usr/lib/systemd/system/ecs.service:9`."""
        return f"{self.where}:{self.line}" if self.line else self.where


@dataclasses.dataclass(frozen=True)
class Finding:
    id: str
    unit: str
    risk: Risk
    what: str
    why: str
    fix: str
    evidence: tuple[Evidence, ...]
    turn_off: bool = False  # whether disabling and masking the unit is the fix


@dataclasses.dataclass(frozen=True)
class Belonging:
    """The orchestrator or cloud that a host belongs to; "" if unknown."""

    name: str
    title: str
    evidence: tuple[Evidence, ...]
    # Evidence for others, by name: reported, so that a wrong guess can be seen.
    others: dict[str, tuple[Evidence, ...]]
    said: bool = False  # set on the command line


@dataclasses.dataclass(frozen=True)
class Gap:
    """What could not be examined, and why."""

    what: str
    why: str


@dataclasses.dataclass(frozen=True)
class Report:
    """All findings, worst first, and what could not be examined."""

    host: str
    root: str
    live: bool
    examined_us: int
    units: int
    enabled: int
    orchestrator: Belonging
    cloud: Belonging
    findings: tuple[Finding, ...]
    gaps: tuple[Gap, ...]
    # Units to turn off whose own file is where the mask would be.
    unmaskable: tuple[str, ...] = ()

    @property
    def bad(self) -> bool:
        """Whether any finding needs action."""
        return any(finding.risk is not Risk.LOW for finding in self.findings)

    @property
    def to_turn_off(self) -> tuple[str, ...]:
        """Units whose fix is to disable and mask them."""
        return tuple(dict.fromkeys(finding.unit for finding in self.findings if finding.turn_off))

    def verbs(self, unit: str) -> tuple[str, ...]:
        """Return the commands of systemctl that turn a unit off."""
        return ("disable",) if unit in self.unmaskable else ("disable", "mask")

    def as_json(self) -> dict[str, object]:
        """Return the document; docs/schemas/audit-1.json describes it."""
        return {"schema": SCHEMA, "bad": self.bad, **dataclasses.asdict(self)}
