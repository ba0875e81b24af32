"""Results of scenes: a file of JSON lines that a killed run continues, and their table."""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import statistics
from collections.abc import Iterable
from typing import Any


@dataclasses.dataclass(frozen=True)
class Key:
    mechanism: str
    lookalike: bool
    seed: int
    load: int  # percent of the other cores

    @property
    def label(self) -> str:
        return f"{self.mechanism}{'-lookalike' if self.lookalike else ''}-{self.seed}-{self.load}"


@dataclasses.dataclass(frozen=True)
class Row(Key):
    """One run. `why` is set where there is no verdict: an obstacle, or no event."""

    host: str = ""
    why: str = ""
    event: bool = False
    program: str = ""
    expected: str = ""  # regular expression of the actor
    actor: str = ""
    actor_right: bool = False
    mechanism_found: str = ""
    mechanism_right: bool = False
    status: str = ""
    score: float = 0.0
    confidence: float = 0.0
    headline: str = ""
    chain: list[str] = dataclasses.field(default_factory=list)  # kinds, the root first
    gaps: dict[str, float] = dataclasses.field(default_factory=dict)
    functions: dict[str, float] = dataclasses.field(default_factory=dict)
    busy_before: float = 0.0
    seconds: float = 0.0
    problems: list[str] = dataclasses.field(default_factory=list)

    @property
    def key(self) -> Key:
        return Key(self.mechanism, self.lookalike, self.seed, self.load)


def append(path: pathlib.Path, row: Row) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab+") as file:
        if file.seek(0, os.SEEK_END):
            file.seek(-1, os.SEEK_END)
            if file.read(1) != b"\n":  # a run was killed while it wrote
                file.write(b"\n")
        file.write(json.dumps(dataclasses.asdict(row)).encode() + b"\n")
        file.flush()
        os.fsync(file.fileno())


def read(path: pathlib.Path) -> dict[Key, Row]:
    """Return the last row of each key; a truncated line does not count."""
    rows = {}
    for line in path.read_text().splitlines() if path.exists() else ():
        try:
            row = Row(**json.loads(line))
        except (ValueError, TypeError):
            continue
        rows[row.key] = row
    return rows


def format_table(rows: Iterable[Row]) -> str:
    """Return a Markdown table, a line per mechanism."""
    by_name: dict[str, list[Row]] = {}
    for row in rows:
        by_name.setdefault(row.mechanism, []).append(row)
    lines = [
        "| mechanism | runs | actor | mechanism | confidence | look-alikes told apart | not run |",
        "|---|--:|--:|--:|--:|--:|---|",
    ]
    lines += [_format_line(name, of_name) for name, of_name in sorted(by_name.items())]
    return "\n".join(lines)


def _format_line(name: str, rows: list[Row]) -> str:
    scenes = [row for row in rows if row.event and not row.lookalike]
    others = [row for row in rows if row.event and row.lookalike]
    confidence = statistics.median(row.confidence for row in scenes) if scenes else None
    why = "; ".join(dict.fromkeys(row.why for row in rows if row.why))
    cells: tuple[Any, ...] = (
        name,
        len(scenes),
        sum(row.actor_right for row in scenes),
        sum(row.mechanism_right for row in scenes),
        "" if confidence is None else f"{confidence:.2f}",
        f"{sum(row.mechanism_right for row in others)} of {len(others)}" if others else "",
        why,
    )
    return f"| {' | '.join(map(str, cells))} |"
