"""Which control plane commands ask, and with which token: environment, file, ~/.config/overnight/server.toml.

A token is never an argument of a command, which other users can read in the list of processes.
"""

from __future__ import annotations

import dataclasses
import os
import pathlib
import tomllib
from typing import Any

from overnight import errors

URL, TOKEN = "OVERNIGHT_SERVER", "OVERNIGHT_TOKEN"
KNOWN = {"url": str, "token_file": str, "ca_file": str, "insecure": bool}
MAX_TOKEN_BYTES = 4096


@dataclasses.dataclass(frozen=True)
class Settings:
    url: str
    token: str = dataclasses.field(default="", repr=False)
    ca: pathlib.Path | None = None  # authorities to trust instead of the system's
    insecure: bool = False  # plain HTTP to another host


def config_file() -> pathlib.Path:
    base = os.environ.get("XDG_CONFIG_HOME", "")
    folder = pathlib.Path(base) if base.startswith("/") else pathlib.Path.home() / ".config"
    return folder / "overnight" / "server.toml"


def find_url() -> str:
    """Return the server that the environment or the file names; '' for none."""
    return os.environ.get(URL, "") or str(_read_file().get("url", ""))


def read_settings(url: str, token_file: pathlib.Path | None = None) -> Settings:
    """Return how to reach a server; the file's token and authorities belong to the file's own URL."""
    stored = _read_file()
    own = stored if stored.get("url") == url else {}
    ca = pathlib.Path(own["ca_file"]).expanduser() if own.get("ca_file") else None
    file = token_file
    if file is None and not os.environ.get(TOKEN) and own.get("token_file"):
        file = pathlib.Path(own["token_file"]).expanduser()
    token = _check_token(os.environ.get(TOKEN, ""), TOKEN) if file is None else _read_token(file)
    return Settings(url, token, ca, bool(own.get("insecure", False)))


def _read_token(file: pathlib.Path) -> str:
    try:
        with file.open("rb") as source:
            text = source.read(MAX_TOKEN_BYTES + 1).decode("ascii")
    except (OSError, UnicodeDecodeError) as error:
        raise errors.unreadable(
            file, error, "name a file with a token: --token-file FILE"
        ) from None
    return _check_token(text or " ", str(file))


def _check_token(text: str, where: str) -> str:
    """Return a token, '' for none; raise CannotError for what cannot be one."""
    token = text.strip()
    wrong = not (token.isascii() and token.isprintable()) or " " in token
    if wrong or (text and not token) or len(token) > MAX_TOKEN_BYTES:
        raise errors.CannotError(
            f"{where} does not hold a token",
            why="a token is one word on one line",
            todo="write the token that an admin gave you there, and nothing else",
        )
    return token


def _read_file() -> dict[str, Any]:
    file = config_file()
    try:
        stored = tomllib.loads(file.read_text())
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise errors.unreadable(file, error, "correct or remove it") from error
    for name, value in stored.items():
        if name not in KNOWN or not isinstance(value, KNOWN[name]):
            raise errors.UsageError(
                f"{file} has an invalid {name!r}",
                why="the settings are url, token_file and ca_file (strings), and insecure (true or false)",
                todo="correct or remove it",
            )
    return stored
