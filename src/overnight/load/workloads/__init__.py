"""One module per workload; each exports WORKLOAD."""

from __future__ import annotations

import importlib
import pkgutil
from typing import TYPE_CHECKING

from overnight import errors

if TYPE_CHECKING:
    from overnight import load


def discover() -> dict[str, load.Workload]:
    known: dict[str, load.Workload] = {}
    for module in pkgutil.iter_modules(__path__):
        if not module.name.startswith("_"):
            workload = importlib.import_module(f"{__name__}.{module.name}").WORKLOAD
            known[workload.name] = workload
    return dict(sorted(known.items()))


def find(name: str) -> load.Workload:
    known = discover()
    if name not in known:
        raise errors.UsageError(
            f"there is no workload {name!r}",
            why=f"workloads: {', '.join(known)}",
            todo="`overnight load --list` describes each of them",
        )
    return known[name]
