"""Undo what `overnight age` did, and drop the caches of the host. There is nothing to undo."""

from __future__ import annotations

from typing import TYPE_CHECKING

from overnight.app import age, changes
from overnight.model import host_changes

if TYPE_CHECKING:
    from collections.abc import Mapping

BUILTIN = host_changes.Builtin.PURGE
COUNTED = {"dying": "dying memory cgroups", "dentries": "dentries"}


def apply(_: tuple[str, ...], context: changes.Context) -> str:
    report = age.purge(context.home)
    if report.problems:
        changes.refuse(f"not everything was undone: {'; '.join(report.problems)}", "aged state stays", "overnight age --undo")  # fmt: skip
    return "; ".join(("dropped caches", *_describe(report.before, report.after)))


def _describe(before: Mapping[str, int], after: Mapping[str, int]) -> list[str]:
    return [
        f"{noun} {before[name]:,} before, {after[name]:,} now"
        for name, noun in COUNTED.items()
        if name in before and name in after
    ]
