"""Processes of a rehearsal: start them, set them up, and end them.

Each carries the run's mark, is pinned to its core, is the OOM killer's first choice, and ends with the run or
after its maximum lifetime.
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
import traceback
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from overnight import errors
from overnight.machines import network

if TYPE_CHECKING:
    from overnight import rehearsals

PR_SET_PDEATHSIG, PR_SET_NAME = 1, 15
MAX_SECONDS = 900
MAX_MEMORY = 2 << 30
END_SECONDS = 5.0


def start(
    stage: rehearsals.Stage,
    module: str,
    *,
    name: str,
    core: int,
    seconds: float = MAX_SECONDS,
    **more: object,
) -> subprocess.Popen[bytes]:
    """Start `python -m MODULE`, which calls `begin` first; `more` are its settings.

    `addresses` raises the address-space limit, for a process that maps far more than it uses. The process shares
    this session on purpose: with autogroup the kernel shares a core among sessions first, and the victim must be
    starved as neighbours on a real host would starve it.
    """
    settings = {"name": name, "core": core, "seconds": seconds, "parent": os.getpid(), **more}
    errors_file = stage.folder / f"{name.replace('/', '-')}.err"
    with errors_file.open("ab") as stderr:
        process = subprocess.Popen(
            [sys.executable, "-m", module, json.dumps(settings)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=stderr,
            env=stage.journal.environment(),
            process_group=0,  # the run handles Ctrl-C and ends them in order
        )
    stage.error_files[process.pid] = errors_file
    return process


def begin() -> dict[str, Any]:
    """Set up the started process (name, core, limits, network) and return its settings."""
    settings: dict[str, Any] = json.loads(sys.argv[1])
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    if os.getppid() != settings["parent"]:
        sys.exit("the rehearsal has already ended")
    signal.alarm(max(1, round(settings["seconds"])))
    os.sched_setaffinity(0, {settings["core"]})
    with contextlib.suppress(OSError):
        pathlib.Path("/proc/self/oom_score_adj").write_text("1000")
    with contextlib.suppress(ValueError, OSError):
        most = settings.get("addresses", MAX_MEMORY)
        resource.setrlimit(resource.RLIMIT_AS, (most, most))
    set_name(settings["name"])
    if settings.get("netns"):
        network.enter(settings["netns"])
    return settings


def set_name(name: str) -> None:
    """Set the name that `top` and the flight recorder show; the kernel keeps 15 letters."""
    ctypes.CDLL(None).prctl(PR_SET_NAME, name.encode()[:15], 0, 0, 0)


def end(*processes: subprocess.Popen[bytes]) -> None:
    for process in processes:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
    for process in processes:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(END_SECONDS)


def end_with_fault(stage: rehearsals.Stage, *processes: subprocess.Popen[bytes]) -> None:
    """End them as soon as `stage.stop` is set; the run waits for that."""
    stage.fault_processes += processes
    check(stage)

    def stop() -> None:
        stage.fault_processes.clear()
        end(*processes)

    call_at_end(stage, stop)


def start_fault(
    stage: rehearsals.Stage, module: str, *, core: int, seconds: float = 180, **more: object
) -> None:
    """Start the process that is the fault; the drawn facts are its settings, too."""
    name, settings = str(stage.facts["process"]), {**stage.facts, **more}
    fault = start(stage, module, name=name, core=core, seconds=seconds, **settings)
    end_with_fault(stage, fault)


def call_at_end(stage: rehearsals.Stage, stop: Callable[[], None]) -> None:
    """Call `stop` in a thread as soon as `stage.stop` is set; the run waits for it."""

    def wait() -> None:
        stage.stop.wait()
        stop()

    thread = threading.Thread(target=wait, name="fault", daemon=True)
    thread.start()
    stage.ending.append(thread)


def check(stage: rehearsals.Stage) -> None:
    """Raise CannotError where a process of the fault ended too early."""
    for process in tuple(stage.fault_processes):
        if process.poll() is not None and not stage.stop.is_set():
            last = ""
            with contextlib.suppress(OSError, IndexError, KeyError):
                text = stage.error_files[process.pid].read_text(errors="replace")
                last = f": {text.strip().splitlines()[-1][:200]}"
            raise errors.CannotError(
                "a process of the fault ended unexpectedly",
                why=f"exit code {process.returncode}{last}",
                todo="choose another rehearsal; if it should work here, report this message",
            )


def fork(settings: dict[str, Any], work: Callable[[int], object], count: int) -> None:
    """Fork `count` more processes like this one; each runs `work(number)` and ends with this one."""
    parent = os.getpid()
    for number in range(count):
        if os.fork():
            continue
        try:
            # Neither the death signal nor the alarm is inherited.
            ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
            signal.alarm(max(1, round(settings["seconds"])))
            if os.getppid() == parent:
                set_name(settings["name"])
                work(number)
        except BaseException:  # it must not continue with the parent's code
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(1)
