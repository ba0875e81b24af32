"""The processes that run next to the profiler: ingest and the flight recorder.

Separate processes, so that the memory or the crash of one does not affect the others.
"""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

from overnight import errors
from overnight.model import files
from overnight.model.recording import Part, Signals
from overnight.model.text import plural
from overnight.sources import vmstat

INGEST_SECONDS = 600
AGENT_SECONDS = 30
OOM_KILL = list(vmstat.COLUMNS).index("oom_kill")


class Child:
    """A process of the recording. `failure` is why it ended too early; the rest is known at its end."""

    def __init__(self, part: Part, module: str, *arguments: str, stdin: int) -> None:
        self.part = part
        self.failure = ""
        self.ending = False  # expected to end
        self.cpu_seconds = 0.0  # of ingest
        self.summary: Signals | None = None  # of the flight recorder
        self._vmstat = vmstat.open_vmstat()
        self._oom_kills = self._vmstat()[""][OOM_KILL]
        self.process = subprocess.Popen(
            [sys.executable, "-m", module, *arguments],
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,  # Ctrl-C must not end it: it stores the rest
        )

    def check(self) -> str:
        """Return why it ended too early, if it did."""
        if not (self.ending or self.failure) and self.process.poll() is not None:
            self.failure = self.explain(self.process.communicate()[1])
        return self.failure

    def wake(self) -> None:
        """Have ingest look for segments now."""
        with contextlib.suppress(OSError, ValueError):  # it died, or was found dead
            if self.process.stdin is not None:
                os.write(self.process.stdin.fileno(), b"\n")

    def explain(self, log: str) -> str:
        """Return how the process ended, and the last line that it printed, which names an exception."""
        code = self.process.returncode
        ended = f"killed by signal {-code}" if code < 0 else f"exit code {code}"
        if code == -signal.SIGKILL and self._vmstat()[""][OOM_KILL] > self._oom_kills:
            ended += ", and the kernel ended a process of this host for lack of memory"
        return ": ".join((ended, *log.strip().splitlines()[-1:]))


@contextlib.contextmanager
def run_ingest(
    home: pathlib.Path, budget_bytes: int, keep_seconds: float, problems: list[str]
) -> Iterator[Child]:
    """Ingest while the block runs, and the rest at its end."""
    arguments = map(str, (home, budget_bytes, keep_seconds))
    ingest = Child(Part.INGEST, "overnight.app.spool_ingest", *arguments, stdin=subprocess.PIPE)
    try:
        yield ingest
    finally:
        if not ingest.failure:
            ingest.ending = True
            try:
                cost, log = ingest.process.communicate(timeout=INGEST_SECONDS)
                ingest.cpu_seconds = float(cost or 0)
                problems.extend(line for line in log.splitlines() if line)
                ingest.failure = ingest.explain("") if ingest.process.returncode else ""
            except subprocess.TimeoutExpired:
                ingest.process.kill()
                ingest.process.communicate()
                ingest.failure = f"did not finish within {INGEST_SECONDS} s"


@contextlib.contextmanager
def run_flight_recorder(home: pathlib.Path, problems: list[str], *more: str) -> Iterator[Child]:
    """Record signals and events while the block runs; `more` are arguments of the agent.

    What prevents its start is an error.
    """
    arguments = ("--home", str(home), "--with-parent", *more)
    recorder = Child(Part.FLIGHT_RECORDER, "overnight.agent", *arguments, stdin=subprocess.DEVNULL)
    try:
        _wait_for_start(recorder)
        yield recorder
    finally:
        if not recorder.failure:
            recorder.ending = True
            recorder.process.terminate()
            try:
                out, log = recorder.process.communicate(timeout=AGENT_SECONDS)
            except subprocess.TimeoutExpired:
                recorder.process.kill()
                out, log = recorder.process.communicate()
            try:
                recorder.summary = _parse_summary(home, json.loads(out.splitlines()[-1]), problems)
            except (ValueError, KeyError, IndexError, TypeError):
                recorder.failure = recorder.explain(log)


def _wait_for_start(recorder: Child) -> None:
    """Raise the error of an agent that does not start; on an overloaded host, do not wait for long."""
    stdout = recorder.process.stdout
    assert stdout is not None
    if not select.select([stdout], [], [], AGENT_SECONDS)[0]:
        return
    line = os.read(stdout.fileno(), 1 << 16)  # the text layer would read ahead
    document = json.loads(line) if line else {}
    if "started" in document:
        return
    recorder.process.wait()
    why = recorder.check()
    if problem := document.get("error"):
        usage = problem["exit_code"] == errors.ExitCode.USAGE
        raise (errors.UsageError if usage else errors.CannotError)(
            problem["what"], why=problem["why"], todo=problem["todo"]
        )
    raise errors.RecordingError(
        "the flight recorder does not start",
        why=why,
        todo="run `overnight doctor`, or record without it: --profiles-only",
    )


def _parse_summary(home: pathlib.Path, summary: dict[str, Any], problems: list[str]) -> Signals:
    if dropped := summary["dropped"]:
        why = errors.reason(files.find_lost_write(home))
        problems.append(f"{plural(dropped, 'reading')} not written ({why})")
    return Signals(
        signals=int(summary["signals"]),
        events=int(summary["events"]),
        cpu_percent=round(100 * summary["cpu_seconds"] / max(1e-9, summary["seconds"]), 3),
        rss_bytes=int(summary["rss_bytes"]),
        missing=tuple(map(str, summary["problems"])),
    )
