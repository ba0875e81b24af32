"""Rows of the audit log, and values that all servers of a database share."""

from __future__ import annotations

from collections.abc import Sequence

import sqlalchemy as sa

from overnight.database import statements
from overnight.fleet.sql import schema
from overnight.model.control_plane import AuditRow
from overnight.model.text import printable

table, settings = schema.audit, schema.settings


def add(
    connection: sa.Connection, at_us: int, who: str, action: str, target: str, why: str = ""
) -> None:
    texts = {"who": who, "action": action, "target": target, "why": why}
    shown = {name: printable(text, limit=1_000) for name, text in texts.items()}
    connection.execute(table.insert().values(at_us=at_us, **shown))


def list_page(connection: sa.Connection, before: int, limit: int) -> list[AuditRow]:
    """Return entries, the newest first, before an id."""
    older = [table.c.id < before] if before else []
    chosen = sa.select(table).where(*older).order_by(table.c.id.desc()).limit(limit)
    return [AuditRow(**row._mapping) for row in connection.execute(chosen)]


def list_changes(
    connection: sa.Connection, name: str, actions: Sequence[str]
) -> list[tuple[str, str]]:
    """Return actions and targets of the assistants of a name, with any token (`Principal.title`)."""
    chosen = sa.select(table.c.action, table.c.target).where(
        table.c.action.in_(actions),
        table.c.who.startswith(f"{printable(name)} (", autoescape=True),
        table.c.who.endswith(", assistant)", autoescape=True),
    )
    return [(str(action), str(target)) for action, target in connection.execute(chosen)]


def keep_setting(connection: sa.Connection, name: str, value: str) -> str:
    """Store a value unless there is one; return what is stored."""
    statements.add_missing(connection, settings, {"name": name, "value": value})
    return find_setting(connection, name)


def find_setting(connection: sa.Connection, name: str) -> str:
    """Return a value, '' if there is none."""
    chosen = sa.select(settings.c.value).where(settings.c.name == name)
    return str(connection.execute(chosen).scalar() or "")
