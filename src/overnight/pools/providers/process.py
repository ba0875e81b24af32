"""Members as processes of this host: light and without root, for laptops and tests.

Each has a folder with its tags, its order (mode 0600) and its log. A process is identified by its PID and its
start time, because PIDs are reused.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence

from overnight import pools
from overnight.model import files, process_identity
from overnight.model.pool import Reason
from overnight.pools.providers import _folder_lock, _host_name

NAME = "process"
AGENT = pathlib.Path(__file__).with_name("_member_agent.py")
END_SECONDS = 5.0
NO_ROOM = (errno.EAGAIN, errno.ENOMEM, errno.ENOSPC, errno.EDQUOT)
CONSOLE_BYTES = 16384
KEEP_SECONDS = 86400.0  # the log of a dead process may be needed


def create(home: pathlib.Path) -> Processes:
    return Processes(home / "pools" / "machines")


class Processes(pools.Provider):
    """Processes that outlive their launcher."""

    name = NAME
    fixed: Mapping[str, object] = {
        "template": "plain", "lifecycle_class": "ephemeral", "region": "", "preferred_regions": (),
        "instance_type": "",
    }  # fmt: skip

    def __init__(self, folder: pathlib.Path) -> None:
        self._folder = folder

    def host(self, *, create: bool = False) -> str | None:
        return _host_name.read(self._folder.parent, create=create)

    def launch(self, order: pools.Order) -> pools.Machine:
        """Start the agent of one member; the same member always gets the same process."""
        try:
            place = self._place(order.member_id)
            with _folder_lock.locked(place):
                if (running := self._machine(place)) is not None:
                    return running
                return self._start(place, order)
        except OSError as error:
            reason = Reason.QUOTA if error.errno in NO_ROOM else Reason.ERROR
            raise pools.ProviderError(reason, str(error)) from error

    def _start(self, place: pathlib.Path, order: pools.Order) -> pools.Machine:
        files.write(place / "owner", order.owner)
        files.write(place / "order.json", json.dumps(order.as_json()))
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        with os.fdopen(files.open_private(place / "log", flags), "ab") as log:
            # A session of its own, so that Ctrl-C does not reach it. -I: ignore the caller's environment.
            started = subprocess.Popen(
                [sys.executable, "-I", "-S", str(AGENT), str(place)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                cwd=place,
                env={"PATH": os.environ.get("PATH", "")},
            )
        began = process_identity.read_start(started.pid)
        files.write_atomically(place / "process", f"{started.pid} {began}")
        # Wait in the background, so that a dead child does not stay a zombie.
        threading.Thread(target=started.wait, name=f"reap {started.pid}", daemon=True).start()
        return pools.Machine(
            id=order.member_id, member_id=order.member_id, address=f"127.0.0.1#{started.pid}"
        )

    def terminate(self, machine_id: str) -> None:
        """Terminate the process, with SIGKILL if needed, and delete its folder."""
        place = self._place(machine_id)
        with _folder_lock.locked(place, make=False) as there:
            if not there:
                return
            pid, began = _process(place)
            deadline = time.monotonic() + END_SECONDS
            sent = signal.SIGTERM
            while _is_running(pid, began):
                process_identity.send_signal(pid, str(began), sent)
                if time.monotonic() > deadline:
                    raise pools.ProviderError(Reason.ERROR, f"process {pid} does not exit")
                if time.monotonic() > deadline - END_SECONDS / 2:
                    sent = signal.SIGKILL
                time.sleep(0.01)
            shutil.rmtree(place, ignore_errors=True)

    def inventory(self, owner: str) -> Sequence[pools.Machine]:
        """List the owner's running processes; the folder of a dead one is kept for a day."""
        if not self._folder.is_dir():
            return []
        machines = []
        for place in sorted(self._folder.iterdir()):
            # A launch that was killed before it wrote the owner has started nothing.
            if _read(place / "owner") not in (owner, ""):
                continue
            machine = self._machine(place)
            if machine is not None:
                machines.append(machine)
            else:
                _delete_if_old(place)
        return machines

    def console(self, machine_id: str) -> str:
        """Return the end of the log of its agent."""
        return files.read_tail(self._place(machine_id) / "log", CONSOLE_BYTES)

    def _machine(self, place: pathlib.Path) -> pools.Machine | None:
        pid, began = _process(place)
        if not _is_running(pid, began):
            return None
        return pools.Machine(id=place.name, member_id=place.name, address=f"127.0.0.1#{pid}")

    def _place(self, machine_id: str) -> pathlib.Path:
        if not machine_id or "/" in machine_id or machine_id.startswith("."):
            raise pools.ProviderError(Reason.ERROR, f"{machine_id!r} is not a machine id")
        return self._folder / machine_id


def _delete_if_old(place: pathlib.Path) -> None:
    """Delete the folder of a process that ended long ago, unless it is locked."""
    with contextlib.suppress(OSError), _folder_lock.locked(place, make=False, wait=False) as there:
        if there and time.time() - place.stat().st_mtime > KEEP_SECONDS:
            shutil.rmtree(place, ignore_errors=True)


def _read(path: pathlib.Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


def _process(place: pathlib.Path) -> tuple[int, int]:
    """Return PID and start time of the process started here; (0, 0) for none."""
    words = _read(place / "process").split()
    if len(words) != 2:
        # The launcher was killed before it wrote them: the agent wrote its own.
        words = _read(place / "agent").split()
    return (int(words[0]), int(words[1])) if len(words) == 2 else (0, 0)


def _is_running(pid: int, began: int) -> bool:
    state, started = process_identity.read_stat(pid)
    return pid > 0 and state not in "ZX" and int(started) == began
