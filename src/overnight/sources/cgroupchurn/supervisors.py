"""Which unit starts the containers that come and go: the one that acts when they are born.

A supervisor leaves no trace in the cgroup that a runtime creates for it, but it must ask for it: it starts a client in its
own cgroup, is restarted itself, or opens a connection to the runtime's socket (amazon-ecs-init opens one for each
call). Each second is a look: which units did so since the last one. A unit is the supervisor if it acts at the births and
seldom otherwise, so the looks without a birth are counted, too. What only reacts to a new container, such as an agent that
inspects it, acts as often, but after the birth: so the look before a birth and the one after it are counted apart.
With Docker 20.10, the unit was seen a look before 1 to 3 of 12 to 16 births (API) or 17 of 18 (`docker run`), never after.

The kernel lists connections by sock_diag (UNIX_DIAG); the process that has one is found in /proc/PID/fd. Looks are taken
only while containers are born again and again. Measured on 240 processes: a look takes 0.24 ms, a search of all 17 ms.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import fnmatch
import os
import pathlib
import socket
import struct
import time
from collections.abc import Callable, Iterable

from overnight import errors, sources
from overnight.model import cgroups
from overnight.model.actor import CONTAINER

SOCKETS = (b"docker.sock", b"containerd.sock", b"podman.sock", b"crio.sock")
# They act at every birth, whoever asked for it; schedulers start what others wrote down, and much else besides.
BYSTANDERS = (
    "cron*.service", "anacron.service", "atd.service",
    "docker.service", "docker.socket", "containerd.service", "k3s*.service", "rke2*.service", "crio.service", "podman.*",
    "systemd-*", "dbus*.service", "init.scope", "user@*", "kubelet.service", "NetworkManager*.service",
)  # fmt: skip
MAX_NEW = 64  # processes examined in a look
MAX_LINKS = 20_000  # of /proc/PID/fd, in a search of all processes
SEARCH_S = 5.0
PAUSE_S = 3.0
MAX_UNITS = 64
SHOWN = 4  # units of a creator that are recorded

DIAG_BY_FAMILY, DUMP, DONE, ERROR = 20, 0x301, 3, 2
ESTABLISHED, SHOW_NAME, SHOW_PEER = 1 << 1, 1, 4
ATTRIBUTE_NAME, ATTRIBUTE_PEER = 0, 2
REQUEST = struct.Struct("=IHHII BBHIIIII")
HEADER = struct.Struct("=IHHII")
DIAGNOSIS = struct.Struct("=BBBBIII")
ATTRIBUTE = struct.Struct("=HH")
DIAG_TIMEOUT_S = 0.2


def parse_connections(dump: bytes) -> set[int]:
    """Return the inodes of the clients of container runtimes, from netlink messages."""
    peers = set()
    at = 0
    while at + HEADER.size <= len(dump):
        length, kind, *_ = HEADER.unpack_from(dump, at)
        end = min(at + length, len(dump))
        here = at + HEADER.size + DIAGNOSIS.size
        name, peer = b"", 0
        while kind == DIAG_BY_FAMILY and here + ATTRIBUTE.size <= end:
            size, attribute = ATTRIBUTE.unpack_from(dump, here)
            value = dump[here + ATTRIBUTE.size : min(here + size, end)]
            if attribute == ATTRIBUTE_NAME:
                name = value.rstrip(b"\0")
            elif attribute == ATTRIBUTE_PEER and len(value) == 4:
                peer = int.from_bytes(value, "little")
            here += max(ATTRIBUTE.size, (size + 3) & ~3)
        if peer and name.rpartition(b"/")[2] in SOCKETS:
            peers.add(peer)
        at += max(HEADER.size, (length + 3) & ~3)
    return peers


def read_connections() -> set[int]:
    """Ask the kernel for the connections to container runtimes; none where it cannot tell."""
    request = REQUEST.pack(
        REQUEST.size, DIAG_BY_FAMILY, DUMP, 1, 0,
        socket.AF_UNIX, 0, 0, ESTABLISHED, 0, SHOW_NAME | SHOW_PEER, 0xFFFFFFFF, 0xFFFFFFFF,
    )  # fmt: skip
    dump = b""
    try:
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 4) as diag:  # NETLINK_SOCK_DIAG
            diag.settimeout(DIAG_TIMEOUT_S)
            diag.send(request)
            while len(dump) < 1 << 24:
                part = diag.recv(1 << 16)
                dump += part
                if HEADER.unpack_from(part)[1] in (DONE, ERROR):
                    break
    except (OSError, struct.error) as error:
        errors.raise_own(error)
    return parse_connections(dump)


class Actions:
    """Units that started a process or opened a connection to a container runtime since the last look."""

    def __init__(
        self,
        root: pathlib.Path = sources.ROOT,
        *,
        connections: Callable[[], set[int]] = read_connections,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._proc = f"{root}/proc"
        self._connections = connections
        self._clock = clock
        self._pids: set[int] = set()
        self._looked = -SEARCH_S  # the first look, and one after a pause, only learn what is there
        self._open: set[int] = set()
        self._clients: set[int] = set()  # processes that had a connection before: searched first
        self._searched = -SEARCH_S

    def look(self) -> frozenset[str]:
        pids = set(map(int, filter(str.isdigit, sources.list_folder(self._proc))))
        connections = self._connections()
        now = self._clock()
        is_new = now - self._looked < PAUSE_S
        self._looked = now
        started = pids - self._pids if is_new else set()
        opened = connections - self._open if is_new else set()
        self._pids, self._open = pids, connections
        self._clients &= pids
        actors = {*sorted(started)[-MAX_NEW:], *self._owners(opened)}
        return frozenset(filter(None, map(self._unit, actors)))

    def _owners(self, inodes: set[int]) -> set[int]:
        """Find the processes that have these sockets; all processes at most every 5 s."""
        owners = self._search(inodes, self._clients)
        now = self._clock()
        if inodes and not owners and now - self._searched >= SEARCH_S:
            self._searched = now
            owners = self._search(inodes, sorted(self._pids, reverse=True))
            self._clients |= owners
        return owners

    def _search(self, inodes: set[int], pids: Iterable[int]) -> set[int]:
        wanted = {f"socket:[{inode}]" for inode in inodes}
        owners, links = set(), 0
        for pid in pids if wanted else ():
            folder = f"{self._proc}/{pid}/fd"
            for name in sources.list_folder(folder):
                links += 1
                with contextlib.suppress(OSError):
                    if os.readlink(f"{folder}/{name}") in wanted:  # noqa: PTH115 - no Path per name
                        owners.add(pid)
                        break
            if links > MAX_LINKS:
                break
        return owners

    def _unit(self, pid: int) -> str:
        """Return the unit of a process that may be a supervisor; "" of a container or a runtime."""
        text = (sources.read_once(f"{self._proc}/{pid}/cgroup") or b"").decode("utf-8", "replace")
        path = cgroups.parse_own(text)
        unit = cgroups.unit_of(path)
        if unit.startswith("/") or CONTAINER.search(path):
            return ""
        return "" if any(fnmatch.fnmatchcase(unit, each) for each in BYSTANDERS) else unit


@dataclasses.dataclass
class _Tally:
    """Looks since a creator was known: all, those with a birth, and by unit those with a birth and all.

    `led` counts births with an action in the look before, `followed` those with one in the look after.
    """

    looks: int = 0
    births: int = 0
    is_after_birth: bool = False
    both: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)
    acted: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)
    led: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)
    followed: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)


class Coincidences:
    """How often each unit acted when the containers of a creator were born, and how often at all."""

    def __init__(self, look: Callable[[], frozenset[str]]) -> None:
        self._look = look
        self._before: frozenset[str] = frozenset()
        self._tallies: dict[str, _Tally] = {}  # by creator

    def add(self, born: set[str], creators: Iterable[str]) -> None:
        """Look once: `born` are the creators with a birth since the last look.

        A birth may be noticed a look later than the action that led to it.
        """
        now, before = self._look(), self._before
        acted, self._before = now | before, now
        self._tallies = {name: self._tallies.get(name) or _Tally() for name in creators}
        for creator, tally in self._tallies.items():
            is_birth = creator in born
            tally.looks += 1
            tally.births += is_birth
            for unit in acted:
                if unit in tally.acted or len(tally.acted) < MAX_UNITS:
                    tally.acted[unit] += 1
                    tally.both[unit] += is_birth
                    tally.led[unit] += is_birth and unit in before
                    tally.followed[unit] += tally.is_after_birth and unit in now
            tally.is_after_birth = is_birth

    def rows(self) -> sources.Rows:
        """Return the units that coincide most often: births, coincided, looks, acted, led, followed."""
        return {
            f"{creator} {unit}": (
                tally.births,
                count,
                tally.looks,
                tally.acted[unit],
                tally.led[unit],
                tally.followed[unit],
            )
            for creator, tally in self._tallies.items()
            for unit, count in tally.both.most_common(SHOWN)
        }
