"""An agent whose task dies at each start, and that starts it again for ever, each time in a new cgroup.

What the task wrote to memory outlives it, so its cgroup never goes: a zombie for each start. systemd sees
a unit that runs without a fault.
"""

from __future__ import annotations

import os
import pathlib
import sys
import time

TASK = 'echo 0 > "$1/cgroup.procs" && echo starting > "$2"; exit 1'
LONG_NAP = 0.5


def enter(folder: pathlib.Path) -> None:
    """Put this process into a cgroup."""
    (folder / "cgroup.procs").write_text("0")


def hurry(unit: pathlib.Path, home: pathlib.Path, state: pathlib.Path, many: int) -> None:
    """The weeks before in fast motion: what `many` tasks leave behind, without starting each."""
    for number in range(many):
        group = unit / f"past-{number}"
        group.mkdir()
        enter(group)
        (state / f"past-{number}").write_text("starting\n")
        enter(home)
        group.rmdir()


def start(program: str, group: pathlib.Path, state: pathlib.Path) -> None:
    """One start of the task, to its end."""
    group.mkdir()
    words = [program, "-c", TASK, program, str(group), str(state)]
    os.waitpid(os.posix_spawn(program, words, {}), 0)
    group.rmdir()


def main() -> None:
    """Words: cgroup of the unit, cgroup to rest in, folder for states, task, how many before, starts a second."""
    unit, home, state = (pathlib.Path(word) for word in sys.argv[1:4])
    program, many, rate = sys.argv[4], int(sys.argv[5]), float(sys.argv[6])
    state.mkdir(parents=True, exist_ok=True)
    hurry(unit, home, state, many)
    (state / "ready").touch()
    number, next_at = 0, time.monotonic()
    while True:
        number += 1
        start(program, unit / f"task-{number}", state / f"task-{number}")
        # Late starts are not made up for: a supervisor backs off, it does not catch up.
        next_at = max(next_at + 1 / rate, time.monotonic() - LONG_NAP)
        time.sleep(max(0.0, next_at - time.monotonic()))


if __name__ == "__main__":
    main()
