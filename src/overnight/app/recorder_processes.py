"""The processes that work beside a recording: the one that ingests, and the flight recorder.

Each is a process of its own, so that neither the memory of one nor its end is the other's.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import pathlib
import subprocess
import sys
from collections.abc import Iterator

from overnight.model.recording import Signals

__all__ = ["FlightRecorder", "IngestProcess", "run_flight_recorder", "run_ingest"]

INGEST_SECONDS = 600
AGENT_SECONDS = 30


@dataclasses.dataclass
class IngestProcess:
    """The process that ingests; its cost is known when it has ended."""

    cpu_seconds: float = 0.0


@contextlib.contextmanager
def run_ingest(
    home: pathlib.Path, budget_bytes: int, keep_seconds: float, problems: list[str]
) -> Iterator[IngestProcess]:
    """Ingest while the block runs; what is left is brought in at its end."""
    beside = subprocess.Popen(
        [
            sys.executable, "-m", "overnight.app.spool_ingest", str(home),
            str(budget_bytes), str(keep_seconds),
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,  # Ctrl-C is for us: it has the rest to bring in
    )  # fmt: skip
    told = IngestProcess()
    try:
        yield told
    finally:
        try:
            cost, said = beside.communicate(timeout=INGEST_SECONDS)
            told.cpu_seconds = float(cost or 0)
            problems.extend(line for line in said.splitlines() if line)
            if beside.returncode:
                problems.append(
                    f"ingest ended with {beside.returncode}; overnight store ingest goes on with it"
                )
        except subprocess.TimeoutExpired:
            beside.kill()
            beside.communicate()
            problems.append("ingest did not finish; overnight store ingest goes on with it")


@dataclasses.dataclass
class FlightRecorder:
    """The flight recorder beside a recording; what it did is known when it has ended."""

    summary: Signals | None = None


@contextlib.contextmanager
def run_flight_recorder(
    home: pathlib.Path, problems: list[str], *more: str
) -> Iterator[FlightRecorder]:
    """Record signals and events while the block runs; `more` are arguments of the agent."""
    beside = subprocess.Popen(
        [sys.executable, "-m", "overnight.agent", "--home", str(home), "--with-parent", *more],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    told = FlightRecorder()
    try:
        yield told
    finally:
        beside.terminate()
        try:
            out, said = beside.communicate(timeout=AGENT_SECONDS)
        except subprocess.TimeoutExpired:
            beside.kill()
            out, said = beside.communicate()
        try:
            told.summary = _summary(json.loads(out.splitlines()[-1]), problems)
        except (ValueError, KeyError, IndexError, TypeError):
            why = " ".join(said.split()) or f"the agent ended with {beside.returncode}"
            problems.append(f"signals were not recorded to the end: {why[-300:]}")


def _summary(said: dict[str, object], problems: list[str]) -> Signals:
    seconds = max(1e-9, float(str(said["seconds"])))
    dropped = int(str(said["dropped"]))
    if dropped:
        problems.append(f"{dropped} looks could not be written (the disk was full or failed)")
    missing = said["problems"]
    return Signals(
        signals=int(str(said["signals"])),
        events=int(str(said["events"])),
        cpu_percent=round(100 * float(str(said["cpu_seconds"])) / seconds, 3),
        rss_bytes=int(str(said["rss_bytes"])),
        missing=tuple(map(str, missing)) if isinstance(missing, list) else (),
    )
