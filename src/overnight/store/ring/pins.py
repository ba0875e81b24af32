"""Windows of a ring that stay whatever budget and age say: the spool's idea, and its files."""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import re

from overnight import errors
from overnight.store.ring import layout

__all__ = ["Pin", "Pins"]

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


@dataclasses.dataclass(frozen=True)
class Pin:
    """A window that stays; wall clock, µs."""

    id: str
    begin_us: int
    end_us: int
    why: str


class Pins:
    """The pinned windows of one host."""

    def __init__(self, home: pathlib.Path, host: str) -> None:
        self.folder = layout.host_folder(home, host) / "pins"

    def pin(self, pin_id: str, begin_us: int, end_us: int, why: str) -> None:
        """Keep a window; the same id again replaces it."""
        path = self._path(pin_id)
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        entry = {"begin_ns": begin_us * 1000, "end_ns": end_us * 1000, "why": why}
        fresh = path.with_suffix(".new")
        with fresh.open("w") as file:
            file.write(json.dumps(entry))
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(path)

    def unpin(self, pin_id: str) -> bool:
        """Let a window go; whether there was one."""
        try:
            self._path(pin_id).unlink()
        except FileNotFoundError:
            return False
        return True

    def pins(self) -> tuple[Pin, ...]:
        """Every pinned window; a pin that cannot be read pins everything, for nothing is worse."""
        found = []
        for path in sorted(self.folder.glob("*.json")):
            try:
                entry = json.loads(path.read_text())
                begin, end = int(entry["begin_ns"]) // 1000, -(-int(entry["end_ns"]) // 1000)
                pin = Pin(path.stem, begin, end, str(entry["why"]))
            except FileNotFoundError:
                continue
            except (OSError, ValueError, KeyError, TypeError, OverflowError, RecursionError):
                pin = Pin(path.stem, 0, 1 << 62, "its file cannot be read: everything is kept")
            found.append(pin)
        return tuple(found)

    def _path(self, pin_id: str) -> pathlib.Path:
        if not NAME.fullmatch(pin_id):
            raise errors.UsageError(
                f"{pin_id!r} cannot name a pin",
                why="it becomes a file name",
                todo="use letters, digits, dots, dashes and underscores",
            )
        return self.folder / f"{pin_id}.json"
