"""What `overnight doctor` concludes about a host."""

from __future__ import annotations

import dataclasses
import enum

SCHEMA = "overnight.doctor/1"


class Status(enum.StrEnum):
    OK = "ok"
    DEGRADED = "degraded"
    MISSING = "missing"


@dataclasses.dataclass(frozen=True)
class Check:
    """The result of one check: what was found, why it matters, and the command that fixes it."""

    id: str
    title: str
    status: Status
    found: str
    why: str
    fix: str
    facts: dict[str, object]
    optional: bool = False  # recording does without it

    def __post_init__(self) -> None:
        if self.status is not Status.OK and not self.fix:
            raise ValueError(f"check {self.id} is {self.status} and has no fix")


@dataclasses.dataclass(frozen=True)
class Question:
    """What a check is about and why it matters; `ok`, `degraded` and `missing` make the result."""

    id: str
    title: str
    why: str
    optional: bool = False

    def ok(self, found: str, **facts: object) -> Check:
        return self._check(Status.OK, found, "", facts)

    def degraded(self, found: str, fix: str, **facts: object) -> Check:
        """Recording works, with less."""
        return self._check(Status.DEGRADED, found, fix, facts)

    def missing(self, found: str, fix: str, **facts: object) -> Check:
        return self._check(Status.MISSING, found, fix, facts)

    def _check(self, status: Status, found: str, fix: str, facts: dict[str, object]) -> Check:
        return Check(self.id, self.title, status, found, self.why, fix, facts, self.optional)


@dataclasses.dataclass(frozen=True)
class Checkup:
    """All checks of one host by heading, and what can be recorded there."""

    host: str
    groups: dict[str, tuple[Check, ...]]
    profiles: bool
    signals: bool

    @property
    def can_record(self) -> bool:
        return self.profiles or self.signals

    @property
    def checks(self) -> tuple[Check, ...]:
        return tuple(check for group in self.groups.values() for check in group)

    def as_json(self) -> dict[str, object]:
        """Schema docs/schemas/doctor-1.json."""
        return {
            "schema": SCHEMA,
            "host": self.host,
            "can_record": {"profiles": self.profiles, "signals": self.signals},
            "checks": list(map(dataclasses.asdict, self.checks)),
        }
