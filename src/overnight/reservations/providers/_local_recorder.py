"""Recorders that reservations start on this host, for itself or for a pool member that is a process of it."""

from __future__ import annotations

import contextlib
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING

from overnight import reservations, sources
from overnight.model import files, process_identity, times
from overnight.model.reservation import MAX_SECONDS
from overnight.reservations.providers import _local_processes as processes
from overnight.reservations.providers import _recorder_guard
from overnight.sources import clocksync

if TYPE_CHECKING:
    from overnight.model.reservation import Lease

LOG = "recorder.log"
START_SECONDS = 3.0  # a recorder that cannot record ends by then
STOP_SECONDS = 30.0  # it stores the rest
TASKS = "lease.toml"
# An agent reports under the host name that it finds.
RENAME = ("unshare", "--uts", "/bin/sh", "-c", 'echo "$0" > /proc/sys/kernel/hostname && exec "$@"')


def hear(*, runs: bool | None = None) -> reservations.Heard:
    """Return what is known of a host with the clock of this one; by default, whether any recorder runs here."""
    if runs is None:
        runs = any(process.is_recorder for process in processes.read_processes().values())
    skew_us = None
    with contextlib.suppress(sources.NoDataError):
        unsynced, _, offset, *_ = clocksync.open_clocksync()()[""]
        skew_us = None if unsynced else offset
    return reservations.Heard(times.now_us() if runs else None, skew_us)


def start(
    settings: reservations.Settings,
    lease: Lease,
    setup: reservations.AgentSetup,
    *,
    belongs_to: tuple[pathlib.Path, str],
    mark: str = "",
    host: str = "",
) -> None:
    """Start a recorder, which ends with what it `belongs_to` (see _recorder_guard); raise PlatformError if it ends at once.

    `stop` finds it by `mark`, the id of the lease unless given. `host` is a name of its own.
    """
    file, text = belongs_to
    guard = [sys.executable, "-I", "-S", _recorder_guard.__file__, str(file), text, str(lease.cap_us)]  # fmt: skip
    named = [*RENAME, host] if host else []
    command = [*guard, *named, sys.executable, "-m", "overnight", "--home", str(settings.home)]
    if setup.server:
        token = ["--token-file", "-"] if setup.token else []
        tasks = setup.options(str(settings.home / TASKS))
        command += ["agent", "--server", setup.server, *token, *tasks]
    else:
        command += ["record", "--for", f"{MAX_SECONDS}s"]
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
    settings.steps("start recorder: before")
    settings.home.mkdir(mode=0o700, parents=True, exist_ok=True)
    if setup.tasks:
        files.write_atomically(settings.home / TASKS, setup.tasks.format())
    log = settings.home / LOG
    with os.fdopen(files.open_private(log, flags), "wb") as written:
        # `stop` finds it by the mark in its environment, also if this process is killed now.
        started = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=written,
            start_new_session=True,
            env={**os.environ, processes.MARK: mark or lease.id},
        )
    settings.steps("start recorder: after")
    assert started.stdin is not None
    with contextlib.suppress(BrokenPipeError), started.stdin as pipe:
        pipe.write(setup.token.encode())
    try:
        started.wait(START_SECONDS)
    except subprocess.TimeoutExpired:
        # Wait in the background, so that it does not stay a zombie.
        threading.Thread(target=started.wait, name=f"reap {started.pid}", daemon=True).start()
        return
    last = log.read_text(errors="replace").strip().splitlines()[-3:]
    raise reservations.PlatformError(
        "the recorder does not start",
        why="; ".join(last) or f"exit code {started.returncode}",
        todo="overnight doctor",
    )


def stop(mark: str) -> None:
    """End the recorder of a reservation, and nothing else; one that has ended is fine."""
    running = processes.find_marked(processes.read_processes(), mark)
    pids, boot = {process.pid for process in running}, process_identity.read_boot()
    for process in running:
        if process.parent not in pids:  # it ends its own children, after they have stored the rest
            process_identity.send_signal(process.pid, process.started, signal.SIGTERM)
    until = time.monotonic() + STOP_SECONDS
    while running and time.monotonic() < until:
        time.sleep(0.1)
        running = [p for p in running if process_identity.is_running(p.pid, p.started, boot)]
    for process in running:
        process_identity.send_signal(process.pid, process.started, signal.SIGKILL)
