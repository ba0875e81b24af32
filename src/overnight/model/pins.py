"""Windows of a recording that are kept whatever budget and age say: a JSON file each."""

from __future__ import annotations

import dataclasses
import json
import pathlib
import re

from overnight import errors
from overnight.model import files

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
EVER_NS = 1 << 63


@dataclasses.dataclass(frozen=True)
class Pin:
    """A pinned window; wall clock."""

    id: str
    begin_ns: int
    end_ns: int
    why: str

    @property
    def begin_us(self) -> int:
        return self.begin_ns // 1000

    @property
    def end_us(self) -> int:
        return -(-self.end_ns // 1000)


def _read_pin(path: pathlib.Path) -> Pin | None:
    try:
        entry = json.loads(path.read_text())
        return Pin(path.stem, int(entry["begin_ns"]), int(entry["end_ns"]), str(entry["why"]))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return Pin(path.stem, 0, EVER_NS, "its file cannot be read, so everything is kept")


class Pins:
    """The pins in one folder: of a host's ring, or of the profile spool."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder

    def pin(self, pin: Pin) -> None:
        """Keep a window; a pin of the same id is replaced."""
        path = self._path(pin.id)
        files.make_folder(self.folder)
        entry = {"begin_ns": pin.begin_ns, "end_ns": pin.end_ns, "why": pin.why}
        files.write_atomically(path, json.dumps(entry))

    def unpin(self, pin_id: str) -> bool:
        """Let a window go; return whether it was pinned."""
        path = self._path(pin_id)
        if is_pinned := path.exists():
            files.remove(path)
        return is_pinned

    def pins(self) -> tuple[Pin, ...]:
        """Every pin; an unreadable file pins everything, because losing evidence is worse than disk."""
        return tuple(filter(None, map(_read_pin, sorted(self.folder.glob("*.json")))))

    def _path(self, pin_id: str) -> pathlib.Path:
        if not NAME.fullmatch(pin_id):
            raise errors.UsageError(
                f"{pin_id!r} is not a valid pin name",
                why="the name becomes a file name",
                todo="use letters, digits, dots, dashes and underscores",
            )
        return self.folder / f"{pin_id}.json"
