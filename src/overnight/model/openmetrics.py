"""Metrics as OpenMetrics text (the exposition format of Prometheus)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

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

    def text(self) -> str:
        return "".join(self._parts) + "# EOF\n"


def _line(name: str, labels: Mapping[str, object], value: float) -> str:
    inside = ",".join(f'{key}="{_escape(label)}"' for key, label in labels.items())
    number = int(value) if float(value).is_integer() else value
    return f"{name}{{{inside}}} {number}\n" if inside else f"{name} {number}\n"


def _escape(value: object) -> str:
    return str(value).replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')
