"""One module a workload; each names it in WORKLOAD."""

from __future__ import annotations

import importlib
import pkgutil
from typing import TYPE_CHECKING

from overnight import errors

if TYPE_CHECKING:
    from overnight import load

__all__ = ["discover", "find"]


def discover() -> dict[str, load.Workload]:
    """Every workload by its name; there is no list to edit."""
    found: dict[str, load.Workload] = {}
    for module in pkgutil.iter_modules(__path__):
        if not module.name.startswith("_"):
            one = importlib.import_module(f"{__name__}.{module.name}").WORKLOAD
            found[one.name] = one
    return dict(sorted(found.items()))


def find(name: str) -> load.Workload:
    """The workload of that name; raises UsageError."""
    known = discover()
    if name not in known:
        raise errors.UsageError(
            f"there is no workload {name!r}",
            why=f"there are {', '.join(known)}",
            todo="overnight load --help   says what each does",
        )
    return known[name]
