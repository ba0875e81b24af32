"""Rollups that the server does not have yet: lines in files, within a budget; the oldest are dropped first."""

from __future__ import annotations

import contextlib
import os
import pathlib

from overnight.model import files

FILE_BYTES = 256 << 10
MAX_WAITING = 120  # lines in memory while the disk is full: an hour

Place = tuple[int, int]  # number of a file, and the bytes of it that the server has


class RollupSpool:
    def __init__(self, folder: pathlib.Path, budget_bytes: int, place: Place = (0, 0)) -> None:
        self.place = place
        self.lost = 0  # lines that were dropped
        self._folder = folder
        self._budget = budget_bytes
        self._waiting: list[bytes] = []
        self._last = max((place[0], *self._numbers()))

    def add(self, line: bytes) -> None:
        """Append a line; on a full disk it waits in memory."""
        self._waiting.append(line + b"\n")
        surplus = len(self._waiting) - MAX_WAITING
        if surplus > 0:
            del self._waiting[:surplus]
            self.lost += surplus
        with contextlib.suppress(OSError):
            self._trim()
            last = self._last + (self._size(self._last) >= FILE_BYTES)
            files.append_lines(self._path(last), self._waiting)
            self._last = last
            self._waiting.clear()

    def read(self, max_bytes: int) -> tuple[list[bytes], Place]:
        """Return the oldest lines, and the place behind them."""
        while True:
            number, offset = self.place
            try:
                with self._path(number).open("rb") as file:
                    file.seek(offset)
                    data = file.read(max_bytes)
                    if data and b"\n" not in data:
                        data += file.readline()
            except FileNotFoundError:
                data = b""
            except OSError:
                return [], self.place
            data = data[: data.rfind(b"\n") + 1]
            if data or number >= self._last:
                return data.splitlines(), (number, offset + len(data))
            with contextlib.suppress(OSError):
                self._path(number).unlink(missing_ok=True)
            self.place = (number + 1, 0)

    def read_last(self) -> bytes:
        """Return the newest line, also if the server has it."""
        for number in reversed(self._numbers()):
            with contextlib.suppress(OSError):
                if lines := self._path(number).read_bytes().rpartition(b"\n")[0].splitlines():
                    return lines[-1]
        return b""

    def commit(self, place: Place) -> None:
        """The server has all lines up to there."""
        self.place = place

    def _numbers(self) -> list[int]:
        with contextlib.suppress(OSError):
            names = [name[8:-6] for name in os.listdir(self._folder) if name.startswith("rollups-")]  # noqa: PTH208 - short
            return sorted(int(name) for name in names if name.isdigit())
        return []

    def _path(self, number: int) -> pathlib.Path:
        return self._folder / f"rollups-{number}.jsonl"

    def _size(self, number: int) -> int:
        try:
            return self._path(number).stat().st_size
        except FileNotFoundError:
            return 0

    def _trim(self) -> None:
        numbers = self._numbers()
        used = sum(map(self._size, numbers))
        for number in numbers[:-1]:
            if used <= self._budget - FILE_BYTES:
                return
            path = self._path(number)
            used -= self._size(number)
            if number >= self.place[0]:
                begin = self.place[1] if number == self.place[0] else 0
                self.lost += path.read_bytes()[begin:].count(b"\n")
                self.place = (number + 1, 0)
            path.unlink()
