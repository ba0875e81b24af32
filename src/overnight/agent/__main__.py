"""Run the flight recorder alone: `python -m overnight.agent --home DIR`.

`overnight record` starts it next to the profiler; a systemd unit can start it directly. At its end it
prints a summary or the error as one JSON document on standard output; with --with-parent it prints
`{"started": true}` as soon as it records.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import pathlib
import signal
import sys
import threading

from overnight import errors
from overnight.agent import flight_recorder
from overnight.model import addresses
from overnight.model.stop_signals import stop_on_signals

PR_SET_PDEATHSIG = 1


def _arguments(words: list[str] | None) -> tuple[flight_recorder.FlightOptions, bool]:
    """Return the options, and whether a parent waits for the start."""
    # An option that is not given is left out: FlightOptions has the defaults.
    parser = argparse.ArgumentParser(
        prog="python -m overnight.agent", description=__doc__, argument_default=argparse.SUPPRESS
    )
    add = parser.add_argument
    add("--home", type=pathlib.Path, required=True, help="data home")
    add("--for", dest="seconds", type=float, help="seconds to record; 0 is until stopped")
    add("--budget", dest="budget_bytes", type=int, help="size limit of the ring in bytes")
    add("--age", dest="age_seconds", type=float, help="seconds that data is kept")
    add("--root", type=pathlib.Path, help="root folder of the host to read")
    add(
        "--rules",
        type=pathlib.Path,
        action="append",
        help="folder of kernel-log rules (repeatable)",
    )
    add("--metrics", type=addresses.parse_address, help="serve OpenMetrics on [ADDRESS:]PORT")
    add("--cloud-labels", dest="cloud", action="store_true", help="read labels from the cloud")
    add(
        "--every",
        type=flight_recorder.parse_every,
        action="append",
        metavar="SIGNAL=SECONDS",
        help="poll interval of a signal (repeatable)",
    )
    add("--with-parent", action="store_true", help="stop when the parent process ends")
    add("--events", dest="lines", action="store_true", help="print events as JSON lines")
    given = vars(parser.parse_args(words))
    if with_parent := given.pop("with_parent", False):
        given["parent"] = _end_with_parent()
    given["rules"] = tuple(given.get("rules", ()))
    given["every"] = dict(given.get("every", ()))
    return flight_recorder.FlightOptions(**given), with_parent


def _end_with_parent() -> int:
    """Get SIGTERM when the parent thread ends, also by kill -9, so that no agent is left behind.

    Return the parent.
    """
    import ctypes
    import os

    parent = os.getppid()
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(signal.SIGTERM), 0, 0, 0)
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGTERM)
    return parent


def _report_start() -> None:
    sys.stdout.write('{"started": true}\n')
    sys.stdout.flush()


def main(words: list[str] | None = None) -> int:
    """Record until SIGTERM or SIGINT."""
    stop = threading.Event()
    try:
        with stop_on_signals(stop):
            options, with_parent = _arguments(words)
            report = _report_start if with_parent else lambda: None
            summary = flight_recorder.run(options, stop, report)
    except (errors.OvernightError, OSError) as caught:
        error = errors.own_error(caught) if errors.is_own(caught) else caught
        if not isinstance(error, errors.OvernightError):
            raise
        sys.stdout.write(json.dumps(error.as_json()) + "\n")
        sys.stderr.write(f"error: {error.what}\nwhy:   {error.why}\ndo:    {error.todo}\n")
        return error.exit_code
    if not sys.stdout.closed:
        sys.stdout.write(json.dumps(dataclasses.asdict(summary)) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
