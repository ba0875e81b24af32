"""Who a process is, read from /proc/PID once, when it matters: program, command line, user, cgroup, parent."""

from __future__ import annotations

import dataclasses
import os
import pathlib

from overnight import errors, sources
from overnight.model import programs, secrets
from overnight.sources.processes import membership

MAX_COMMAND = 300


@dataclasses.dataclass(frozen=True)
class Identity:
    """`started` is in clock ticks since boot; with the pid it is unique until the next boot."""

    pid: int
    started: int
    parent: int
    comm: str
    executable: str
    arguments: tuple[str, ...]
    user: int | None
    cgroup: str

    @property
    def program(self) -> programs.Program:
        return programs.identify(self.comm, self.executable, self.arguments)

    @property
    def command(self) -> str:
        """The command line without secrets, cut where it is long."""
        text = secrets.mask_random(secrets.mask_named(" ".join(self.arguments)))
        return text if len(text) <= MAX_COMMAND else f"{text[:MAX_COMMAND]}…"


def read_identity(pid: int, root: pathlib.Path = sources.ROOT) -> Identity | None:
    """Read a process; None where it has ended."""
    folder = f"{root}/proc/{pid}"
    stat = sources.read_once(f"{folder}/stat", 1024)
    if not stat:
        return None
    try:
        fields = stat[stat.rindex(b")") + 2 :].split(None, 20)
        comm = sources.clean(stat[stat.index(b"(") + 1 : stat.rindex(b")")])
        parent, started = int(fields[1]), int(fields[19])
    except (ValueError, IndexError):
        return None
    executable, arguments = read_command(folder)
    cgroup = (sources.read_once(f"{folder}/cgroup") or b"").decode("utf-8", "backslashreplace")
    try:
        user = pathlib.Path(folder).stat().st_uid
    except OSError as error:
        errors.raise_own(error)
        user = None
    return Identity(
        pid, started, parent, comm, executable, arguments, user, membership.parse_cgroup(cgroup)
    )


def read_command(folder: str) -> tuple[str, tuple[str, ...]]:
    """Read the executable and the arguments of a process from its folder in /proc.

    Without permission the first argument stands for the executable; a kernel thread has neither.
    """
    arguments = (sources.read_once(f"{folder}/cmdline") or b"").rstrip(b"\0")
    texts = tuple(
        text.decode("utf-8", "backslashreplace") for text in arguments.split(b"\0") if arguments
    )
    try:
        executable = os.readlink(f"{folder}/exe")  # noqa: PTH115 - polled: no Path per name
    except OSError as error:
        errors.raise_own(error)
        executable = texts[0] if texts else ""
    return executable, texts
