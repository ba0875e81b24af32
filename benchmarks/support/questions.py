"""One query in a fresh process: `python -m benchmarks.support.questions`, JSON in and out.

Cold is the first answer of this process, with the files it reads dropped from the page cache; warm
the same question again. Imports are not counted, opening DuckDB is.
"""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import subprocess
import sys
import time
from collections.abc import Callable

from overnight.model.selection import Coverage, Window
from overnight.queries import diff, flame, heatmap, reader, top
from overnight.store import segments

__all__ = ["Question", "Timing", "ask"]

WARM = 5


@dataclasses.dataclass(frozen=True)
class Question:
    """A query; `drop` are folders whose files are dropped from the page cache first."""

    home: str
    kind: str
    begin_us: int
    end_us: int
    drop: tuple[str, ...] = ()
    baseline: tuple[int, int] = (0, 0)


@dataclasses.dataclass(frozen=True)
class Timing:
    """Milliseconds, and the number of samples of the answer."""

    cold_ms: float
    warm_ms: float
    samples: int


def ask(question: Question) -> Timing:
    """Run the query in its own process and return its timing."""
    result = subprocess.run(
        [sys.executable, "-m", "benchmarks.support.questions"],
        input=json.dumps(dataclasses.asdict(question)),
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return Timing(**json.loads(result.stdout))


def drop_cached(folders: tuple[str, ...]) -> None:
    """Drop the files of these folders and their hour files from the page cache, and no others."""
    paths = [path for folder in folders for path in pathlib.Path(folder).iterdir()]
    for day in {pathlib.Path(folder).parent for folder in folders}:
        paths += day.glob("*.hour")
    for path in paths:
        descriptor = os.open(path, os.O_RDONLY)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)


def _answer(question: Question) -> Callable[[reader.Reader], Coverage]:
    window = Window(question.begin_us, question.end_us)
    kinds: dict[str, Callable[[reader.Reader], Coverage]] = {
        "flame": lambda source: flame.flame(source, window).coverage,
        "top": lambda source: top.top(source, window).coverage,
        "functions": lambda source: top.top(source, window, kind="functions").coverage,
        "cores": lambda source: heatmap.by_core(source, window).coverage,
        "offsets": lambda source: heatmap.by_offset(source, window).coverage,
        "diff": lambda source: diff.diff(source, window, Window(*question.baseline)).coverage,
    }
    return kinds[question.kind]


def main() -> None:
    document = json.load(sys.stdin)
    question = Question(
        **{**document, "drop": tuple(document["drop"]), "baseline": tuple(document["baseline"])}
    )
    answer = _answer(question)
    drop_cached(question.drop)
    source = reader.Reader(segments.Catalogue(pathlib.Path(question.home)))
    took = []
    samples = 0
    for _ in range(1 + WARM):
        begin = time.perf_counter()
        samples = answer(source).samples
        took.append((time.perf_counter() - begin) * 1000)
    warm = sorted(took[1:])[WARM // 2]
    print(json.dumps(dataclasses.asdict(Timing(took[0], warm, samples))))


if __name__ == "__main__":
    main()
