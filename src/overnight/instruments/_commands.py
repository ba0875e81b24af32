"""A command of the host's administrator, whose lines are readings."""

from __future__ import annotations

import pathlib
from collections.abc import Iterator

from overnight import instruments
from overnight.model.instrument import Reading, ReadingKind
from overnight.model.text import printable

MAX_LINE = 1_900
CLEAN = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8"}


class LineReader:
    lost = 0

    def __init__(self, name: str) -> None:
        self._name = name

    def feed(self, line: bytes) -> Iterator[tuple[int, Reading]]:
        text = printable(line.rstrip(b"\r\n").decode("utf-8", "replace"), limit=MAX_LINE)
        if text:
            yield 0, Reading(0, ReadingKind.LINE, subject=self._name, text=text)


class Command(instruments.Instrument):
    """`argv` is run as it is written in /etc/overnight/agent.toml."""

    tool = ""

    def __init__(self, name: str, argv: tuple[str, ...]) -> None:
        self.name, self.argv = name, argv
        self.about = f"each line of: {' '.join(argv)}"

    def prepare(self, target: str, root: pathlib.Path = instruments.ROOT) -> instruments.Pipeline:  # noqa: ARG002 - it takes no target
        return instruments.Pipeline((self.argv,), LineReader(self.name), CLEAN, is_endless=False)
