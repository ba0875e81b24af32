"""The data home: `--home`, `OVERNIGHT_HOME`, else the XDG data folder."""

from __future__ import annotations

import os
import pathlib

from overnight.model import data_home as checks


def data_home(chosen: pathlib.Path | None = None) -> pathlib.Path:
    """Return the absolute path of the data home, for processes with another folder, without creating it."""
    if chosen is not None:
        return chosen.absolute()
    if named := os.environ.get("OVERNIGHT_HOME"):
        return pathlib.Path(named).absolute()
    base = os.environ.get("XDG_DATA_HOME")
    # The XDG specification says to ignore a relative path.
    if base and pathlib.Path(base).is_absolute():
        return pathlib.Path(base) / "overnight"
    return pathlib.Path("~/.local/share/overnight").expanduser()


def is_readable(home: pathlib.Path) -> bool:
    """Return whether this user may read the data home; also where there is none yet."""
    try:
        home.stat()
    except OSError as error:  # the others are reported where it is used
        return not isinstance(error, PermissionError)
    return home.is_file() or os.access(home, os.R_OK | os.X_OK)


def need_writable(home: pathlib.Path) -> None:
    """Create the data home if needed; raise CannotError if it cannot be written, or others can write to it."""
    checks.prepare(home)


def need_private(home: pathlib.Path) -> None:
    """Raise CannotError if others can write to the data home, or could create it."""
    checks.check_way(home)
    if home.exists():
        checks.prepare(home)
