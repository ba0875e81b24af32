"""Rows of tokens, and of the credentials of agents: hashes of secrets."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from overnight.database import column_types, statements
from overnight.fleet.sql import schema
from overnight.model.control_plane import AgentIdentity, Token

tokens, credentials, hosts = schema.tokens, schema.credentials, schema.hosts


def insert(connection: sa.Connection, token: Token, secret: str) -> None:
    values = {name: value for name, value in vars(token).items() if name in tokens.c}
    connection.execute(
        tokens.insert().values(values | {"secret_hash": column_types.hash_secret(secret)})
    )


def find(connection: sa.Connection, token_id: str, *, lock: bool = False) -> sa.Row[Any] | None:
    chosen = sa.select(tokens).where(tokens.c.id == token_id)
    return connection.execute(chosen.with_for_update() if lock else chosen).first()


def as_token(row: sa.Row[Any]) -> Token:
    shown = {n: value for n, value in row._mapping.items() if not n.endswith("_hash")}
    return Token(**shown | {"assistant": bool(row.assistant)})  # NULL: of an older version


def list_all(connection: sa.Connection) -> tuple[Token, ...]:
    """Return all tokens, the newest first, without hashes."""
    chosen = sa.select(tokens).order_by(tokens.c.created_us.desc(), tokens.c.id)
    return tuple(as_token(row) for row in connection.execute(chosen))


def use(connection: sa.Connection, token_id: str, credential: str, now_us: int) -> None:
    """Exchange a locked token for a credential."""
    used = {"used_us": now_us, "credential_hash": column_types.hash_secret(credential)}
    statements.update(tokens, connection, token_id, **used)


def revoke(connection: sa.Connection, token_id: str, now_us: int) -> None:
    """Revoke a token; one that is revoked keeps the time."""
    unrevoked = tokens.c.revoked_us.is_(None)
    statements.update(tokens, connection, token_id, unrevoked, revoked_us=now_us)


def delete_expired(connection: sa.Connection, before_us: int) -> None:
    connection.execute(tokens.delete().where(tokens.c.expires_us < before_us))


def add_credential(
    connection: sa.Connection, host_id: str, credential: str, now_us: int, *, used: bool
) -> bool:
    """Add a credential, with all unused ones of the host removed; False if another host has it."""
    key = column_types.hash_secret(credential)
    unused = sa.and_(
        credentials.c.host_id == host_id, credentials.c.used_us.is_(None), credentials.c.hash != key
    )
    connection.execute(credentials.delete().where(unused))
    values = {"hash": key, "host_id": host_id, "created_us": now_us, "used_us": now_us if used else None}  # fmt: skip
    statements.add_missing(connection, credentials, values)
    chosen = sa.select(credentials.c.host_id).where(credentials.c.hash == key)
    return connection.execute(chosen).scalar() == host_id


def find_credential(connection: sa.Connection, key: str) -> sa.Row[Any] | None:
    """Return hash, host_id, used_us and the host's name, by hash."""
    chosen = sa.select(credentials, hosts.c.name).join(hosts).where(credentials.c.hash == key)
    return connection.execute(chosen).first()


def settle_credential(connection: sa.Connection, key: str, who: AgentIdentity, now_us: int) -> bool:
    """Mark a credential as used: the others of its host are removed. False if it is gone."""
    used = statements.update(credentials, connection, key, used_us=now_us)
    if used:
        others = sa.and_(credentials.c.host_id == who.host_id, credentials.c.hash != key)
        connection.execute(credentials.delete().where(others))
    return used


def delete_credentials(connection: sa.Connection, host_id: str) -> None:
    connection.execute(credentials.delete().where(credentials.c.host_id == host_id))
