"""Systemd units that run overnight without root: `record`, `agent`, `serve`.

A unit is its own file of unit_files/ with the settings that units share in place of @HOST_ACCESS@ and
@HARDENING@. Secrets come from files (LoadCredential=, EnvironmentFile=): every user can read arguments.
"""

from __future__ import annotations

import pathlib
import re
import sys
from collections.abc import Sequence

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


def render(name: str, arguments: Sequence[str] = ()) -> str:
    """Return the unit of a command for this installation, with more arguments of that command.

    Raise CannotError if the unit's user could not run it.
    """
    for folder in FOLDERS:
        for path in (folder, *folder.parents):
            if path in HIDDEN or not path.stat().st_mode & 0o001:
                raise errors.CannotError(
                    f"a unit cannot run the installation in {folder}",
                    why=f"it runs as another user, who cannot access {path}",
                    todo="sudo python3 -m venv /opt/overnight && sudo /opt/overnight/bin/pip install .",
                )
    return fill(name, sys.executable, arguments)


def fill(name: str, python: str, arguments: Sequence[str] = ()) -> str:
    """Return the unit of a command, run by the interpreter at `python`."""
    # One pass for the values: an argument may contain @.
    text = re.sub(
        r"^@([A-Z_]+)@\n",
        lambda match: (FILES / f"{match[1].lower()}.conf").read_text(),
        (FILES / f"{name}.service").read_text(),
        flags=re.MULTILINE,
    )
    values = {
        "@PROGRAM@": f"{_quote(python)} -m overnight",
        "@ARGUMENTS@": "".join(f" {_quote(word)}" for word in arguments),
    }
    return re.sub("|".join(values), lambda match: values[match[0]], text)


def _quote(word: str) -> str:
    r"""Return a word of a command line as ExecStart= reads it.

    >>> _quote("/opt/my 100%/python"), _quote("$HOME"), _quote("")
    ('/opt/my\\x20100%%/python', '$$HOME', '""')
    """
    escaped = re.sub(
        r"[\s\\\"';\x00-\x1f\x7f]",
        lambda match: "".join(f"\\x{byte:02x}" for byte in match[0].encode()),
        word,
    )
    return escaped.replace("%", "%%").replace("$", "$$") or '""'
