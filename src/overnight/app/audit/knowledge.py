"""What is known of units, as read from knowledge.toml."""

from __future__ import annotations

import dataclasses
import fnmatch
import functools
import importlib.resources
import tomllib

__all__ = ["Knowledge", "Mark", "Owner", "Supervisor", "Together", "known", "parse_knowledge"]


@dataclasses.dataclass(frozen=True)
class Mark:
    """Something in the file system that shows whom a host belongs to."""

    path: str
    weight: int
    contains: str = ""


@dataclasses.dataclass(frozen=True)
class Owner:
    """An orchestrator or a cloud."""

    name: str
    title: str
    units: tuple[str, ...]
    unit_weight: int
    does: str
    marks: tuple[Mark, ...]

    def owns(self, unit: str) -> bool:
        """Whether a unit is one of its agents."""
        return any(fnmatch.fnmatchcase(unit, pattern) for pattern in self.units)


@dataclasses.dataclass(frozen=True)
class Supervisor:
    """A program that starts its child again itself."""

    program: str
    says: str
    words: tuple[str, ...] = ()

    def runs(self, command: tuple[str, ...]) -> bool:
        """Whether a command line is this supervisor's."""
        if not command or not fnmatch.fnmatchcase(command[0].rpartition("/")[2], self.program):
            return False
        rest = iter(command[1:])
        return all(any(fnmatch.fnmatchcase(word, wanted) for word in rest) for wanted in self.words)


@dataclasses.dataclass(frozen=True)
class Together:
    """Units that are odd when both are enabled on a host of that orchestrator."""

    units: tuple[str, ...]
    orchestrator: str
    what: str
    why: str
    turn_off: str


@dataclasses.dataclass(frozen=True)
class Knowledge:
    """All of it."""

    orchestrators: tuple[Owner, ...]
    clouds: tuple[Owner, ...]
    supervisors: tuple[Supervisor, ...]
    endless: tuple[tuple[tuple[str, ...], str], ...]
    together: tuple[Together, ...]

    def endless_by_design(self, unit: str) -> str:
        """Why a unit may restart without end; "" where nobody meant it to."""
        for patterns, says in self.endless:
            if any(fnmatch.fnmatchcase(unit, pattern) for pattern in patterns):
                return says
        return ""


def parse_knowledge(text: str) -> Knowledge:
    """Knowledge of a TOML text; a key that nobody knows is an error, so that none is misspelt."""
    table = tomllib.loads(text)
    return Knowledge(
        orchestrators=tuple(_owner(one) for one in table["orchestrator"]),
        clouds=tuple(_owner(one) for one in table["cloud"]),
        supervisors=tuple(
            Supervisor(**{**one, "words": tuple(one.get("words", ()))})
            for one in table["supervisor"]
        ),
        endless=tuple((tuple(one["units"]), one["says"]) for one in table["endless"]),
        together=tuple(
            Together(**{**one, "units": tuple(one["units"])}) for one in table["together"]
        ),
    )


def _owner(table: dict[str, object]) -> Owner:
    units, marks = table["units"], table["marks"]
    assert isinstance(units, list)
    assert isinstance(marks, list)
    rest = {**table, "units": tuple(units), "marks": tuple(Mark(**mark) for mark in marks)}
    return Owner(**rest)  # type: ignore[arg-type]  # TOML gives what it gives; a test loads it


@functools.cache
def known() -> Knowledge:
    """What comes with overnight."""
    file = importlib.resources.files("overnight.app.audit") / "knowledge.toml"
    return parse_knowledge(file.read_text("utf-8"))
