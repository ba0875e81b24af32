"""Systemd units that run overnight without root: `record`, `agent`, `serve`.

A unit is a file of unit_files/ with the settings that units share in place of @HOST_ACCESS@ and @HARDENING@.
Secrets come from files (LoadCredential=, EnvironmentFile=): every user can read arguments.
"""

from __future__ import annotations

import pathlib
import re
import sys
from collections.abc import Mapping, Sequence

from overnight import errors

FILES = pathlib.Path(__file__).with_name("unit_files")
# By the command that prints it.
UNITS = {
    "record": "overnight.service",
    "agent": "overnight-agent.service",
    "serve": "overnight-server.service",
}
# Folders of this installation that the unit's user must be able to read.
FOLDERS = (pathlib.Path(sys.base_prefix), pathlib.Path(sys.prefix), FILES.parent)
# Hidden by ProtectHome= and PrivateTmp=.
HIDDEN = frozenset(map(pathlib.Path, ("/home", "/root", "/run/user", "/tmp", "/var/tmp")))  # noqa: S108 - that the unit hides


def render(
    name: str,
    arguments: Sequence[str] = (),
    secrets: Mapping[str, str] | None = None,
    writable: Sequence[str] = (),
    *,
    python: str = "",
) -> str:
    """Return the unit of a command, with more arguments of that command.

    `secrets` maps options to files that only root can read; the command gets a copy that only it can read.
    A file without a folder is one of /etc/credstore, and may be missing. `writable` are folders that the unit may
    write to, besides its data home. `python` is the interpreter of another installation than this one; raise
    CannotError if the unit's user could not run this one.
    """
    if not python:
        _need_access()
    files = {option.lstrip("-"): file for option, file in (secrets or {}).items()}
    words = [_quote(word) for word in arguments] + [f"--{key} %d/{key}" for key in files]
    # systemd reads the rest of LoadCredential= as it is, and words of ReadWritePaths= without \x escapes.
    settings = [f"LoadCredential={key}:{_path(files[key])}\n" for key in files]
    settings += [
        "ReadWritePaths=" + re.sub(r"[\s\\\"']", r"\\\g<0>", _path(folder)) + "\n"
        for folder in writable
    ]
    values = {
        "@PROGRAM@": f"{_quote(python or sys.executable)} -m overnight",
        "@ARGUMENTS@": "".join(f" {word}" for word in words),
        "@FILES@\n": "".join(settings),
        "@HOST_ACCESS@\n": (FILES / "host_access.conf").read_text(),
        "@HARDENING@\n": (FILES / "hardening.conf").read_text(),
    }
    # In one pass: an argument may contain @.
    text = (FILES / f"{name}.service").read_text()
    return re.sub("|".join(values), lambda match: values[match[0]], text)


def _need_access() -> None:
    for folder in FOLDERS:
        for path in (folder, *folder.parents):
            if path in HIDDEN or not path.stat().st_mode & 0o001:
                raise errors.CannotError(
                    f"a unit cannot run the installation in {folder}",
                    why=f"it runs as another user, who cannot access {path}",
                    todo="sudo python3 -m venv /opt/overnight && sudo /opt/overnight/bin/pip install .",
                )


def read_timer(name: str) -> str:
    """Return the timer that starts the unit of a command."""
    return (FILES / f"{name}.timer").read_text()


def _path(path: str) -> str:
    if not path.isprintable() or path != path.strip():
        raise errors.UsageError(
            f"a unit cannot name {path!r}",
            why="the path has a control character, or a space at one end",
            todo="rename it",
        )
    return path.replace("%", "%%")


def _quote(word: str) -> str:
    r"""Return a word as systemd reads it: no space, quote, specifier, variable or separator.

    >>> _quote("/opt/my 100%/python"), _quote("$HOME"), _quote("")
    ('/opt/my\\x20100%%/python', '$$HOME', '""')
    """
    escaped = re.sub(
        r"[\s\\\"';\x00-\x1f\x7f]",
        lambda match: "".join(f"\\x{byte:02x}" for byte in match[0].encode()),
        word,
    )
    return escaped.replace("%", "%%").replace("$", "$$") or '""'
