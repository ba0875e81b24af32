"""Migrations of the tables: Alembic runs them on a database, and `database.tables` for the code."""

from __future__ import annotations

import pkgutil

from overnight.database.migrations import versions

STEPS = sorted(module.name for module in pkgutil.iter_modules(versions.__path__))
HEAD = STEPS[-1].partition("_")[0]
