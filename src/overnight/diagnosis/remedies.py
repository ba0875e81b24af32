"""Fixes and experiments with the names of this incident filled in.

Names come from the evidence, which may be anybody's bundle: in commands they are quoted for the shell,
and a name that no unit, process or cgroup can have gives no command at all.
"""

from __future__ import annotations

import dataclasses
import fnmatch
import re
import shlex
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from overnight.diagnosis import conditions, knowledge
from overnight.model.verdict import Chain, Step

if TYPE_CHECKING:
    from overnight.model.finding import Finding

__all__ = ["experiment", "fill", "fix", "title", "values"]

OWN = (
    "unit",
    "process",
    "function",
    "cgroup",
)  # the root's alone: of another step they are not to blame
OPTIONAL = re.compile(r"\[([^\[\]|]*)(?:\|([^\[\]|]*))?\]")
# What systemd, comm, cgroupfs and network interfaces let somebody be called, as far as commands go.
PLAIN = re.compile(r"[\w@:.\\+() /-]+", re.ASCII)


def values(one: Finding) -> dict[str, str]:
    """What a finding's texts may speak of: its subject and its magnitudes, where they are any."""
    told = {
        name: conditions.number(value)
        for name in one.magnitude
        if (value := conditions.measured(one, name))
    }
    told |= {name: conditions.plain(str(value)) for name, value in one.subject.as_json().items()}
    return told


def fill(template: str, told: Mapping[str, str]) -> str:
    """The text with its placeholders; '' where one is not known that is not in [brackets].

    >>> fill("mask [{unit}|the unit][ on core {core}]", {"core": "3"})
    'mask the unit on core 3'
    """

    def optional(found: re.Match[str]) -> str:
        first, other = found[1], found[2] or ""
        return first if _known(first, told) else other

    text = OPTIONAL.sub(optional, template)
    if not _known(text, told):
        return ""
    return knowledge.PLACEHOLDER.sub(lambda found: told[found[1]], text)


def _known(template: str, told: Mapping[str, str]) -> bool:
    return all(found[1] in told for found in knowledge.PLACEHOLDER.finditer(template))


def fix(chain: Chain, told: knowledge.Knowledge) -> tuple[Step, ...]:
    """What would mend the root of a chain."""
    return tuple(step for one in _of(chain, told.fixes) for step in _steps(one, chain))


def experiment(chain: Chain, told: knowledge.Knowledge) -> tuple[Step, ...]:
    """What would confirm or refute a chain: the steps, then how to read the outcome."""
    steps: list[Step] = []
    names = _names(chain)
    for one in _of(chain, told.experiments):
        steps.extend(_steps(one, chain))
        for what, outcome in (("Confirmed if", one.confirm), ("Refuted if", one.refute)):
            if text := fill(outcome, names):
                steps.append(Step(f"{what} {text}", expect=what.split()[0].lower()))
    return tuple(steps)


def title(chain: Chain, told: knowledge.Knowledge) -> str:
    """The fix in one clause, or ''."""
    for one in _of(chain, told.fixes):
        return fill(one.title, _names(chain))
    return ""


def _of(chain: Chain, remedies: Sequence[knowledge.Remedy]) -> tuple[knowledge.Remedy, ...]:
    """Those for this unit where there are some: a container runtime is not masked like any other unit."""
    root = chain.steps[0]
    mine = [one for one in remedies if one.root == root.kind]
    special = [
        one
        for one in mine
        if any(fnmatch.fnmatchcase(root.subject.unit, pattern) for pattern in one.for_units)
    ]
    return tuple(special or [one for one in mine if not one.for_units])


def _steps(remedy: knowledge.Remedy, chain: Chain) -> list[Step]:
    names = _names(chain)
    quoted = {name: shlex.quote(value) for name, value in _raw(chain).items() if safe(name, value)}
    steps = []
    for step in remedy.steps:
        what, expect = fill(step.what, names), fill(step.expect, names)
        if not what:
            continue
        command = step.command if _known(step.command, quoted) else ""
        if step.command and not command and _known(step.command, names):
            what += " (by hand: a name in it is too odd for a command)"
        elif step.command and not command:
            continue
        command = knowledge.PLACEHOLDER.sub(lambda found: quoted[found[1]], command)
        steps.append(Step(what, command, expect))
    return steps


def safe(name: str, value: str) -> bool:
    """Whether a name may stand in a command, where it is quoted as well."""
    if name == "cgroup" and (not value.startswith("/") or ".." in value.split("/")):
        return False
    if name in ("core", "queue"):
        return value.isascii() and value.isdigit()
    return (
        len(value) <= conditions.LONGEST_NAME
        and PLAIN.fullmatch(value) is not None
        and not value.startswith("-")
        and (name == "cgroup" or "/" not in value or name in ("process", "function"))
    )


def _raw(chain: Chain) -> dict[str, str]:
    """The root's own names, and the places of the whole chain, those nearest to the root first."""
    told: dict[str, str] = {}
    for count, step in enumerate(chain.steps):
        for name, value in dataclasses.asdict(step.subject).items():
            if value not in ("", None) and (count == 0 or name not in OWN):
                told.setdefault(name, str(value))
    return told


def _names(chain: Chain) -> dict[str, str]:
    return {name: conditions.plain(value) for name, value in _raw(chain).items()}
