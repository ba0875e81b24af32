"""Run the flight recorder alone: `python -m overnight.agent --home DIR`.

`overnight record` starts it next to the profiler; a systemd unit can start it directly. At its end it
prints a summary as one JSON document on standard output.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import signal
import sys
import threading

from overnight import errors, sources
from overnight.agent import flight_recorder
from overnight.model.stop_signals import stop_on_signals

PR_SET_PDEATHSIG = 1


def _arguments(words: list[str] | None) -> flight_recorder.FlightOptions:
    parser = argparse.ArgumentParser(prog="python -m overnight.agent", description=__doc__)
    add = parser.add_argument
    add("--home", type=pathlib.Path, required=True, help="data home")
    add(
        "--for",
        dest="seconds",
        type=float,
        default=0.0,
        help="seconds to record; 0 is until stopped",
    )
    add("--budget", type=int, default=1 << 30, help="size limit of the ring in bytes")
    add("--age", type=float, default=30 * flight_recorder.DAY, help="seconds that data is kept")
    add("--root", type=pathlib.Path, default=sources.ROOT, help="root folder of the host to read")
    add(
        "--rules",
        type=pathlib.Path,
        action="append",
        default=[],
        help="folder of kernel-log rules (repeatable)",
    )
    add("--metrics", default="", help="serve OpenMetrics on [ADDRESS:]PORT")
    add("--cloud-labels", action="store_true", help="read labels from the cloud metadata service")
    add(
        "--every",
        action="append",
        default=[],
        metavar="SIGNAL=SECONDS",
        help="poll interval of a signal (repeatable)",
    )
    add("--with-parent", action="store_true", help="stop when the parent process ends")
    add("--events", action="store_true", help="print events as JSON lines")
    given = parser.parse_args(words)
    if given.with_parent:
        _end_with_parent()
    return flight_recorder.FlightOptions(
        home=given.home,
        seconds=given.seconds,
        budget_bytes=given.budget,
        age_seconds=given.age,
        root=given.root,
        rules=tuple(given.rules),
        metrics=flight_recorder.parse_address(given.metrics) if given.metrics else None,
        lines=given.events,
        cloud=given.cloud_labels,
        every=dict(map(flight_recorder.parse_every, given.every)),
    )


def _end_with_parent() -> None:
    """Get SIGTERM when the parent thread ends, also by kill -9, so that no agent is left behind."""
    import ctypes
    import os

    parent = os.getppid()
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(signal.SIGTERM), 0, 0, 0)
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGTERM)


def main(words: list[str] | None = None) -> int:
    """Record until SIGTERM or SIGINT."""
    stop = threading.Event()
    try:
        with stop_on_signals(stop):
            summary = flight_recorder.run(_arguments(words), stop)
    except errors.OvernightError as error:
        sys.stderr.write(f"error: {error.what}\nwhy:   {error.why}\ndo:    {error.todo}\n")
        return error.exit_code
    if not sys.stdout.closed:
        sys.stdout.write(json.dumps(summary.as_json()) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
