"""The data home: `--home`, `OVERNIGHT_HOME`, else the XDG data folder."""

from __future__ import annotations

import os
import pathlib

from overnight import errors


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


def need_writable(home: pathlib.Path) -> None:
    """Create the data home if needed; raise MissingPermissionError if it cannot be written."""
    why = "you may not write to it, or the file system is read-only"
    try:
        home.mkdir(parents=True, exist_ok=True)
        if os.access(home, os.W_OK | os.X_OK):
            return
    except OSError as error:
        why = str(error)
    raise errors.MissingPermissionError(
        f"the data home {home} is not writable",
        why=why,
        todo="choose another folder with overnight --home DIR, or OVERNIGHT_HOME",
    )
