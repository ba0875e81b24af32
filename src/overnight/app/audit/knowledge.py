"""Knowledge about units, read from knowledge.toml."""

from __future__ import annotations

import dataclasses
import fnmatch
import functools
import importlib.resources
import tomllib
from typing import Any


@dataclasses.dataclass(frozen=True)
class Mark:
    """A file that shows which orchestrator or cloud a host belongs to."""

    path: str
    weight: int
    contains: str = ""


@dataclasses.dataclass(frozen=True)
class Owner:
    name: str
    title: str
    units: tuple[str, ...]
    unit_weight: int
    does: str
    marks: tuple[Mark, ...]

    def owns(self, unit: str) -> bool:
        return any(fnmatch.fnmatchcase(unit, pattern) for pattern in self.units)


@dataclasses.dataclass(frozen=True)
class Supervisor:
    """A program that restarts its child itself."""

    program: str
    says: str
    words: tuple[str, ...] = ()

    def runs(self, command: tuple[str, ...]) -> bool:
        if not command or not fnmatch.fnmatchcase(command[0].rpartition("/")[2], self.program):
            return False
        rest = iter(command[1:])
        return all(any(fnmatch.fnmatchcase(word, wanted) for word in rest) for wanted in self.words)


@dataclasses.dataclass(frozen=True)
class Together:
    """Units that should not both be enabled on a host of that orchestrator."""

    units: tuple[str, ...]
    orchestrator: str
    what: str
    why: str
    turn_off: str


@dataclasses.dataclass(frozen=True)
class Knowledge:
    orchestrators: tuple[Owner, ...]
    clouds: tuple[Owner, ...]
    supervisors: tuple[Supervisor, ...]
    endless: tuple[tuple[tuple[str, ...], str], ...]
    together: tuple[Together, ...]

    def endless_by_design(self, unit: str) -> str:
        """Return why a unit restarts forever by design; "" if it is not meant to."""
        for patterns, says in self.endless:
            if any(fnmatch.fnmatchcase(unit, pattern) for pattern in patterns):
                return says
        return ""


def parse_knowledge(text: str) -> Knowledge:
    """Parse TOML; an unknown key is an error, so that misspellings are found."""
    table = tomllib.loads(text)
    return Knowledge(
        orchestrators=tuple(_owner(entry) for entry in table["orchestrator"]),
        clouds=tuple(_owner(entry) for entry in table["cloud"]),
        supervisors=tuple(
            Supervisor(**{**entry, "words": tuple(entry.get("words", ()))})
            for entry in table["supervisor"]
        ),
        endless=tuple((tuple(entry["units"]), entry["says"]) for entry in table["endless"]),
        together=tuple(
            Together(**{**entry, "units": tuple(entry["units"])}) for entry in table["together"]
        ),
    )


def _owner(table: dict[str, Any]) -> Owner:
    marks = tuple(Mark(**mark) for mark in table["marks"])
    return Owner(**{**table, "units": tuple(table["units"]), "marks": marks})


@functools.cache
def known() -> Knowledge:
    file = importlib.resources.files("overnight.app.audit") / "knowledge.toml"
    return parse_knowledge(file.read_text("utf-8"))
