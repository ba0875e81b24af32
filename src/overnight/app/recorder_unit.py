"""The systemd unit that records this host without root."""

from __future__ import annotations

import pathlib
import sys

from overnight import errors

TEMPLATE = pathlib.Path(__file__).with_name("overnight.service")
# Folders of this installation that the unit's user must be able to read.
FOLDERS = (pathlib.Path(sys.base_prefix), pathlib.Path(sys.prefix), TEMPLATE.parent)
# Hidden by ProtectHome= and PrivateTmp=.
HIDDEN = frozenset(map(pathlib.Path, ("/home", "/root", "/run/user", "/tmp", "/var/tmp")))  # noqa: S108 - that the unit hides


def render() -> str:
    """Return the unit for this installation; raise CannotError if its user could not run it."""
    for folder in FOLDERS:
        for path in (folder, *folder.parents):
            if path in HIDDEN or not path.stat().st_mode & 0o001:
                raise errors.CannotError(
                    f"a unit cannot run the installation in {folder}",
                    why=f"it runs as another user, who cannot access {path}",
                    todo="sudo python3 -m venv /opt/overnight && sudo /opt/overnight/bin/pip install .",
                )
    program = sys.executable.replace("%", "%%").replace(" ", r"\x20")
    return TEMPLATE.read_text().replace("@PYTHON@", program)
