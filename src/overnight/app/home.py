"""Where overnight keeps its data: `--home`, `OVERNIGHT_HOME`, else the XDG data folder."""

from __future__ import annotations

import os
import pathlib

__all__ = ["data_home"]


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
