"""The orchestrator and the cloud that a host belongs to, with the evidence."""

from __future__ import annotations

import contextlib
import fnmatch
from collections.abc import Iterable
from typing import TYPE_CHECKING

from overnight import errors
from overnight.model.audit import Belonging, Evidence

if TYPE_CHECKING:
    from overnight.app.audit import knowledge
    from overnight.sources.image import tree as trees
    from overnight.sources.image import units


def find_owner(
    owners: tuple[knowledge.Owner, ...],
    tree: trees.Tree,
    enabled: tuple[units.Unit, ...],
    override: str | None,
) -> Belonging:
    """Return the owner with the most evidence, none on a tie; `override` is the operator's word."""
    titles = {owner.name: owner.title for owner in owners}
    if override is not None and override not in titles:
        raise errors.UsageError(
            f"unknown owner {override!r}",
            why="the audit knows no units of it",
            todo=f"one of: {', '.join(titles)}",
        )
    weights: dict[str, int] = {}
    evidence: dict[str, tuple[Evidence, ...]] = {}
    for owner in owners:
        found = [*_marks(owner, tree), *_units(owner, enabled)]
        if found:
            weights[owner.name] = sum(weight for weight, _ in found)
            evidence[owner.name] = tuple(item for _, item in found)
    ranked = sorted(weights, key=lambda name: -weights[name])
    name = override
    if name is None:
        clear = ranked and (len(ranked) == 1 or weights[ranked[0]] > weights[ranked[1]])
        # An enabled unit alone proves nothing: vendors enable units by default.
        name = ranked[0] if clear and weights[ranked[0]] > 1 else ""
    others = {other: evidence[other] for other in ranked if other != name}
    return Belonging(
        name, titles.get(name, ""), evidence.get(name, ()), others, said=override is not None
    )


def _units(owner: knowledge.Owner, enabled: Iterable[units.Unit]) -> list[tuple[int, Evidence]]:
    # Five units of one agent are no more evidence than one.
    unit = next((unit for unit in enabled if owner.owns(unit.name)), None)
    if unit is None:
        return []
    where = unit.links[0].path if unit.links else unit.path
    return [(owner.unit_weight, Evidence(where, 0, f"{unit.name} is enabled"))]


def _marks(owner: knowledge.Owner, tree: trees.Tree) -> list[tuple[int, Evidence]]:
    found = []
    seen: set[str] = set()  # a file that matches two marks counts once
    for mark in owner.marks:
        for path in _expand(mark.path, tree)[:1]:
            if path in seen:
                continue
            if not mark.contains:
                seen.add(path)
                found.append((mark.weight, Evidence(path, 0, "exists")))
                continue
            for number, line in enumerate(_lines(path, tree), 1):
                if mark.contains in line and not line.lstrip().startswith("#"):
                    # Quote the mark only: the rest of the line may be secret.
                    says = f"contains {mark.contains}"
                    found.append((mark.weight, Evidence(path, number, says)))
                    break
    return found


def _expand(path: str, tree: trees.Tree) -> list[str]:
    folder, _, last = path.rpartition("/")
    if "*" not in last:
        return [path] if tree.exists(path) else []
    with contextlib.suppress(OSError):
        return [f"{folder}/{name}" for name in fnmatch.filter(tree.names(folder), last)]
    return []


def _lines(path: str, tree: trees.Tree) -> list[str]:
    try:
        return tree.text(path).splitlines()
    except OSError:
        return []
