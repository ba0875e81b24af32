"""`overnight`, as a program, with a folder of a test in place of /run/overnight. Files in the folder are faults.

`stall`: the platform hangs while it empties the host, and `stalled` has the process that waits. `away`: it does not
release. Drivers lose their lease after 2 s.
"""

from __future__ import annotations

import os
import pathlib
import sys
import time

from overnight import reservations
from overnight.interfaces import cli
from overnight.reservations import context
from overnight.reservations.providers import _local_processes, _local_recorder, local

FOLDER = "OVERNIGHT_TEST_RUN"
COMMAND = (sys.executable, __file__)


class Played(local.Local):
    """The provider `local`, in a folder of its own."""

    def __init__(self, settings: reservations.Settings) -> None:
        self.faults = pathlib.Path(os.environ[FOLDER])
        super().__init__(settings, self.faults / "overnight", sleep=lambda _: None)

    def hear(self, host, order):  # type: ignore[no-untyped-def]
        """Know the agent that a reservation started, and no other: tests run side by side."""
        held = self.list_held(order)
        running = _local_processes.read_processes()
        return _local_recorder.hear(
            runs=bool(held and _local_processes.find_marked(running, held[0].id))
        )

    def list_workloads(self, *words):  # type: ignore[no-untyped-def]
        return []

    def empty(self, *words):  # type: ignore[no-untyped-def]
        if (self.faults / "stall").exists():
            (self.faults / "stalled").write_text(str(os.getpid()))
        while (self.faults / "stall").exists():
            time.sleep(0.02)
        return True

    def release(self, *words):  # type: ignore[no-untyped-def]
        if (self.faults / "away").exists():
            raise reservations.PlatformError("no answer", why="timed out", todo="wait")
        super().release(*words)


if __name__ == "__main__":
    local.create = Played
    context.DRIVER_SECONDS = 2
    sys.exit(cli.main(sys.argv[1:]))
