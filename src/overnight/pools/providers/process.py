"""Members that are processes of this machine: light, without root; what a laptop and a test have.

Each has a folder with its tags, its order (mode 0600) and its log. A process is the one that was started
only if its start time is too: numbers are used again.
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
from collections.abc import Sequence

from overnight import pools
from overnight.pools.providers import _folder_lock

__all__ = ["NAME", "Processes", "create"]

NAME = "process"
AGENT = pathlib.Path(__file__).with_name("_member_agent.py")
END_SECONDS = 5.0
NO_ROOM = (errno.EAGAIN, errno.ENOMEM, errno.ENOSPC, errno.EDQUOT)
KEEP_SECONDS = 86400.0  # its log may be wanted


def create(home: pathlib.Path) -> Processes:
    """The provider of a data home."""
    return Processes(home / "pools" / "machines")


class Processes:
    """Machines are child processes that outlive whoever started them."""

    name = NAME
    inventory_lag_seconds = 0.0

    def __init__(self, folder: pathlib.Path) -> None:
        self._folder = folder

    def launch(self, order: pools.Order) -> pools.Machine:
        """Start the agent of one member; the same member twice is the same process."""
        try:
            place = self._place(order.member_id)
            with _folder_lock.locked(place):
                if (running := self._machine(place)) is not None:
                    return running
                return self._start(place, order)
        except OSError as error:
            reason = "provider_quota_exceeded" if error.errno in NO_ROOM else "provider_error"
            raise pools.ProviderError(reason, str(error)) from error

    def _start(self, place: pathlib.Path, order: pools.Order) -> pools.Machine:
        asked = {
            "member_id": order.member_id,
            "pool": order.pool,
            "template": order.template,
            "endpoint": order.endpoint,
            "token": order.token,
        }
        (place / "owner").write_text(order.owner)
        (place / "order.json").touch(mode=0o600)
        (place / "order.json").write_text(json.dumps(asked))
        with (place / "log").open("ab") as log:
            # A session of its own: Ctrl-C at a terminal is not for it. -I: nothing of the caller's.
            started = subprocess.Popen(
                [sys.executable, "-I", "-S", str(AGENT), str(place)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                cwd=place,
                env={"PATH": os.environ.get("PATH", "")},
            )
        began = _start_time(started.pid)
        _write(place / "process", f"{started.pid} {began}")
        _reap(started)
        return pools.Machine(
            id=order.member_id, member_id=order.member_id, address=f"127.0.0.1#{started.pid}"
        )

    def terminate(self, machine_id: str) -> None:
        """End the process, by force if it will not; its folder goes too."""
        place = self._place(machine_id)
        with _folder_lock.locked(place, make=False) as there:
            if not there:
                return
            pid, began = _process(place)
            deadline = time.monotonic() + END_SECONDS
            sent = signal.SIGTERM
            while _is_running(pid, began):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, sent)
                if time.monotonic() > deadline:
                    raise pools.ProviderError("provider_error", f"process {pid} will not end")
                if time.monotonic() > deadline - END_SECONDS / 2:
                    sent = signal.SIGKILL
                time.sleep(0.01)
            shutil.rmtree(place, ignore_errors=True)

    def inventory(self, owner: str) -> Sequence[pools.Machine]:
        """Every process of the owner that runs; the folder of one that died is kept for a day."""
        found = []
        if not self._folder.is_dir():
            return []
        for place in sorted(self._folder.iterdir()):
            # A launch that was killed before it wrote who it is for has started nothing.
            if _read(place / "owner") not in (owner, ""):
                continue
            machine = self._machine(place)
            if machine is not None:
                found.append(machine)
            else:
                _bury(place)
        return found

    def _machine(self, place: pathlib.Path) -> pools.Machine | None:
        pid, began = _process(place)
        if not _is_running(pid, began):
            return None
        return pools.Machine(id=place.name, member_id=place.name, address=f"127.0.0.1#{pid}")

    def _place(self, machine_id: str) -> pathlib.Path:
        if not machine_id or "/" in machine_id or machine_id.startswith("."):
            raise pools.ProviderError("provider_error", f"{machine_id!r} is no machine of ours")
        return self._folder / machine_id


def _bury(place: pathlib.Path) -> None:
    """The folder of one that ended long ago, unless somebody is at it."""
    with contextlib.suppress(OSError), _folder_lock.locked(place, make=False, wait=False) as there:
        if there and time.time() - place.stat().st_mtime > KEEP_SECONDS:
            shutil.rmtree(place, ignore_errors=True)


def _reap(child: subprocess.Popen[bytes]) -> None:
    """Wait for it in the background: a child of ours that ended must not look alive."""
    threading.Thread(target=child.wait, name=f"reap {child.pid}", daemon=True).start()


def _write(path: pathlib.Path, text: str) -> None:
    partial = path.with_name(path.name + ".new")
    partial.write_text(text)
    partial.replace(path)


def _read(path: pathlib.Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


def _process(place: pathlib.Path) -> tuple[int, int]:
    """The number and the start time of the process that was started here; (0, 0) for none."""
    words = _read(place / "process").split()
    if len(words) != 2:
        # Killed before it was written down: the agent wrote its own.
        words = _read(place / "agent").split()
    return (int(words[0]), int(words[1])) if len(words) == 2 else (0, 0)


def _start_time(pid: int) -> int:
    """Field 22 of /proc/PID/stat, in clock ticks since boot; 0 when it is gone."""
    text = _read(pathlib.Path(f"/proc/{pid}/stat"))
    fields = text.rpartition(")")[2].split()
    return int(fields[19]) if len(fields) > 19 else 0


def _is_running(pid: int, began: int) -> bool:
    if pid <= 0 or _start_time(pid) != began:
        return False
    state = _read(pathlib.Path(f"/proc/{pid}/stat")).rpartition(")")[2].split()
    return bool(state) and state[0] not in ("Z", "X")
