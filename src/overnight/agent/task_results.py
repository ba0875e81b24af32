"""What the commands of tasks print with -O json, in short: a server stores it for every task."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Mapping
from typing import Any

from overnight.model import cpu as modes
from overnight.model.protocol import TaskKind
from overnight.sources import cpu, kernel

Ticks = Mapping[int, tuple[int, ...]]
Document = dict[str, Any]
DETAIL = 1000  # characters


def read(kind: TaskKind, output: str) -> tuple[Document, str]:
    """Return the result and the detail of a task from what it printed; no result if it did not get so far."""
    summarize = SUMMARIES.get(kind)
    begin = 0 if output.startswith("{") else output.rfind("\n{") + 1
    if summarize is not None and output[begin:].startswith("{"):
        try:
            document, _ = json.JSONDecoder().raw_decode(output[begin:])
            return summarize(document)
        except (ValueError, KeyError, TypeError, AttributeError, IndexError):
            pass  # an error as JSON, or a document of another version
    half = DETAIL // 2
    result = {"output": output} if kind is TaskKind.INSTRUMENT else {}
    return result, output if len(output) <= DETAIL else f"{output[:half]} … {output[-half:]}"


def _read_age(document: Document) -> tuple[Document, str]:
    counts = {str(name): int(number) for name, number in document["after"].items()}
    result = {"counts": counts, "arm": document["arm"], "uptime_s": kernel.read_uptime()}
    problems = [str(text) for text in (*document["problems"], *document["remarks"])]
    made = f"created {document['made']} of {document['asked']}" if "made" in document else ""
    return result, "; ".join(filter(None, (made, *problems)))[:DETAIL]


def _read_load(document: Document) -> tuple[Document, str]:
    verdict = document["verdict"]
    says = str(verdict["says"])[:DETAIL]
    return {"status": str(verdict["status"]), "says": says}, f"{verdict['status']}: {says}"


def read_ticks() -> Ticks:
    """Return the time of each core by mode; none where it cannot be read."""
    with contextlib.suppress(OSError, ValueError):
        return cpu.read_ticks()
    return {}


def measure_cores(before: Ticks, seconds: float) -> Document:
    """Return the mean share of time that the cores were busy since `before`, and their number."""
    after = read_ticks()
    both = [modes.tick_changes(before[core], after[core]) for core in before.keys() & after.keys()]
    shares = [shares.busy for ticks in both if (shares := modes.tick_shares(ticks)) is not None]
    busy = round(sum(shares) / len(shares), 4) if shares else None
    return {"busy": busy, "seconds": round(seconds, 1), "cores": len(before)}


SUMMARIES: Mapping[TaskKind, Callable[[Document], tuple[Document, str]]] = {
    TaskKind.AGE: _read_age,
    TaskKind.LOAD: _read_load,
}
