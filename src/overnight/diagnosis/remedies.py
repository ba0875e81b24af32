"""Fixes and experiments with the names of this incident filled in.

Names may come from anybody's bundle: commands quote them, and one that nothing can have yields no command.
"""

from __future__ import annotations

import contextlib
import fnmatch
import re
import shlex
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from overnight.diagnosis import conditions, knowledge
from overnight.model import cgroups, host_changes, programs
from overnight.model.verdict import Chain, Step

if TYPE_CHECKING:
    from overnight.model.finding import Finding

OWN = ("unit", "process", "function", "cgroup", "container", "image")  # the root's alone: those of other steps are not to blame  # fmt: skip
OPTIONAL = re.compile(r"\[([^\[\]|]*)(?:\|([^\[\]|]*))?\]")
# What systemd, comm, cgroupfs and network interfaces allow as a name, as far as commands go.
PLAIN = re.compile(r"[\w@:.\\+()\[\], /→…-]+", re.ASCII)
SPECIAL = re.compile(r"[()\[\]+\\]")  # in the regular expressions that overnight's options take


def values(finding: Finding) -> dict[str, str]:
    """Return the placeholders of a finding: its subject, its magnitudes, and `actor`."""
    numbers = {
        name: f"{value:.2f}" if name.startswith("cores_") else conditions.format_number(value)
        for name in finding.magnitude
        if (value := conditions.measured(finding, name))
    }
    subject = {"child": "A child", **finding.subject.as_json()}
    if finding.subject.process:
        subject["actor"] = str(finding.subject.actor)
    subject.pop("container", None)
    if names := cgroups.names_of(finding.subject.container):
        own = finding.magnitude.get("restarted")
        culprit = cgroups.describe(finding.subject.container)
        subject |= {
            "culprit": culprit,
            "containers": "a container" if "image" in names else culprit,
            "starter": f"{cgroups.title_of(names['runtime'])} itself" if own else "An unknown unit",
        }
        if container := names.get("container"):
            subject |= {"container": container, "child": f"Container {container}"}
    if unit := finding.subject.unit:
        subject["culprit"] = f"something below {unit}" if unit.startswith("/") else unit
    return numbers | {name: conditions.plain(str(value)) for name, value in subject.items()}


def fill(template: str, known: Mapping[str, str]) -> str:
    """Fill in a template; '' if a placeholder outside [brackets] is not known.

    >>> fill("mask [{unit}|the unit][ on core {core}]", {"core": "3"})
    'mask the unit on core 3'
    """

    def choose(match: re.Match[str]) -> str:
        first, other = match[1], match[2] or ""
        return first if _is_known(first, known) else other

    text = OPTIONAL.sub(choose, template)
    if not _is_known(text, known):
        return ""
    return knowledge.PLACEHOLDER.sub(lambda match: known[match[1]], text)


def _is_known(template: str, known: Mapping[str, str]) -> bool:
    return all(match[1] in known for match in knowledge.PLACEHOLDER.finditer(template))


def fix(chain: Chain, known: knowledge.Knowledge) -> tuple[Step, ...]:
    return tuple(step for remedy in _select(chain, known.fixes) for step in _steps(remedy, chain))


def experiment(chain: Chain, known: knowledge.Knowledge) -> tuple[Step, ...]:
    """Return the steps that confirm or refute a chain, then how to read the outcome."""
    steps: list[Step] = []
    names = _names(chain)
    for remedy in _select(chain, known.experiments):
        steps.extend(_steps(remedy, chain))
        for what, outcome in (("Confirmed if", remedy.confirm), ("Refuted if", remedy.refute)):
            if text := fill(outcome, names):
                steps.append(Step(f"{what} {text}", expect=what.split()[0].lower()))
    return tuple(steps)


def changes(
    chain: Chain, known: knowledge.Knowledge
) -> tuple[tuple[host_changes.Change, ...], ...]:
    """Return the changes that test a chain's root, the preferred ones first; each is made in its order.

    One with a name that is not known, or that is not plain, is left out.
    """
    names = {name: value for name, value in _raw(chain).items() if is_safe(name, value)}
    names["other_core"] = "1" if names.get("core") == "0" else "0"
    possible = []
    for remedy in _select(chain, known.experiments):
        for text in remedy.change:
            filled = [fill(each, names) for each in text.split(host_changes.THEN)]
            with contextlib.suppress(ValueError):
                words = [each.partition(" ") for each in filled]
                possible.append(
                    tuple(host_changes.parse(word, target) for word, _, target in words)
                )
    return tuple(possible)


def title(chain: Chain, remedies: Sequence[knowledge.Remedy]) -> str:
    """Return the fix or the experiment as one imperative clause, or ''."""
    return next((fill(each.title, _names(chain)) for each in _select(chain, remedies)), "")


def _select(chain: Chain, remedies: Sequence[knowledge.Remedy]) -> tuple[knowledge.Remedy, ...]:
    """Return those for this runtime and unit if there are any: a container runtime is not masked like any other unit."""
    root = chain.root

    def of(runtime: str) -> list[knowledge.Remedy]:
        fitting = [each for each in remedies if (each.root, each.runtime) == (root.kind, runtime)]
        special = [
            remedy
            for remedy in fitting
            if any(fnmatch.fnmatchcase(root.subject.unit, pattern) for pattern in remedy.for_units)
        ]
        return special or [remedy for remedy in fitting if not remedy.for_units]

    return tuple(of(cgroups.names_of(root.subject.container).get("runtime", "")) or of(""))


def _steps(remedy: knowledge.Remedy, chain: Chain) -> list[Step]:
    names = _names(chain)
    quoted = {
        name: shlex.quote(value) for name, value in _raw(chain).items() if is_safe(name, value)
    }
    if look := find_look(chain.root):
        quoted["look"] = names["look"] = look
    if "process" in quoted:
        quoted["pgrep"] = names["pgrep"] = programs.pgrep_arguments(_raw(chain)["process"])
    pattern = SPECIAL.sub(r"\\\g<0>", _raw(chain).get("process", ""))
    steps = []
    for step in remedy.steps:
        what, expect = fill(step.what, names), fill(step.expect, names)
        if not what:
            continue
        command = step.command if _is_known(step.command, quoted) else ""
        if step.command and not command and _is_known(step.command, names):
            what += " (by hand: a name in it is not safe in a command)"
        elif step.command and not command:
            continue
        if command.startswith("overnight ") and "process" in quoted:
            command = command.replace("--process {process}", f"--process {shlex.quote(pattern)}")
        command = knowledge.PLACEHOLDER.sub(lambda match: quoted[match[1]], command)
        steps.append(Step(what, command, expect))
    return steps


def find_look(finding: Finding) -> str:
    """Return the command that shows the stacks of a finding, or ''."""
    return next((each.look for each in finding.evidence if "path" in each.values), "")


def is_safe(name: str, value: str) -> bool:
    """Return whether a name may be used in a command, where it is quoted as well."""
    if name == "cgroup" and (not value.startswith("/") or ".." in value.split("/")):
        return False
    if name in ("core", "queue"):
        return value.isascii() and value.isdigit()
    return (
        len(value) <= conditions.MAX_NAME
        and PLAIN.fullmatch(value) is not None
        and not value.startswith("-")
        and (name == "cgroup" or "/" not in value or name in ("process", "function", "image"))
    )


def _raw(chain: Chain) -> dict[str, str]:
    """Return the root's own names, and the places of the whole chain, those nearest to the root first.

    A root in a pod or container has {namespace} and {pod}, or {container}, instead of {unit}.
    """
    names: dict[str, str] = {}
    for count, step in enumerate(chain.steps):
        for name, value in step.subject.as_json().items():
            if count == 0 or name not in OWN:
                names.setdefault(name, str(value))
    names.pop("container", None)
    names |= cgroups.names_of(chain.root.subject.container)
    actor = chain.root.subject.actor
    if "/" in actor.unit:  # not a unit that systemctl knows
        del names["unit"]
        if actor.pod:
            names |= zip(("namespace", "pod"), actor.pod, strict=True)
        elif actor.container:
            names["container"] = actor.container
    return names


def _names(chain: Chain) -> dict[str, str]:
    return {name: conditions.plain(value) for name, value in _raw(chain).items()}
