"""`overnight token`."""

from __future__ import annotations

import dataclasses
import io
from typing import TYPE_CHECKING, BinaryIO, Literal

from overnight.interfaces.cli import files, local_time, pool_options, session, terminal
from overnight.model import times

if TYPE_CHECKING:
    from overnight.model.control_plane import Token

ORDER = 49
WHY = "Reason, for the audit log."


def create(
    current: session.Session,
    where: pool_options.Pools,
    role: Literal["viewer", "operator", "admin", "agent"] = session.option(..., "What the token allows; agent: enrol one host.", "ROLE"),
    name: str = session.option("", "Who uses it, for the audit log. Default: a new name.", "NAME"),
    host: str = session.option("", "With --role agent: the only host that it enrols.", "NAME"),
    assistant: bool = session.flag("People confirm what it asks for, where that is destructive or costly."),
    expires: str = session.option("", "Lifetime. Default: 90d, of an agent's token 1d.", "DURATION"),
    why: str = session.option("", WHY, "TEXT"),
    file: files.FileOption = None,
) -> None:  # fmt: skip
    """Create a token, and print it once.

    With -o, write it to a file that only its owner may read. The command writes to the database directly: no server has
    to run. A token of the role agent enrols one host, once.
    """
    from overnight.app import tokens
    from overnight.model.control_plane import Role

    seconds = times.parse_duration(expires) if expires else None
    store, by = tokens.open_tokens(where), tokens.local_user()
    created: list[Token] = []

    def write(out: BinaryIO) -> None:  # with -o only where the file could be opened
        created.append(tokens.create(store, Role(role), by=by, name=name, host=host, assistant=assistant, seconds=seconds, why=why))  # fmt: skip
        out.write(f"{created[0].text}\n".encode())

    if file is None:
        write(io.BytesIO())
    else:
        files.deliver(write, file)
    token = dataclasses.replace(created[0], text="" if file else created[0].text)
    if not current.printed_json(tokens.document(token)):
        until = local_time.format_instant(token.expires_us)
        note = f"token {token.id} for {token.name}: {_kind(token)}, until {until}; it is not shown again"
        terminal.print_line(current.notes(), note)
        terminal.echo(token.text, nl=bool(token.text))


def _kind(token: Token) -> str:
    return f"{token.role}, assistant" if token.assistant else token.role


def list_(current: session.Session, where: pool_options.Pools) -> None:
    """List tokens, without their text."""
    from overnight.app import tokens

    found = tokens.open_tokens(where).list()
    if current.printed_json(tokens.document(*found)):
        return
    rows = [
        [t.id, t.name, _kind(t), t.host, local_time.cell(t.expires_us), tokens.state(t)]
        for t in found
    ]
    headings = ["token", "name", "role", "host", "expires", "state"]
    terminal.echo_columns(headings, rows, "no tokens")


def revoke(
    current: session.Session,
    where: pool_options.Pools,
    token: str = session.argument(..., "Id of the token, as `overnight token list` shows it.", "TOKEN"),
    why: str = session.option("", WHY, "TEXT"),
) -> None:  # fmt: skip
    """Revoke a token at once."""
    from overnight.app import tokens

    tokens.open_tokens(where).revoke(token, by=tokens.local_user(), why=why)
    if not current.printed_json(tokens.document()):
        terminal.print_line(current.console(), f"revoked token {token}")


register = session.group(
    "token",
    "Manage tokens: who may ask, and which hosts may enrol.",
    "Fleet",
    "create --role admin",
    ("create", pool_options.takes_pools(create), "--role viewer --name grafana"),
    ("list", pool_options.takes_pools(list_), ""),
    ("revoke", pool_options.takes_pools(revoke), "4f1a9c20"),
    scope=session.Scope.HOME,
)
