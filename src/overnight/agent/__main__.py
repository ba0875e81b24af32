"""The flight recorder alone: `python -m overnight.agent --home DIR`.

`overnight record` starts it beside the profiles; a systemd unit may start it by itself. It tells what it
did in one JSON document at its end, on standard output.
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

__all__ = ["main"]

PR_SET_PDEATHSIG = 1


def _arguments(words: list[str] | None) -> flight_recorder.FlightOptions:
    parser = argparse.ArgumentParser(prog="python -m overnight.agent", description=__doc__)
    add = parser.add_argument
    add("--home", type=pathlib.Path, required=True, help="data home")
    add("--for", dest="seconds", type=float, default=0.0, help="seconds; 0 is until stopped")
    add("--budget", type=int, default=1 << 30, help="bytes that the ring may take")
    add("--age", type=float, default=30 * flight_recorder.DAY, help="seconds that a look is kept")
    add("--root", type=pathlib.Path, default=sources.ROOT, help="root of the host that is read")
    add(
        "--rules", type=pathlib.Path, action="append", default=[], help="folder of kernel-log rules"
    )
    add("--metrics", default="", help="serve OpenMetrics on [ADDRESS:]PORT")
    add("--cloud-labels", action="store_true", help="ask the cloud's metadata service for labels")
    add("--every", action="append", default=[], metavar="SIGNAL=SECONDS", help="look so often")
    add("--with-parent", action="store_true", help="end when the process that started it ends")
    add("--events", action="store_true", help="print events as JSON lines")
    said = parser.parse_args(words)
    if said.with_parent:
        _end_with_parent()
    return flight_recorder.FlightOptions(
        home=said.home,
        seconds=said.seconds,
        budget_bytes=said.budget,
        age_seconds=said.age,
        root=said.root,
        rules=tuple(said.rules),
        metrics=flight_recorder.parse_address(said.metrics) if said.metrics else None,
        lines=said.events,
        cloud=said.cloud_labels,
        every=dict(map(flight_recorder.parse_every, said.every)),
    )


def _end_with_parent() -> None:
    """SIGTERM when the thread that started us ends, also by kill -9: no agent is left behind."""
    import ctypes
    import os

    parent = os.getppid()
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(signal.SIGTERM), 0, 0, 0)
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGTERM)


def main(words: list[str] | None = None) -> int:
    """Record until SIGTERM or SIGINT."""
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    try:
        summary = flight_recorder.run(_arguments(words), stop)
    except errors.OvernightError as error:
        sys.stderr.write(f"error: {error.what}\nwhy:   {error.why}\ndo:    {error.todo}\n")
        return error.exit_code
    if not sys.stdout.closed:
        sys.stdout.write(json.dumps(summary.as_json()) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
