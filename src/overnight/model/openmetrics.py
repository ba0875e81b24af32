"""Metrics as OpenMetrics text (the exposition format of Prometheus)."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Iterator, Mapping

CONTENT_TYPE = "application/openmetrics-text; version=1.0.0; charset=utf-8"
SUFFIXES = {"counter": "_total", "info": "_info"}


class Page:
    def __init__(self) -> None:
        self._parts: list[str] = []

    def family(
        self, name: str, kind: str, about: str, rows: Iterable[tuple[Mapping[str, object], float]]
    ) -> None:
        """Add a metric family; without rows it is left out."""
        lines = [_line(name + SUFFIXES.get(kind, ""), labels, value) for labels, value in rows]
        if lines:
            self._parts += [f"# TYPE {name} {kind}\n# HELP {name} {about}\n", *lines]

    def histogram(self, name: str, about: str, rows: Iterable[Histogram]) -> None:
        """Add a family of histograms; without rows it is left out."""
        lines = [line for row in rows for line in row.lines(name)]
        if lines:
            self._parts += [f"# TYPE {name} histogram\n# HELP {name} {about}\n", *lines]

    def text(self) -> str:
        return "".join(self._parts) + "# EOF\n"


@dataclasses.dataclass(frozen=True)
class Histogram:
    """Observations by the smallest limit that they do not exceed; `inf` is the last limit."""

    labels: Mapping[str, object]
    counts: Mapping[float, int]
    total: float

    def lines(self, name: str) -> Iterator[str]:
        below = 0
        for limit in sorted(self.counts):
            below += self.counts[limit]
            text = "+Inf" if limit == math.inf else str(float(limit))
            yield _line(f"{name}_bucket", {**self.labels, "le": text}, below)
        yield _line(f"{name}_count", self.labels, below)
        yield _line(f"{name}_sum", self.labels, self.total)


def _line(name: str, labels: Mapping[str, object], value: float) -> str:
    inside = ",".join(f'{key}="{_escape(label)}"' for key, label in labels.items())
    number = int(value) if float(value).is_integer() else value
    return f"{name}{{{inside}}} {number}\n" if inside else f"{name} {number}\n"


def _escape(value: object) -> str:
    return str(value).replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')
