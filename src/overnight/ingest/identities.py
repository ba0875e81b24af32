"""Remembers who the processes of this host are, also for a while after they ended.

Samples carry a pid and, from the kernel's records, the moment of its fork. Both are needed: a pid is reused.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import os
import pathlib
import time
from collections.abc import Collection

from overnight import errors, sources
from overnight.model.times import SECOND_NS
from overnight.sources.processes import identity, membership

REFRESH_SECONDS = 5.0
FORGET_SECONDS = 600.0
MAX_NEW = 300  # a refresh; about 60 us each
MAX_PROCESSES = 20_000
# A young process may still run its parent's program: it is read again.
YOUNG_SECONDS = 2.0
# A start time is a clock tick (10 ms), and the kernel records the fork a little later.
TOLERANCE_NS = 100_000_000
# Another boot has another difference between the wall clock and the time since boot.
BOOT_TOLERANCE_NS = 60 * SECOND_NS
TICKS = os.sysconf("SC_CLK_TCK")


class Registry:
    """The processes seen so far, by pid and start time; times are of CLOCK_MONOTONIC, in ns."""

    def __init__(self, root: pathlib.Path = sources.ROOT) -> None:
        self.root = root
        self._known: dict[int, tuple[identity.Identity, ...]] = {}  # the latest last
        self._alive: set[int] = set()
        self._young: set[int] = set()
        self._read_ns: dict[int, int] = {}
        self._ended: dict[int, float] = {}
        self._due = 0.0

    def refresh(self) -> None:
        """Read new processes, every few seconds: listing 2,000 takes 1 ms (measured)."""
        now = time.monotonic()
        if now < self._due:
            return
        limit = MAX_NEW if self._due else MAX_PROCESSES
        self._due = now + REFRESH_SECONDS
        names = os.listdir(self.root / "proc")  # noqa: PTH208 - polled: no Path per name
        listed = {int(name) for name in names if name.isdigit()}
        self._ended.update(dict.fromkeys(self._alive - listed, now))
        self._alive &= listed
        self._young &= listed
        for pid in itertools.islice(self._young | listed - self._alive, limit):
            self._alive.add(pid)
            self._ended.pop(pid, None)
            self.read(pid)
        for pid in [pid for pid, when in self._ended.items() if now - when > FORGET_SECONDS]:
            del self._ended[pid]
            self._known.pop(pid, None)
            self._read_ns.pop(pid, None)

    def read(self, pid: int) -> None:
        """Read a process; one without a command line is just being started, or belongs to the kernel."""
        now = time.monotonic_ns()
        found = identity.read_identity(pid, self.root)
        self._young.discard(pid)
        if found is None:
            return
        age = time.clock_gettime(time.CLOCK_BOOTTIME) - found.started / TICKS
        if 0 <= age < YOUNG_SECONDS:
            self._young.add(pid)
            if not found.arguments:
                return
        if pid in self._known or len(self._known) < MAX_PROCESSES:
            others = (each for each in self._known.get(pid, ()) if each.started != found.started)
            self._known[pid] = (*others, found)[-2:]
            self._read_ns[pid] = now

    def find(
        self,
        pid: int,
        start: int,
        begin: int,
        executable: str = "",
        *,
        execed: int = 0,
        ended: bool = False,
    ) -> identity.Identity | None:
        """Return the process with this pid that began at `start`; 0: before the recording's `begin`.

        One that has not ended is read where it is not known, was known with another executable, or was read
        before its last exec. Of one that ended before it could be read again, the program is not known.
        """
        found = self._match(pid, start, begin)
        is_old = self._read_ns.get(pid, 0) < execed
        if not ended and (found is None or is_old or not same_file(found.executable, executable)):
            self.read(pid)
            found = self._match(pid, start, begin)
        if found is not None and self._read_ns.get(pid, 0) < execed:
            return dataclasses.replace(found, executable="", arguments=())
        return found

    @property
    def pids(self) -> Collection[int]:
        return self._known.keys()

    def is_of_this_boot(self, shift: int) -> bool:
        """Return whether a recording is of this boot; `shift` is wall clock less CLOCK_MONOTONIC."""
        return abs(time.time_ns() - time.monotonic_ns() - shift) < BOOT_TOLERANCE_NS

    def _match(self, pid: int, start: int, begin: int) -> identity.Identity | None:
        for each in reversed(self._known.get(pid, ())):
            own = started_ns(each)
            if abs(own - start) <= TOLERANCE_NS if start else own <= begin + TOLERANCE_NS:
                return each
        return None


def started_ns(process: identity.Identity) -> int:
    """Return when a process of this boot began, on CLOCK_MONOTONIC, which does not count suspend."""
    asleep = time.clock_gettime_ns(time.CLOCK_BOOTTIME) - time.monotonic_ns()
    return process.started * SECOND_NS // TICKS - asleep


def same_file(first: str, second: str) -> bool:
    """Compare two paths of an executable by name: a container has other paths. "" is unknown."""
    names = {path.removesuffix(" (deleted)").rpartition("/")[2] for path in (first, second) if path}
    return len(names) < 2


def user_name(user: int | None, root: pathlib.Path = sources.ROOT) -> str:
    """Return a user's name from /etc/passwd, which needs no network; else its number; "" for None."""
    if user is None:
        return ""
    try:
        changed = (root / "etc/passwd").stat().st_mtime_ns
    except OSError as error:
        errors.raise_own(error)
        return str(user)
    return _read_users(str(root), changed).get(str(user), str(user))


@functools.lru_cache(maxsize=2)
def _read_users(root: str, _changed: int) -> dict[str, str]:
    text = sources.read_once(f"{root}/etc/passwd", 1 << 20) or b""
    fields = (line.split(":") for line in text.decode("utf-8", "replace").splitlines())
    return {parts[2]: sources.clean(parts[0]) for parts in fields if len(parts) > 2}


@functools.lru_cache(maxsize=4096)
def command_of(process: identity.Identity) -> str:
    """Return the command line without secrets; finding them takes 0.1 ms."""
    return process.command


def pod_of(cgroup: str, root: pathlib.Path = sources.ROOT) -> str:
    """Return `namespace/pod`, else the pod's UID; "" outside of pods."""
    uid = membership.parse_pod(cgroup)
    return membership.read_pods(root).get(uid, uid)
