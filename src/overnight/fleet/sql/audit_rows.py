"""Rows of the audit log, and values that all servers of a database share."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import sqlalchemy as sa

from overnight.database import statements
from overnight.fleet.sql import schema
from overnight.model.control_plane import AuditRow, Change
from overnight.model.text import printable

table, settings = schema.audit, schema.settings
SHOWN = [table.c[field.name] for field in dataclasses.fields(AuditRow)]


def add(
    connection: sa.Connection, at_us: int, who: str, action: str, target: str, why: str = "",
    change: Change | None = None,
) -> None:  # fmt: skip
    texts = {"who": who, "action": action, "target": target, "why": why}
    shown = {name: printable(text, limit=1_000) for name, text in texts.items()}
    connection.execute(
        table.insert().values(at_us=at_us, **shown, **(vars(change) if change else {}))
    )


def list_page(connection: sa.Connection, before: int, limit: int) -> list[AuditRow]:
    """Return entries, the newest first, before an id."""
    older = [table.c.id < before] if before else []
    chosen = sa.select(*SHOWN).where(*older).order_by(table.c.id.desc()).limit(limit)
    return [AuditRow(**row._mapping) for row in connection.execute(chosen)]


def list_changes(
    connection: sa.Connection, caller: str, actions: Sequence[str]
) -> list[tuple[str, Change]]:
    """Return actions and changes of an assistant, with all tokens of its name, in their order."""
    columns = [table.c[field.name] for field in dataclasses.fields(Change)]
    own = (table.c.caller == caller, table.c.action.in_(actions))
    rows = connection.execute(sa.select(table.c.action, *columns).where(*own).order_by(table.c.id))
    return [(str(row[0]), Change(*row[1:])) for row in rows]


def keep_setting(connection: sa.Connection, name: str, value: str) -> str:
    """Store a value unless there is one; return what is stored."""
    statements.add_missing(connection, settings, {"name": name, "value": value})
    return find_setting(connection, name)


def find_setting(connection: sa.Connection, name: str) -> str:
    """Return a value, '' if there is none."""
    chosen = sa.select(settings.c.value).where(settings.c.name == name)
    return str(connection.execute(chosen).scalar() or "")
