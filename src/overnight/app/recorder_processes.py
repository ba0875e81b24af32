"""The processes that run next to the profiler: ingest and the flight recorder.

Separate processes, so that the memory or the crash of one does not affect the others.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import pathlib
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

from overnight.model.recording import Signals

INGEST_SECONDS = 600
AGENT_SECONDS = 30


@dataclasses.dataclass
class IngestProcess:
    """The ingest process; its cost is known when it has ended."""

    pid: int
    cpu_seconds: float = 0.0


@contextlib.contextmanager
def run_ingest(
    home: pathlib.Path, budget_bytes: int, keep_seconds: float, problems: list[str]
) -> Iterator[IngestProcess]:
    """Ingest while the block runs, and the rest at its end."""
    arguments = map(str, (home, budget_bytes, keep_seconds))
    process = _start("overnight.app.spool_ingest", *arguments, stdin=subprocess.PIPE)
    ingest = IngestProcess(process.pid)
    try:
        yield ingest
    finally:
        try:
            cost, log = process.communicate(timeout=INGEST_SECONDS)
            ingest.cpu_seconds = float(cost or 0)
            problems.extend(line for line in log.splitlines() if line)
            failure = f"failed with exit code {process.returncode}" if process.returncode else ""
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            failure = f"did not finish within {INGEST_SECONDS} s"
        if failure:
            problems.append(f"ingest {failure}; to continue: overnight store ingest")


@dataclasses.dataclass
class FlightRecorder:
    """The flight recorder process; its summary is known when it has ended."""

    summary: Signals | None = None


@contextlib.contextmanager
def run_flight_recorder(
    home: pathlib.Path, problems: list[str], *more: str
) -> Iterator[FlightRecorder]:
    """Record signals and events while the block runs; `more` are arguments of the agent."""
    arguments = ("--home", str(home), "--with-parent", *more)
    process = _start("overnight.agent", *arguments, stdin=subprocess.DEVNULL)
    recorder = FlightRecorder()
    try:
        yield recorder
    finally:
        process.terminate()
        try:
            out, log = process.communicate(timeout=AGENT_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            out, log = process.communicate()
        try:
            recorder.summary = _parse_summary(json.loads(out.splitlines()[-1]), problems)
        except (ValueError, KeyError, IndexError, TypeError):
            why = " ".join(log.split()) or f"exit code {process.returncode}"
            problems.append(f"the flight recorder failed: {why[-300:]}")


def _start(module: str, *arguments: str, stdin: int) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", module, *arguments],
        stdin=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,  # Ctrl-C must not end it: it stores the rest
    )


def _parse_summary(summary: dict[str, Any], problems: list[str]) -> Signals:
    if dropped := summary["dropped"]:
        problems.append(f"{dropped} readings were not written (disk full or failing)")
    return Signals(
        signals=int(summary["signals"]),
        events=int(summary["events"]),
        cpu_percent=round(100 * summary["cpu_seconds"] / max(1e-9, summary["seconds"]), 3),
        rss_bytes=int(summary["rss_bytes"]),
        missing=tuple(map(str, summary["problems"])),
    )
