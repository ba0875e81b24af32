"""Rows of investigations. Every write but `ask_to_stop` names the fence of its driver."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any

import sqlalchemy as sa

from overnight.database import fences, statements
from overnight.investigations.sql import schema
from overnight.model import decoding
from overnight.model.investigation import Investigation, Note

investigations, notes = schema.investigations, schema.notes
# In words of the partial index: the planner uses it.
OPEN: sa.ColumnElement[bool] = sa.literal_column("investigations.phase <> 'ended'", sa.Boolean)
COLUMNS = {column.name for column in investigations.c}


def insert(connection: sa.Connection, new: Investigation) -> None:
    connection.execute(investigations.insert().values(_row(new)))


def save(connection: sa.Connection, changed: Investigation, more: Iterable[Note]) -> None:
    """Write an investigation, but for `stop`, with lines of its log; raise FenceLostError."""
    row = _row(changed)
    del row["stop"]
    fences.save(connection, investigations, row)
    for note in more:
        connection.execute(notes.insert().values(investigation_id=changed.id, **vars(note)))


def take(connection: sa.Connection, read: Investigation, until_us: int) -> None:
    """Become the driver; raise FenceLostError if another one did so since the investigation was read."""
    fences.take(connection, investigations, read.id, read.fence, driver_until_us=until_us)


def keep(connection: sa.Connection, driven: Investigation, until_us: int) -> bool:
    """Extend the lease of the driver; return whether somebody asked to stop. Raise FenceLostError."""
    fences.keep(connection, investigations, driven.id, driven.fence, until_us)
    asked = sa.select(investigations.c.stop).where(investigations.c.id == driven.id)
    return bool(connection.execute(asked).scalar_one())


def ask_to_stop(connection: sa.Connection, investigation_id: str) -> bool:
    """Ask the driver, whoever it is, to end; False if it has ended."""
    return statements.update(
        investigations, connection, investigation_id, OPEN, stop=True, next_us=0
    )


def find(connection: sa.Connection, investigation_id: str) -> Investigation | None:
    return next(iter(_read(connection, investigations.c.id == investigation_id)), None)


def list_all(connection: sa.Connection, *, ended: bool) -> list[Investigation]:
    """Return open investigations, and with `ended` also others, the newest first."""
    return _read(connection, *(() if ended else (OPEN,)), limit=1000)


def list_due(connection: sa.Connection, now_us: int) -> list[Investigation]:
    """Return the open investigations that a driver may take now."""
    return _read(connection, OPEN, fences.is_due(investigations, now_us))


def list_notes(connection: sa.Connection, investigation_id: str, limit: int) -> tuple[Note, ...]:
    """Return the last lines of the log, the oldest first."""
    shown = [notes.c[field.name] for field in dataclasses.fields(Note)]
    chosen = sa.select(*shown).where(notes.c.investigation_id == investigation_id)
    rows = connection.execute(chosen.order_by(notes.c.id.desc()).limit(limit)).all()
    return tuple(Note(**row._mapping) for row in reversed(rows))


def _read(
    connection: sa.Connection, *where: sa.ColumnElement[bool], limit: int | None = None
) -> list[Investigation]:
    newest = (investigations.c.made_us.desc(), investigations.c.id)
    chosen = sa.select(investigations).where(*where).order_by(*newest).limit(limit)
    return [_investigation(dict(row._mapping)) for row in connection.execute(chosen)]


def _row(investigation: Investigation) -> dict[str, Any]:
    document = dataclasses.asdict(investigation)
    row = {name: document.pop(name) for name in COLUMNS & document.keys()}
    return {**row, "progress": document}


def _investigation(row: dict[str, Any]) -> Investigation:
    return decoding.decode(Investigation, row | row.pop("progress"))
