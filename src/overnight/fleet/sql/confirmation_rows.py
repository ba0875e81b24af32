"""Rows of confirmations."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from overnight.database import statements
from overnight.fleet.sql import schema
from overnight.model import decoding
from overnight.model.confirmation import Confirmation, ConfirmationState, Effect

table = schema.confirmations
OPEN = (ConfirmationState.PENDING, ConfirmationState.CONFIRMED)
DECIDABLE = (*OPEN, ConfirmationState.DECLINED)


def insert(connection: sa.Connection, made: Confirmation, subject: str, seen: str) -> None:
    connection.execute(table.insert().values(**_values(made), subject=subject, seen=seen))


def _values(made: Confirmation) -> dict[str, Any]:
    return {**vars(made), "effect": vars(made.effect), "about": made.effect.about}


def find_of_call(
    connection: sa.Connection, caller: str, subject: str, now_us: int
) -> tuple[Confirmation, str] | None:
    """Lock the last request of a caller for the same call; return it and the digest of what was seen."""
    of_call = (table.c.caller == caller, table.c.subject == subject)
    # By the state first: a confirmed one precedes another that the same call made at the same moment.
    chosen = _select(now_us, *of_call, states=DECIDABLE).order_by(None).order_by(table.c.state)
    row = connection.execute(chosen.with_for_update()).first()
    return None if row is None else (_as_confirmation(row), str(row.seen))


def find_declined(
    connection: sa.Connection, asked: Confirmation, now_us: int
) -> Confirmation | None:
    """Return what was declined of callers of this name about the same object."""
    same = (table.c.caller_name == asked.caller_name, table.c.action == asked.action)
    about = (table.c.about == asked.effect.about, table.c.about != "")
    return _first(connection, _select(now_us, *same, *about, states=(ConfirmationState.DECLINED,)))


def find_by_code(connection: sa.Connection, code: str, now_us: int) -> Confirmation | None:
    """Lock the pending request that has a code."""
    is_pending = table.c.state == ConfirmationState.PENDING
    return _first(connection, _select(now_us, table.c.code == code, is_pending).with_for_update())


def find(connection: sa.Connection, confirmation_id: str) -> Confirmation | None:
    return _first(connection, sa.select(table).where(table.c.id == confirmation_id))


def _first(connection: sa.Connection, chosen: sa.Select[Any]) -> Confirmation | None:
    row = connection.execute(chosen).first()
    return None if row is None else _as_confirmation(row)


def list_open(connection: sa.Connection, now_us: int, caller: str = "") -> list[Confirmation]:
    """Return the open requests, the newest first, of one caller or of all."""
    chosen = _select(now_us, *([table.c.caller == caller] if caller else []))
    return [_as_confirmation(row) for row in connection.execute(chosen)]


def change(
    connection: sa.Connection,
    confirmation_id: str,
    before: ConfirmationState,
    **values: object,
) -> bool:
    """Change a request; False if it is not in the state `before` any more."""
    return statements.update(table, connection, confirmation_id, table.c.state == before, **values)


def delete_old(connection: sa.Connection, before_us: int) -> None:
    connection.execute(table.delete().where(table.c.expires_us < before_us))


def _select(
    now_us: int, *where: sa.ColumnElement[bool], states: tuple[ConfirmationState, ...] = OPEN
) -> sa.Select[Any]:
    valid = (table.c.state.in_(states), table.c.expires_us > now_us)
    return sa.select(table).where(*where, *valid).order_by(table.c.made_us.desc(), table.c.id)


def _as_confirmation(row: sa.Row[Any]) -> Confirmation:
    shown = {n: value for n, value in row._mapping.items() if n not in ("subject", "seen", "about")}
    return Confirmation(**{**shown, "effect": decoding.decode(Effect, row.effect)})
