"""Processes of this host, for the provider `local`: whose they are, and how much CPU they use."""

from __future__ import annotations

import dataclasses
import os
import pathlib
from collections.abc import Collection, Mapping, Sequence

from overnight import sources
from overnight.sources.processes import table

KERNEL = 2  # kthreadd: the parent of every kernel thread
NOTEWORTHY_CORES = 0.1
TICK = os.sysconf("SC_CLK_TCK")
RECORDERS = ("record", "agent", "overnight.agent")
MARK = "OVERNIGHT_RESERVATION"  # in the environment of what a reservation started


@dataclasses.dataclass(frozen=True)
class Process:
    pid: int
    started: str
    parent: int
    session: int
    name: str
    ticks: int
    words: tuple[str, ...] = ()  # of its command line

    @property
    def is_overnight(self) -> bool:
        return "overnight" in {pathlib.PurePath(w).name.partition(".")[0] for w in self.words[:3]}

    @property
    def is_recorder(self) -> bool:
        return self.is_overnight and any(word in RECORDERS for word in self.words[2:])


def read_processes() -> dict[int, Process]:
    found = {}
    for folder in (sources.ROOT / "proc").glob("[0-9]*"):
        text = sources.read_once(folder / "stat", 1024)
        if text:
            words = sources.read_once(folder / "cmdline", 4096) or b""
            found[int(folder.name)] = parse_process(int(folder.name), text, words)
    return found


def parse_process(pid: int, stat: bytes, cmdline: bytes = b"") -> Process:
    r"""Parse /proc/PID/stat and cmdline.

    >>> stat = b"7 (sh) S 1 7 5 0" + b" 0" * 6 + b" 11 22" + b" 0" * 6 + b" 99" + b" 0" * 20
    >>> parse_process(7, stat, b"python3\0-m\0overnight\0record\0").is_recorder
    True
    """
    comm, _, _, utime, stime, started, *_ = table.parse_stat(stat)
    parent, _, session = stat[stat.rindex(b")") + 2 :].split(None, 4)[1:4]
    words = tuple(word.decode(errors="replace") for word in cmdline.split(b"\0")[:-1])
    name = table.display_name(comm)
    return Process(pid, str(started), int(parent), int(session), name, utime + stime, words)


def find_foreign(
    before: Mapping[int, Process],
    after: Mapping[int, Process],
    seconds: float,
    own: Collection[int],
) -> list[tuple[Process, float]]:
    """Return processes with a noteworthy share of CPU and the cores that each used, the largest first.

    Left out are the kernel's, those of overnight, and `own` sessions and processes.
    """
    found = []
    for pid, now in after.items():
        then = before.get(pid)
        if then is None or then.started != now.started:
            continue
        cores = (now.ticks - then.ticks) / TICK / seconds
        kernel = KERNEL in (pid, now.parent)
        if cores >= NOTEWORTHY_CORES and not (
            kernel or now.is_overnight or pid in own or now.session in own
        ):
            found.append((now, cores))
    return sorted(found, key=lambda each: (-each[1], each[0].pid))


def own_session(processes: Mapping[int, Process], pid: int) -> set[int]:
    """Return a process, its ancestors, and its session."""
    own = {processes[pid].session} if pid in processes else set()
    while pid > 1 and pid in processes:
        own.add(pid)
        pid = processes[pid].parent
    return own


def find_marked(processes: Mapping[int, Process], lease_id: str) -> Sequence[Process]:
    """Return the processes that a reservation started."""
    mark = f"{MARK}={lease_id}".encode()
    return [
        process
        for process in processes.values()
        if mark in (sources.read_once(f"/proc/{process.pid}/environ", 1 << 17) or b"").split(b"\0")
    ]
