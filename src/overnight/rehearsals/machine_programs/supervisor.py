"""An agent whose task crashes at each start, and which restarts it forever, each time in a new cgroup.

A file that the task wrote to memory outlives it, so its cgroup stays dying: one zombie per start. systemd
sees a healthy unit. As a container runtime it does so for an agent in another unit (client.py), 5 s at a time.
"""

from __future__ import annotations

import os
import pathlib
import secrets
import sys
import time

TASK = 'echo 0 > "$1/cgroup.procs" && echo starting > "$2"; exit 1'
LONG_NAP = 0.5
CALL_SECONDS = 5.0


def enter(folder: pathlib.Path) -> None:
    (folder / "cgroup.procs").write_text("0")


def leave_zombies(unit: pathlib.Path, home: pathlib.Path, state: pathlib.Path, count: int) -> None:
    """Create what `count` crashed tasks leave behind, without starting each: weeks in seconds."""
    for number in range(count):
        group = unit / f"past-{number}"
        group.mkdir()
        enter(group)
        (state / f"past-{number}").write_text("starting\n")
        enter(home)
        group.rmdir()


def start(program: str, group: pathlib.Path, state: pathlib.Path) -> None:
    """Run the task once, to its end."""
    group.mkdir()
    arguments = [program, "-c", TASK, program, str(group), str(state)]
    # With the environment: the mark of the run is in it, and an undo ends what has the mark.
    os.waitpid(os.posix_spawn(program, arguments, os.environ), 0)
    group.rmdir()


def serve(
    parent: pathlib.Path,
    state: pathlib.Path,
    program: str,
    starts: int,
    pipe: str,
    before: str,
    after: str,
) -> None:
    """Start that many containers at each call."""
    os.mkfifo(pipe)
    with open(pipe, "r+b", buffering=0) as calls:  # noqa: PTH123 - also opened for writing, so that it never ends
        while calls.read(1):
            for _ in range(starts):
                name = secrets.token_hex(32)
                start(program, parent / f"{before}{name}{after}", state / name)


def main() -> None:
    """Arguments: parent of the cgroups, own cgroup, state folder, task, zombies at first, starts per second.

    For a runtime also: a pipe that has a line for each call, and the text before and after an id in a name.
    """
    unit, home, state = (pathlib.Path(word) for word in sys.argv[1:4])
    program, zombies, starts, *runtime = sys.argv[4:]
    rate = float(starts)
    state.mkdir(parents=True, exist_ok=True)
    leave_zombies(unit, home, state, int(zombies))
    (state / "ready").touch()
    if runtime:
        serve(unit, state, program, round(rate * CALL_SECONDS), *runtime)
    number, next_at = 0, time.monotonic()
    while True:
        number += 1
        start(program, unit / f"task-{number}", state / f"task-{number}")
        # Missed starts are dropped: a supervisor backs off, it does not catch up.
        next_at = max(next_at + 1 / rate, time.monotonic() - LONG_NAP)
        time.sleep(max(0.0, next_at - time.monotonic()))


if __name__ == "__main__":
    main()
