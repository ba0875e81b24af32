"""A real machine inside this one: systemd booted by systemd-nspawn on a small tree of its own.

What it is made of, booting.py says. It has no network, and boots in about a second. All of it is written in
the ledger before it is made, so nothing is left of it, however the run ended.
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
import textwrap
import threading
import time
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from overnight import errors
from overnight.machines import container
from overnight.undo import journal, operations

if TYPE_CHECKING:
    from typing import BinaryIO

__all__ = ["Machine", "boot", "unit"]

BOOT_SECONDS = 60
STOP_SECONDS = 20
COMMAND_SECONDS = 60
TAIL = 2000
# It keeps to its cores before it becomes nspawn.
ENTER = container.ENTER + 'exec ${CORES:+taskset -c "$CORES"} systemd-nspawn "$@"'


@dataclasses.dataclass(frozen=True)
class Machine:
    """One that has booted. `leader` is its PID 1 as the host counts; `cgroup` its path there."""

    name: str
    leader: int
    cgroup: str
    tree: pathlib.Path
    folders: tuple[pathlib.Path, ...]
    nspawn: subprocess.Popen[bytes] = dataclasses.field(repr=False, compare=False)

    def run(self, *command: str, check: bool = True) -> str:
        """A command inside it; returns what it printed."""
        done = subprocess.run(
            ["nsenter", "--target", str(self.leader), "--all", "--", *command],
            capture_output=True,
            text=True,
            timeout=COMMAND_SECONDS,
            check=False,
        )
        if check and done.returncode:
            raise errors.CannotError(
                f"{' '.join(command)} failed in the machine {self.name}",
                why=done.stderr.strip() or f"it ended with {done.returncode}",
                todo=f"see the machine's own words in {self.tree / 'log'}",
            )
        return done.stdout

    def path(self, inside: str) -> pathlib.Path:
        """A file of it, as the host reaches it."""
        return pathlib.Path(f"/proc/{self.leader}/root{inside}")

    def stop(self) -> None:
        """At once, without shutting its services down; what it leaves is for the ledger to undo."""
        _stop(self.nspawn, self.leader)


def unit(run: str, *, service: str = "", wanted: bool = True, about: str = "") -> str:
    """The text of a service that runs a shell command, and may be started as often as it likes."""
    text = f"""\
        [Unit]
        Description={about or "A service of a machine"}
        StartLimitIntervalSec=0
        [Service]
        ExecStart=/bin/sh -c '{run}'
        {service.strip().replace(chr(10), chr(10) + " " * 8)}
        [Install]
        WantedBy={"multi-user.target" if wanted else ""}
        """
    return textwrap.dedent(text)


def boot(
    run_journal: journal.Journal,
    units: Mapping[str, str] | None = None,
    files: Mapping[str, str] | None = None,
    *,
    links: Mapping[str, str] | None = None,
    binds: Mapping[str, str] | None = None,
    read_only: Collection[str] = (),
    cores: Collection[int] = (),
    name: str = "",
) -> Machine:
    """Boots a machine with these units (all enabled that are wanted); returns when it is up.

    `files` are texts by their path inside, `links` what they lead to; `binds` are folders of the host, each with the place where the
    machine sees it, to be written to; `read_only` those that it sees where they are. It keeps to `cores`.
    """
    container.require()
    name = name or f"{operations.MACHINES}{os.getpid()}-{time.monotonic_ns() % 10**6}"
    run_journal.write("machine", name)
    tree = pathlib.Path(tempfile.gettempdir()) / name
    run_journal.write("folder", tree)
    tree.mkdir(mode=0o755)
    found = tree.stat()
    # nspawn's two locks of the tree stay when it is killed.
    run_journal.write("file", tree.with_name(f".#{name}.lck"))
    run_journal.write("file", operations.NSPAWN / f"locks/inode-{found.st_dev}:{found.st_ino}")
    container.plant(tree, units or {})
    for inside, text in (files or {}).items():
        container.place(tree, inside).write_text(text)
    for inside, target in (links or {}).items():
        container.place(tree, inside).symlink_to(target)
    folders = tuple(top / name for top in container.tops())
    for folder in folders:
        run_journal.write("cgroup", folder)
        folder.mkdir()
    shown = [f"--bind={outside}:{inside}" for outside, inside in (binds or {}).items()]
    shown += [
        "--private-network",
        "--notify-ready=yes",
        f"--setenv={journal.MARK}={run_journal.run}",
    ]
    words = container.words(name, tree, *shown, read_only=read_only)
    return _boot(run_journal, name, tree, folders, words, cores)


def _boot(
    run_journal: journal.Journal,
    name: str,
    tree: pathlib.Path,
    folders: tuple[pathlib.Path, ...],
    words: list[str],
    cores: Collection[int],
) -> Machine:
    with (
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as told,
        (tree / "log").open("w+b") as log,
    ):
        address = str(tree / "notify")
        told.bind(address)
        told.settimeout(1)
        nspawn = subprocess.Popen(
            ["/bin/sh", "-c", ENTER, "nspawn", *words],
            stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            env={**container.environment(), "NOTIFY_SOCKET": address, journal.MARK: run_journal.run,
                 "CGROUPS": " ".join(map(str, folders)), "CORES": ",".join(map(str, cores))},
        )  # fmt: skip
        # Fetched when it ends, whoever ends it: the ledger kills it by its mark.
        threading.Thread(target=nspawn.wait, name=name, daemon=True).start()
        leader = 0
        try:
            leader = _leader(told, nspawn, log)
        finally:
            if not leader:
                _stop(nspawn, 0)
    return Machine(name, leader, f"/{name}", tree, folders, nspawn)


def _leader(told: socket.socket, nspawn: subprocess.Popen[bytes], log: BinaryIO) -> int:
    """PID 1 of the machine, as soon as it says that it is up."""
    leader = 0
    deadline = time.monotonic() + BOOT_SECONDS
    while True:
        lines: list[str] = []
        with contextlib.suppress(TimeoutError):
            lines = told.recv(4096).decode(errors="replace").splitlines()
        words = dict(line.partition("=")[::2] for line in lines)
        leader = int(words.get("X_NSPAWN_LEADER_PID", leader))
        if leader and words.get("READY") == "1":
            return leader
        if time.monotonic() > deadline or nspawn.poll() is not None:
            log.seek(0)
            raise errors.CannotError(
                "the machine did not boot",
                why=log.read().decode(errors="replace")[-TAIL:].strip() or "it said nothing",
                todo="see that systemd-nspawn works here: overnight doctor",
            )


def _stop(nspawn: subprocess.Popen[bytes], leader: int) -> None:
    # PID 1 of a PID namespace takes everything in it along; nspawn then clears up behind itself. One that
    # has no PID 1 yet is killed itself, and the ledger does the rest.
    with contextlib.suppress(ProcessLookupError):
        os.kill(leader or nspawn.pid, signal.SIGKILL)
    try:
        nspawn.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        nspawn.kill()
        nspawn.wait()
