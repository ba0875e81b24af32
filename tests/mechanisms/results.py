"""Results of scenes: a file of JSON lines that a killed run continues, and their table."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import pathlib
import statistics
from collections.abc import Iterable, Iterator, Sequence

COMMITTED = pathlib.Path(__file__).with_name("results.jsonl")
DOCUMENT = pathlib.Path(__file__).parents[2] / "docs/diagnosis.md"
BEGIN, END = "<!-- scenes: python -m tests.mechanisms --publish -->\n", "\n<!-- end of scenes -->"


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
    cores: int = 0
    commit: str = ""  # of the code that gave the verdict; '+': with changes
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

    @property
    def is_right(self) -> bool:
        """Whether the verdict is right about the actor and the mechanism."""
        return self.actor_right and self.mechanism_right


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


def read(path: pathlib.Path) -> list[Row]:
    """Return the last row of each run on each kind of host; a truncated line does not count."""
    rows = {}
    for line in path.read_text().splitlines() if path.exists() else ():
        with contextlib.suppress(ValueError, TypeError):
            row = Row(**json.loads(line))
            rows[row.key, row.cores] = row
    return list(rows.values())


def publish(rows: Sequence[Row]) -> None:
    """Add rows to the committed results, without their functions, and write their table into the document.

    A run without an event beside other busy processes shows nothing, and is left out.
    """
    known = {(row.key, row.cores) for row in rows}
    kept = [row for row in read(COMMITTED) if (row.key, row.cores) not in known]
    kept += [row for row in rows if row.event or not row.problems]
    kept.sort(key=lambda row: (row.cores, row.load, row.mechanism, row.lookalike, row.seed))
    lines = (json.dumps(dataclasses.asdict(dataclasses.replace(row, functions={}))) for row in kept)
    COMMITTED.write_text("".join(f"{line}\n" for line in lines))
    before, rest = DOCUMENT.read_text().split(BEGIN)
    DOCUMENT.write_text(f"{before}{BEGIN}{format_table(kept)}{END}{rest.partition(END)[2]}")


def format_table(rows: Iterable[Row]) -> str:
    """Return a Markdown table with a line per mechanism and a column per host and load, and what was not right."""
    rows = sorted(
        rows, key=lambda row: (row.cores, row.load, row.mechanism, row.lookalike, row.seed)
    )
    if not rows:
        return "No results yet."
    settings = list(dict.fromkeys((row.cores, row.load) for row in rows))
    lines = [
        f"| mechanism | {' | '.join(_format_setting(*setting) for setting in settings)} |",
        f"|---|{'---|' * len(settings)}",
    ]
    for name in (*sorted({row.mechanism for row in rows}), None):
        of_name = [row for row in rows if name in (None, row.mechanism)]
        cells = (
            _format_cell([row for row in of_name if (row.cores, row.load) == setting])
            for setting in settings
        )
        lines.append(f"| {f'`{name}`' if name else 'all'} | {' | '.join(cells)} |")
    return "\n".join((*lines, "", *_list_misses(rows)))


def _format_setting(cores: int, load: int) -> str:
    return f"{cores} cores{f', {load} % load' if load else ''}"


def _format_cell(rows: list[Row]) -> str:
    """Return right of all scenes with their median confidence, and of all look-alikes."""
    parts = []
    for lookalike in (False, True):
        chosen = [row for row in rows if row.event and row.lookalike is lookalike]
        if chosen:
            parts.append(f"{sum(row.is_right for row in chosen)}/{len(chosen)}")
            if not lookalike:
                parts[-1] += f" at {statistics.median(row.confidence for row in chosen):.2f}"
        elif not lookalike:
            parts.append("not run")
    return "; ".join(parts)


def _list_misses(rows: Iterable[Row]) -> Iterator[str]:
    """Describe each run that was not right, or had no verdict; runs of one description together."""
    places: dict[str, list[str]] = {}
    for row in rows:
        if row.event and row.is_right:
            continue
        what = f"no verdict: {row.why}"
        if row.event:
            blamed = "" if row.actor_right else f", blamed on `{row.actor or 'nobody'}`"
            what = f"{row.mechanism_found or 'no mechanism'} found{blamed}"
        name = f"`{row.mechanism}`{' look-alike' if row.lookalike else ''}"
        places.setdefault(f"- {name}: {what}", []).append(_format_setting(row.cores, row.load))
    return (f"{what} ({'; '.join(dict.fromkeys(where))})" for what, where in sorted(places.items()))
