"""Where overnight keeps its data: `--home`, `OVERNIGHT_HOME`, else the XDG data folder."""

from __future__ import annotations

import os
import pathlib

from overnight import errors

__all__ = ["data_home", "need_writable"]


def data_home(chosen: pathlib.Path | None = None) -> pathlib.Path:
    """The data home; it is not created here."""
    if chosen is not None:
        return chosen
    if named := os.environ.get("OVERNIGHT_HOME"):
        return pathlib.Path(named)
    base = os.environ.get("XDG_DATA_HOME")
    # XDG: a relative path there is to be ignored.
    if base and pathlib.Path(base).is_absolute():
        return pathlib.Path(base) / "overnight"
    return pathlib.Path("~/.local/share/overnight").expanduser()


def need_writable(home: pathlib.Path) -> None:
    """Before anything is done that is to be written down there; makes it where it is not."""
    why = "it is not ours to write to, or the file system is read-only"
    try:
        home.mkdir(parents=True, exist_ok=True)
        if os.access(home, os.W_OK | os.X_OK):
            return
    except OSError as error:
        why = str(error)
    raise errors.MissingPermissionError(
        f"nothing can be written in the data home {home}",
        why=why,
        todo="choose a folder of yours: overnight --home DIR, or OVERNIGHT_HOME",
    )
