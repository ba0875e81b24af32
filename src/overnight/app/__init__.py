"""Use cases: typed request in, typed result out. They join the layers; interfaces call only them."""

from __future__ import annotations

import importlib
import pkgutil
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import types


def discover(package: types.ModuleType) -> tuple[types.ModuleType, ...]:
    """Import every public module of a plug-in package, sorted by name."""
    return tuple(
        importlib.import_module(f"{package.__name__}.{name}")
        for name in sorted(module.name for module in pkgutil.iter_modules(package.__path__))
        if not name.startswith("_")
    )
