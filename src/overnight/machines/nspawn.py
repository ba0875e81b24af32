"""Boot a systemd machine with systemd-nspawn, from a small tree of its own (see container.py).

It has no network and boots in about a second. The undo journal records all of it first, so nothing is left,
however the run ends.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import pathlib
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from overnight import errors
from overnight.machines import container
from overnight.undo import journal, operations

if TYPE_CHECKING:
    from typing import BinaryIO

BOOT_SECONDS = 60
STOP_SECONDS = 20
COMMAND_SECONDS = 60
TAIL = 2000
# The shell pins itself before it becomes nspawn.
ENTER = container.ENTER + 'exec ${CORES:+taskset -c "$CORES"} systemd-nspawn "$@"'


@dataclasses.dataclass(frozen=True)
class Machine:
    """A booted machine. `leader` is the host PID of its PID 1; `cgroup` its path on the host."""

    name: str
    leader: int
    cgroup: str
    tree: pathlib.Path
    nspawn: subprocess.Popen[bytes] = dataclasses.field(repr=False, compare=False)

    def run(self, *command: str) -> str:
        """Run a command inside and return its output; raises CannotError."""
        done = subprocess.run(
            ["nsenter", "--target", str(self.leader), "--all", "--", *command],
            capture_output=True,
            text=True,
            timeout=COMMAND_SECONDS,
            check=False,
        )
        if done.returncode:
            raise errors.CannotError(
                f"{' '.join(command)} failed in machine {self.name}",
                why=done.stderr.strip() or f"exit code {done.returncode}",
                todo=f"see the machine's log: {self.tree / 'log'}",
            )
        return done.stdout

    def path(self, inside: str) -> pathlib.Path:
        """Return the host path of a file inside."""
        return pathlib.Path(f"/proc/{self.leader}/root{inside}")

    def stop(self) -> None:
        """Kill it without shutting down services; the undo journal removes the rest."""
        _stop(self.nspawn, self.leader)


def unit(run: str, *, service: str = "", wanted: bool = True) -> str:
    """Return a service unit that runs a shell command, without a start limit."""
    return f"""[Unit]
Description=Service of an overnight machine
StartLimitIntervalSec=0
[Service]
ExecStart=/bin/sh -c '{run}'
{service.strip()}
[Install]
WantedBy={"multi-user.target" if wanted else ""}
"""


def boot(
    run_journal: journal.Journal,
    units: Mapping[str, str] | None = None,
    files: Mapping[str, str] | None = None,
    *,
    links: Mapping[str, str] | None = None,
    binds: Mapping[str, str] | None = None,
    read_only: Collection[str] = (),
    cores: Collection[int] = (),
    options: Collection[str] = (),
    name: str = "",
) -> Machine:
    """Boot a machine with these units, and return once it is up.

    `files` maps paths inside to texts, `links` to link targets; `binds` maps host folders to writable paths
    inside; `read_only` folders have the same path inside. The machine is pinned to `cores`; `options` are
    further ones of nspawn.
    """
    container.require()
    name = name or f"{run_journal.run}-{time.monotonic_ns() % 10**6}"
    run_journal.write("machine", name)
    tree = pathlib.Path(tempfile.gettempdir()) / name
    run_journal.write("folder", tree)
    tree.mkdir(mode=0o755)
    status = tree.stat()
    # A killed nspawn leaves its two locks of the tree behind.
    run_journal.write("file", tree.with_name(f".#{name}.lck"))
    run_journal.write("file", operations.NSPAWN / f"locks/inode-{status.st_dev}:{status.st_ino}")
    container.plant(tree, units or {})
    for inside, text in (files or {}).items():
        container.place(tree, inside).write_text(text)
    for inside, target in (links or {}).items():
        container.place(tree, inside).symlink_to(target)
    folders = tuple(top / name for top in container.tops())
    for folder in folders:
        run_journal.write("cgroup", folder)
        folder.mkdir()
    more = [f"--bind={outside}:{inside}" for outside, inside in (binds or {}).items()]
    more += [
        "--private-network",
        "--notify-ready=yes",
        f"--setenv={journal.MARK}={run_journal.run}",
    ]
    arguments = container.nspawn_arguments(name, tree, *more, *options, read_only=read_only)
    return _boot(run_journal, name, tree, folders, arguments, cores)


def _boot(
    run_journal: journal.Journal,
    name: str,
    tree: pathlib.Path,
    folders: tuple[pathlib.Path, ...],
    arguments: list[str],
    cores: Collection[int],
) -> Machine:
    with (
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notify,
        (tree / "log").open("w+b") as log,
    ):
        address = str(tree / "notify")
        notify.bind(address)
        notify.settimeout(1)
        nspawn = subprocess.Popen(
            ["/bin/sh", "-c", ENTER, "nspawn", *arguments],
            stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            env={**container.environment(), "NOTIFY_SOCKET": address, journal.MARK: run_journal.run,
                 "CGROUPS": " ".join(map(str, folders)), "CORES": ",".join(map(str, cores))},
        )  # fmt: skip
        # Reaped when it ends, also when the undo journal kills it by its mark.
        threading.Thread(target=nspawn.wait, name=name, daemon=True).start()
        leader = 0
        try:
            leader = _leader(notify, nspawn, log)
        finally:
            if not leader:
                _stop(nspawn, 0)
    return Machine(name, leader, f"/{name}", tree, nspawn)


def _leader(notify: socket.socket, nspawn: subprocess.Popen[bytes], log: BinaryIO) -> int:
    """Return the host PID of PID 1 once the machine reports that it is up."""
    leader = 0
    deadline = time.monotonic() + BOOT_SECONDS
    while True:
        lines: list[str] = []
        with contextlib.suppress(TimeoutError):
            lines = notify.recv(4096).decode(errors="replace").splitlines()
        fields = dict(line.partition("=")[::2] for line in lines)
        leader = int(fields.get("X_NSPAWN_LEADER_PID", leader))
        if leader and fields.get("READY") == "1":
            return leader
        if time.monotonic() > deadline or nspawn.poll() is not None:
            log.seek(0)
            raise errors.CannotError(
                "the machine did not boot",
                why=log.read().decode(errors="replace")[-TAIL:].strip() or "no output",
                todo="`overnight doctor` checks systemd-nspawn",
            )


def _stop(nspawn: subprocess.Popen[bytes], leader: int) -> None:
    # Killing PID 1 of a PID namespace kills everything in it; nspawn then cleans up. Without a PID 1 yet,
    # nspawn itself is killed, and the undo journal removes the rest.
    with contextlib.suppress(ProcessLookupError):
        os.kill(leader or nspawn.pid, signal.SIGKILL)
    try:
        nspawn.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        nspawn.kill()
        nspawn.wait()
