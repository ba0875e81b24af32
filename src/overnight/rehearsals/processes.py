"""Processes of a rehearsal: how they are started, and what each does first.

An actor carries the run's mark, stays on its core, is the first that the kernel ends when memory runs
out, and ends by itself: with the run, or after its seconds.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import pathlib
import resource
import signal
import subprocess
import sys
import threading
from typing import TYPE_CHECKING, Any

from overnight import errors

if TYPE_CHECKING:
    from overnight import rehearsals

__all__ = ["begin", "check", "end", "ends_with_fault", "set_name", "start"]

PR_SET_PDEATHSIG, PR_SET_NAME = 1, 15
LONGEST_SECONDS = 900
MEMORY = 2 << 30
END_SECONDS = 5.0


def start(
    stage: rehearsals.Stage,
    module: str,
    *,
    name: str,
    core: int,
    seconds: float = LONGEST_SECONDS,
    **more: object,
) -> subprocess.Popen[bytes]:
    """Start `python -m MODULE`, which calls `begin` first; `more` is what it is told.

    `addresses` among it is for who maps far more than it uses.

    It shares our session on purpose: the kernel shares a core among sessions first (autogroup), and a
    victim is to be starved as its neighbours on a host would starve it.
    """
    told = {"name": name, "core": core, "seconds": seconds, "parent": os.getpid(), **more}
    errors_file = stage.folder / f"{name.replace('/', '-')}.err"
    with errors_file.open("ab") as said:
        actor = subprocess.Popen(
            [sys.executable, "-m", module, json.dumps(told)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=said,
            env=stage.journal.environment(),
            process_group=0,  # Ctrl-C is for the run, which ends them in its order
        )
    stage.said[actor.pid] = errors_file
    return actor


def begin(words: list[str] | None = None) -> dict[str, Any]:
    """In the actor: takes name, core and limits, and returns what it was told."""
    told: dict[str, Any] = json.loads((words or sys.argv)[1])
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    if os.getppid() != told["parent"]:
        sys.exit("the run is gone already")
    signal.alarm(max(1, round(told["seconds"])))
    os.sched_setaffinity(0, {told["core"]})
    with contextlib.suppress(OSError):
        pathlib.Path("/proc/self/oom_score_adj").write_text("1000")
    with contextlib.suppress(ValueError, OSError):
        most = told.get("addresses", MEMORY)
        resource.setrlimit(resource.RLIMIT_AS, (most, most))
    set_name(told["name"])
    return told


def set_name(name: str) -> None:
    """What `top` and the flight recorder call this thread; the kernel keeps 15 letters."""
    ctypes.CDLL(None).prctl(PR_SET_NAME, name.encode()[:15], 0, 0, 0)


def end(*processes: subprocess.Popen[bytes]) -> None:
    """All of them, now."""
    for one in processes:
        with contextlib.suppress(ProcessLookupError):
            one.kill()
    for one in processes:
        with contextlib.suppress(subprocess.TimeoutExpired):
            one.wait(END_SECONDS)


def ends_with_fault(stage: rehearsals.Stage, *processes: subprocess.Popen[bytes]) -> None:
    """They are ended as soon as `stage.stop` is set, and the run waits for that."""
    stage.playing += processes
    check(stage)

    def wait() -> None:
        stage.stop.wait()
        stage.playing.clear()
        end(*processes)

    thread = threading.Thread(target=wait, name="fault", daemon=True)
    thread.start()
    stage.ending.append(thread)


def check(stage: rehearsals.Stage) -> None:
    """Raises CannotError where a process of the fault is gone before anybody ended it."""
    for one in tuple(stage.playing):
        if one.poll() is not None and not stage.stop.is_set():
            raise errors.CannotError(
                "a process of the fault ended by itself",
                why=f"it ended with {one.returncode}{_last_words(stage.said.get(one.pid))}",
                todo="choose another rehearsal; if it should work here, report it with these words",
            )


def _last_words(file: pathlib.Path | None) -> str:
    with contextlib.suppress(OSError, IndexError):
        if file is not None:
            last = file.read_text(errors="replace").strip().splitlines()[-1]
            return f": {last[:200]}"
    return ""
