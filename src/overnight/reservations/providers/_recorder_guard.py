"""Program around a recorder that a reservation started; it imports nothing of overnight, so that it stays small.

`python -I -S _recorder_guard.py FILE TEXT UNTIL_US COMMAND...` ends the command when the lease with the id TEXT in FILE
is over; for a FILE /proc/PID/stat, when the process that started at TEXT has ended, or at UNTIL_US. No recorder outlives
its reservation, whatever happens to the process that started it.
"""

from __future__ import annotations

import json
import pathlib
import signal
import subprocess
import sys
import time

POLL_SECONDS = 0.5
# As the janitor has it: a driver gives the host back, and the rest is stored.
GRACE_US = 120_000_000


def goes_on(file: pathlib.Path, text: str, until_us: int) -> bool:
    """Whether the lease of this id, or the process with this start time, lasts."""
    now_us = time.time_ns() // 1000
    try:
        content = file.read_text(errors="replace")
        if file.name == "stat":  # as model.process_identity reads it
            state, *fields = content.rpartition(")")[2].split()
            return state not in "ZX" and fields[18] == text and now_us < until_us
        lease = json.loads(content)
        return bool(lease["id"] == text and now_us < lease["until_us"] + GRACE_US)
    except (OSError, ValueError, LookupError, TypeError):
        return False


def run(file: pathlib.Path, text: str, until_us: int, command: list[str]) -> int:
    with subprocess.Popen(command) as child:
        signal.signal(signal.SIGTERM, lambda *_: child.terminate())
        while child.poll() is None and goes_on(file, text, until_us):
            time.sleep(POLL_SECONDS)
        child.terminate()
    return child.returncode


if __name__ == "__main__":
    sys.exit(run(pathlib.Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), sys.argv[4:]))
