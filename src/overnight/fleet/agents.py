"""How agents enrol and prove who they are: a single-use token, then a credential of their own.

The agent proposes its credential, so that it can repeat a request whose answer was lost. A new credential and
the old one are both valid until the new one is used.
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

from overnight import errors
from overnight.database import column_types
from overnight.fleet import context, recent, tokens
from overnight.fleet.sql import audit_rows, host_rows, rollup_rows, token_rows, window_rows
from overnight.model import uplink
from overnight.model.control_plane import AgentIdentity, Role

if TYPE_CHECKING:
    from overnight.database import engine

KNOWN_SECONDS = 600.0  # longer than the interval of reports
ASK = "ask an administrator: `overnight token create --role agent --host NAME`"


class Agents:
    def __init__(self, control: context.Context) -> None:
        self._control = control
        self._database = control.database
        self._known: recent.Recent[AgentIdentity] = recent.Recent(KNOWN_SECONDS)

    def enrol(self, token: str, credential: str, host: str) -> AgentIdentity:
        """Exchange a token for a credential, once; the same request again has the same answer."""
        if not uplink.HOST.fullmatch(host) or not uplink.CREDENTIAL.fullmatch(credential):
            raise errors.UsageError(
                "the host name or the credential is malformed",
                why="a host name has letters, digits, _ . and -; a credential has 32 to 128 characters",
                todo="check the name of the host: hostnamectl",
            )
        now, key = self._control.clock(), column_types.hash_secret(credential)
        with self._database.write("enrol") as connection:
            known = tokens.find(connection, token, lock=True)
            if known is None or known.role is not Role.AGENT or known.revoked_us is not None:
                raise _refused("it is unknown, revoked, or not a token for agents")
            if known.used_us is not None:
                enrolled = token_rows.find_credential(connection, key)
                if known.credential_hash != key or enrolled is None or enrolled.name != host:
                    raise _refused("it was used before, and enrols one host once")
                return AgentIdentity(enrolled.host_id, host, key)  # the first answer was lost
            if now >= known.expires_us:
                raise _refused("it has expired")
            if known.host not in ("", host):
                raise _refused(f"it is for host {known.host}")
            host_id = self._host_id(connection, host, known.host, now)
            token_rows.use(connection, known.id, credential, now)
            token_rows.delete_credentials(connection, host_id)
            if not token_rows.add_credential(connection, host_id, credential, now, used=True):
                raise _taken()
            audit_rows.add(connection, now, f"token {known.id}", "host.enrol", host)
        return AgentIdentity(host_id, host, key)

    def _host_id(self, connection: engine.Connection, host: str, bound: str, now: int) -> str:
        """Return the id of a new host, or of a known one that the token is for."""
        new = secrets.token_hex(8)
        host_id = host_rows.insert(connection, new, host, now)
        if host_id != new and bound != host:
            raise errors.ConflictError(
                f"host {host} is already enrolled",
                why="a token for any host enrols new names only, so that no host can take the name of another",
                todo=ASK.replace("NAME", host),
            )
        return host_id

    def rotate(self, who: AgentIdentity, credential: str) -> None:
        """Add a credential; the current one is valid until the new one is used."""
        if not uplink.CREDENTIAL.fullmatch(credential):
            raise errors.UsageError(
                "the credential is malformed",
                why="it has 32 to 128 letters, digits, - and _",
                todo="update the agent",
            )
        with self._database.write("rotate") as connection:
            if host_rows.lock(connection, who) is None:
                raise unknown_credential()
            now = self._control.clock()
            if not token_rows.add_credential(connection, who.host_id, credential, now, used=False):
                raise _taken()

    def authenticate(self, credential: str) -> AgentIdentity | None:
        """Return the host that has a credential; the first use of a new one removes the old one.

        It may have been revoked since it was last asked for: every operation checks it once more.
        """
        return self._known.get(credential, self._find)

    def _find(self, credential: str) -> AgentIdentity | None:
        key = column_types.hash_secret(credential)
        with self._database.read() as connection:
            row = token_rows.find_credential(connection, key)
        if row is None:
            return None
        who = AgentIdentity(row.host_id, row.name, key)
        if row.used_us is None:
            with self._database.write("settle credential") as connection:
                if not token_rows.settle_credential(connection, key, who, self._control.clock()):
                    return None
        return who

    def revoke(self, host: str, *, by: str = "", why: str = "") -> None:
        """Refuse the host's agent from now on; what it sent stays."""
        now = self._control.clock()
        with self._database.write_always("revoke agent") as connection:
            host_id = context.find_host(connection, host, lock=True)
            token_rows.delete_credentials(connection, host_id)
            audit_rows.add(connection, now, by, "host.revoke", host, why)
        self._known.clear()

    def forget(self, host: str, *, by: str = "", why: str = "") -> None:
        """Delete a host with everything that it sent."""
        now, blobs = self._control.clock(), self._control.blobs
        with self._database.write("forget host") as connection:
            host_id = context.find_host(connection, host, lock=True)
            held = window_rows.list_held(connection, host_id)
            gone = window_rows.drop(connection, held, now)
            names = rollup_rows.list_files(connection, host_id)
            host_rows.delete(connection, host_id)
            audit_rows.add(connection, now, by, "host.forget", host, why)
        self._known.clear()
        blobs.remove(gone)
        blobs.forget(host_id)
        for name in names:
            (blobs.folder / name).unlink(missing_ok=True)


def check(connection: engine.Connection, who: AgentIdentity) -> None:
    """Raise UnauthenticatedError for a credential that is not valid any more."""
    if token_rows.find_credential(connection, who.credential_hash) is None:
        raise unknown_credential()


def unknown_credential() -> errors.UnauthenticatedError:
    return errors.UnauthenticatedError(
        "the credential of this agent is not valid",
        why="it was revoked, replaced, or its host was removed",
        todo=f"enrol the host again; {ASK}",
    )


def _refused(why: str) -> errors.UnauthenticatedError:
    return errors.UnauthenticatedError("the enrolment token is not valid", why=why, todo=ASK)


def _taken() -> errors.ConflictError:
    return errors.ConflictError(
        "the credential belongs to another host",
        why="each host has a credential of its own; an image may hold a copied one",
        todo="remove the stored credential of this host, and enrol it again",
    )
