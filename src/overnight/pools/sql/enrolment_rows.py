"""Rows of enrolments: hashes of bootstrap tokens and of the credentials that replace them."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from overnight.database import column_types, statements
from overnight.pools.sql import schema

enrolments = schema.enrolments


def insert(connection: sa.Connection, member_id: str, token: str, expires_us: int) -> None:
    connection.execute(
        enrolments.insert().values(
            member_id=member_id, token_hash=column_types.hash_secret(token), expires_us=expires_us
        )
    )


def find_by_token(connection: sa.Connection, token: str) -> sa.Row[Any] | None:
    """Read and lock the enrolment of a bootstrap token."""
    chosen = sa.select(enrolments).where(enrolments.c.token_hash == column_types.hash_secret(token))
    return connection.execute(chosen.with_for_update()).first()


def use_token(connection: sa.Connection, member_id: str, credential: str, now_us: int) -> bool:
    """Exchange the token for the credential; False if it was used before."""
    used = {"used_us": now_us, "credential_hash": column_types.hash_secret(credential)}
    unused = enrolments.c.used_us.is_(None)
    return statements.update(enrolments, connection, member_id, unused, **used)


def is_expired(connection: sa.Connection, member_id: str, now_us: int) -> bool:
    """Whether the member's token has expired without being used."""
    chosen = sa.select(enrolments.c.member_id).where(
        enrolments.c.member_id == member_id,
        enrolments.c.used_us.is_(None),
        enrolments.c.expires_us <= now_us,
    )
    return connection.execute(chosen).scalar() is not None


def find_member_id(connection: sa.Connection, credential: str) -> str | None:
    """Return the member that has this credential."""
    chosen = sa.select(enrolments.c.member_id).where(
        enrolments.c.credential_hash == column_types.hash_secret(credential)
    )
    member_id = connection.execute(chosen).scalar()
    return None if member_id is None else str(member_id)
