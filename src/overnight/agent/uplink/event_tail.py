"""Follow the events that are appended to the files of a ring; a poll costs a few stat(2) calls.

Lines are passed on as JSON documents of schema event-1: `model.event` imports dataclasses.
"""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
from typing import Any

from overnight.model import protocol

MAX_BYTES = 96 << 10  # of a batch; a line has at most 64 KiB

Event = dict[str, Any]
Places = dict[str, list[int]]  # by file: its inode, and the bytes of it that were read


class EventTail:
    """`places` is up to where the server has the events; `take` returns those behind it."""

    def __init__(self, folder: pathlib.Path, places: Places) -> None:
        self.places = {name: list(place) for name, place in places.items()}
        self._folder = folder
        self._changed = 0
        self._names: list[str] = []

    def has_new(self) -> bool:
        with contextlib.suppress(OSError):
            return any(self._unread(name) for name in self._list_files())
        return False

    def take(self, limit: int) -> tuple[list[Event], Places]:
        """Return the next events, the last of each id, and the places behind them."""
        events: dict[str, Event] = {}
        places = {name: list(place) for name, place in self.places.items()}
        left, count = MAX_BYTES, 0
        with contextlib.suppress(OSError):  # too many open files: at the next poll
            for name in self._list_files():
                if left <= 0 or count >= limit:
                    break
                inode, offset = self._unread(name) or (0, -1)
                if offset < 0:
                    continue
                with (self._folder / name).open("rb") as file:
                    file.seek(offset)
                    data = file.read(left)
                lines = data[: data.rfind(b"\n") + 1].splitlines(keepends=True)[: limit - count]
                for line in lines:
                    offset += len(line)
                    if event := _parse(line):
                        events.pop(event["id"], None)
                        events[event["id"]] = event
                places[name] = [inode, offset]
                left -= len(data)
                count += len(lines)
        return list(events.values()), places

    def commit(self, places: Places) -> None:
        """The server has all events up to there."""
        self.places = {name: place for name, place in places.items() if name in self._names}

    def _list_files(self) -> list[str]:
        changed = self._folder.stat().st_mtime_ns
        if changed != self._changed:
            names = os.listdir(self._folder)  # noqa: PTH208 - each second
            self._names = sorted(n for n in names if n.startswith("events-") and n.endswith(".jsonl"))  # fmt: skip
            self._changed = changed
        return self._names

    def _unread(self, name: str) -> tuple[int, int] | None:
        """Return the inode of a file, and the place of its first unread byte; None: there is none."""
        try:
            status = (self._folder / name).stat()
        except OSError:
            return None
        inode, offset = self.places.get(name, (0, 0))
        # Written anew without an event that was removed: all are sent again.
        if inode != status.st_ino or offset > status.st_size:
            offset = 0
        return (status.st_ino, offset) if offset < status.st_size else None


def _parse(line: bytes) -> Event | None:
    try:
        event = json.loads(line)
    except (ValueError, RecursionError):
        return None  # cut off by a crash
    if not isinstance(event, dict) or not isinstance(event.get("id"), str) or not event["id"]:
        return None
    protocol.fit_event(event)
    return event
