"""The credential of an agent: made here, stored before the server learns it, and replaced each week.

HOME/uplink/credential has `credential`, the time it was made, and `next` while it is being replaced: until the server
has confirmed the next one, it accepts this one. `candidate` is one that the server is to learn with a token.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import pathlib
from typing import Any

from overnight import errors, http_client
from overnight.model import files, times

ROTATE_US = 7 * 86_400_000_000
ENROL, ROTATE = "/api/v1/agents/enrol", "/api/v1/agents/rotate"


class Credentials:
    """Sets the bearer of a client."""

    def __init__(self, folder: pathlib.Path, client: http_client.Client) -> None:
        self._path = folder / "credential"
        self._client = client
        self._stored = self._read()
        client.bearer = str(self._stored.get("credential", ""))

    @property
    def enrolled(self) -> bool:
        return "credential" in self._stored

    def enrol(self, token: str, host: str) -> None:
        """Exchange a token for a credential; after a lost answer the same two are sent again.

        A credential that is there stays until the server has confirmed the new one.
        """
        if "candidate" not in self._stored:
            self._write({**self._stored, "candidate": _make()})
        fresh = str(self._stored["candidate"])
        sent = {"token": token, "credential": fresh, "host": host}
        before, self._client.bearer = self._client.bearer, ""
        try:
            self._client.ask("POST", ENROL, sent, repeatable=True)
        except BaseException:
            self._client.bearer = before
            raise
        self._replace(fresh)

    def is_due(self) -> bool:
        """Return whether to replace it: after a week, or if that was begun before."""
        age_us = times.now_us() - int(self._stored.get("made_us", 0))
        return self.enrolled and ("next" in self._stored or age_us > ROTATE_US)

    def rotate(self) -> None:
        if "next" not in self._stored:
            self._write({**self._stored, "next": _make()})
        fresh = str(self._stored["next"])
        self._client.ask("POST", ROTATE, {"credential": fresh}, repeatable=True)
        self._replace(fresh)

    def use_next(self) -> bool:
        """Try the next credential where the server refuses this one; return whether there is one to try."""
        known = (str(self._stored.get("credential", "")), str(self._stored.get("next", "")))
        is_first = bool(known[1]) and self._client.bearer == known[0]
        self._client.bearer = known[is_first]
        return is_first

    def confirm(self) -> None:
        """The server took the credential."""
        if self._client.bearer == self._stored.get("next"):
            self._replace(self._client.bearer)

    def _replace(self, fresh: str) -> None:
        self._write({"credential": fresh, "made_us": times.now_us()})
        self._client.bearer = fresh

    def _read(self) -> dict[str, Any]:
        try:
            stored = json.loads(self._path.read_bytes())
        except FileNotFoundError:
            return {}
        except (OSError, ValueError) as error:
            todo = f"remove it, and enrol again with a new token: rm {self._path}"
            raise errors.unreadable(self._path, error, todo) from error
        return stored if isinstance(stored, dict) else {}

    def _write(self, stored: dict[str, Any]) -> None:
        files.write_atomically(self._path, json.dumps(stored), mode=0o600)
        self._stored = stored


def _make() -> str:
    """Return 256 random bits as text, like secrets.token_urlsafe, which imports more."""
    return base64.urlsafe_b64encode(os.urandom(32)).rstrip(b"=").decode("ascii")


def forget_token(file: str) -> None:
    """Remove a token's file after its use; it is worthless then."""
    if file:
        with contextlib.suppress(OSError):
            pathlib.Path(file).unlink()
