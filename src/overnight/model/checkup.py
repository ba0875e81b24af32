"""What `overnight doctor` concludes about a host."""

from __future__ import annotations

import dataclasses
import enum

__all__ = ["SCHEMA", "Check", "Checkup", "Question", "Status"]

SCHEMA = "overnight.doctor/1"


class Status(enum.StrEnum):
    """How far one thing that recording needs is there."""

    OK = "ok"
    DEGRADED = "degraded"
    MISSING = "missing"


@dataclasses.dataclass(frozen=True)
class Check:
    """One thing looked at: what was found, why it matters, and the command that mends it."""

    id: str
    title: str
    status: Status
    found: str
    why: str
    fix: str
    facts: dict[str, object]

    def __post_init__(self) -> None:
        if self.status is not Status.OK and not self.fix:
            raise ValueError(f"check {self.id} is {self.status} and names no fix")


@dataclasses.dataclass(frozen=True)
class Question:
    """What a check asks, and why it matters; the answers become a `Check`."""

    id: str
    title: str
    why: str

    def ok(self, found: str, **facts: object) -> Check:
        """It is there."""
        return Check(self.id, self.title, Status.OK, found, self.why, "", facts)

    def degraded(self, found: str, fix: str, **facts: object) -> Check:
        """It is there in part; recording works with less."""
        return Check(self.id, self.title, Status.DEGRADED, found, self.why, fix, facts)

    def missing(self, found: str, fix: str, **facts: object) -> Check:
        """It is not there."""
        return Check(self.id, self.title, Status.MISSING, found, self.why, fix, facts)


@dataclasses.dataclass(frozen=True)
class Checkup:
    """All checks of one host by heading, and what can be recorded there."""

    host: str
    groups: dict[str, tuple[Check, ...]]
    profiles: bool
    signals: bool

    @property
    def can_record(self) -> bool:
        """Whether anything at all can be recorded."""
        return self.profiles or self.signals

    @property
    def checks(self) -> tuple[Check, ...]:
        """Every check, in order."""
        return tuple(check for group in self.groups.values() for check in group)

    def as_json(self) -> dict[str, object]:
        """The stable form; schemas/doctor-1.json describes it."""
        return {
            "schema": SCHEMA,
            "host": self.host,
            "can_record": {"profiles": self.profiles, "signals": self.signals},
            "checks": [{**dataclasses.asdict(c), "status": str(c.status)} for c in self.checks],
        }
