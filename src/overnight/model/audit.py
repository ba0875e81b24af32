"""What `overnight audit` concludes about the units of a host or an image."""

from __future__ import annotations

import dataclasses
import enum

__all__ = ["SCHEMA", "Belonging", "Evidence", "Finding", "Report", "Risk"]

SCHEMA = "overnight.audit/1"


class Risk(enum.StrEnum):
    """How much a finding can hurt. `low` is told, and does not make the audit fail."""

    HIGH = "high"
    MEDIUM = "medium"
    LOW = "low"


@dataclasses.dataclass(frozen=True)
class Evidence:
    """Where something is written: a file and its line, or a property of the running unit."""

    where: str
    line: int  # 0: the whole file, a link, or no file at all
    says: str

    @property
    def place(self) -> str:
        """`/usr/lib/systemd/system/ecs.service:9`."""
        return f"{self.where}:{self.line}" if self.line else self.where


@dataclasses.dataclass(frozen=True)
class Finding:
    """One unit and what is wrong with it."""

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
    """Which orchestrator or cloud a host belongs to; "" where nothing says so."""

    name: str
    title: str
    evidence: tuple[Evidence, ...]
    # What points elsewhere, by name: told, so that a wrong guess can be seen.
    others: dict[str, tuple[Evidence, ...]]
    said: bool = False  # by the operator, on the command line


@dataclasses.dataclass(frozen=True)
class Report:
    """All findings, worst first, and what could not be looked at."""

    host: str
    root: str
    live: bool
    units: int
    enabled: int
    orchestrator: Belonging
    cloud: Belonging
    findings: tuple[Finding, ...]
    gaps: tuple[tuple[str, str], ...]

    @property
    def bad(self) -> bool:
        """Whether anything was found that somebody should act on."""
        return any(one.risk is not Risk.LOW for one in self.findings)

    @property
    def to_turn_off(self) -> tuple[str, ...]:
        """Units whose fix is to disable and mask them."""
        return tuple(dict.fromkeys(one.unit for one in self.findings if one.turn_off))

    def as_json(self) -> dict[str, object]:
        """The stable form; schemas/audit-1.json describes it."""
        return {
            "schema": SCHEMA,
            "host": self.host,
            "root": self.root,
            "live": self.live,
            "bad": self.bad,
            "units": self.units,
            "enabled": self.enabled,
            "orchestrator": dataclasses.asdict(self.orchestrator),
            "cloud": dataclasses.asdict(self.cloud),
            "findings": [
                {**dataclasses.asdict(one), "risk": str(one.risk)} for one in self.findings
            ],
            "gaps": [{"what": what, "why": why} for what, why in self.gaps],
        }
