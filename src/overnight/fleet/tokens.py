"""Tokens of people, tools, and new hosts: `ovn_ID_SECRET`. Only the SHA-256 of the secret is stored."""

from __future__ import annotations

import dataclasses
import hmac
import re
import secrets
from typing import TYPE_CHECKING, Any

from overnight import errors
from overnight.database import column_types
from overnight.fleet import context, recent
from overnight.fleet.sql import audit_rows, token_rows
from overnight.model import uplink
from overnight.model.control_plane import Principal, Role, Token
from overnight.model.text import printable

if TYPE_CHECKING:
    from overnight.database import engine

KNOWN_SECONDS = 5.0  # revocation takes effect on every server within this time
FORM = re.compile(r"ovn_([0-9a-f]{12})_([0-9a-f]{64})")


class Tokens:
    def __init__(self, control: context.Context) -> None:
        self._control = control
        self._known: recent.Recent[Token] = recent.Recent(KNOWN_SECONDS)

    def create(
        self, role: Role, *, name: str, expires_us: int, host: str = "", assistant: bool = False,
        by: str = "", why: str = "",
    ) -> Token:  # fmt: skip
        """Create a token; its `text` is not stored and cannot be shown again."""
        now = self._control.clock()
        if expires_us <= now:
            raise errors.UsageError(
                "the token would expire in the past",
                why="it expires at a time after now",
                todo="choose a later time: --expires 90d",
            )
        if host and (role is not Role.AGENT or not uplink.HOST.fullmatch(host)):
            raise errors.UsageError(
                f"--host {printable(host, limit=80)} is not valid here",
                why="only a token of the role agent is for one host, whose name has letters, digits, _ . and -",
                todo="overnight token create --role agent --host NAME",
            )
        if assistant and role is Role.AGENT:
            raise errors.UsageError(
                "--assistant and --role agent are mutually exclusive",
                why="an agent's token enrols a host",
                todo="overnight token create --role operator --assistant",
            )
        secret = secrets.token_hex(32)
        token_id = secrets.token_hex(6)
        # Names own reservations: tokens without one must not share them.
        fields = (
            token_id,
            role,
            printable(name, limit=100) or f"{role}-{token_id}",
            now,
            expires_us,
        )
        token = Token(*fields, created_by=printable(by, limit=100), host=host, assistant=assistant)
        with self._control.database.write("create token") as connection:
            token_rows.insert(connection, token, secret)
            target = f"{token.id} {token.name} ({role}{', assistant' * assistant})"
            audit_rows.add(connection, now, by, "token.create", target, why)
        return dataclasses.replace(token, text=f"ovn_{token.id}_{secret}")

    def list(self) -> tuple[Token, ...]:
        """Return all tokens, the newest first, without their secrets."""
        with self._control.database.read() as connection:
            return token_rows.list_all(connection)

    def revoke(self, token_id: str, *, by: str = "", why: str = "") -> None:
        """Revoke a token; other servers refuse it within seconds. Hosts that it enrolled stay."""
        now = self._control.clock()
        with self._control.database.write_always("revoke token") as connection:
            if token_rows.find(connection, printable(token_id)) is None:
                context.refuse_unknown("token", token_id, "overnight token list")
            token_rows.revoke(connection, token_id, now)
            audit_rows.add(connection, now, by, "token.revoke", token_id, why)
        self._known.clear()

    def authenticate(self, text: str) -> Principal | None:
        """Return who has a token; None for one that is unknown, expired, revoked, or an agent's."""
        token = self._known.get(text, self._find)
        if token is None or token.role is Role.AGENT or self._control.clock() >= token.expires_us:
            return None
        return Principal(token.id, token.name, token.role, token.assistant)

    def _find(self, text: str) -> Token | None:
        with self._control.database.read() as connection:
            row = find(connection, text)
        return token_rows.as_token(row) if row and row.revoked_us is None else None


def find(connection: engine.Connection, text: str, *, lock: bool = False) -> Any:
    """Return the row of a token's text, whatever its state; None if there is none."""
    match = FORM.fullmatch(text)
    row = token_rows.find(connection, match[1], lock=lock) if match else None
    if match is None or row is None:
        return None
    same = hmac.compare_digest(row.secret_hash, column_types.hash_secret(match[2]))
    return row if same else None
