"""Cgroups created and removed: the only trace of a crash loop under a service's own supervisor.

inotify reports every mkdir and rmdir in the hierarchies, also of a cgroup that lived half a second
between two polls. Measured on 931 directories: an idle poll takes 3 us, 200 births and deaths 190 us;
scanning them each second takes 6 ms and misses what lives shorter than a second.

The kernel does not remove a watch with its cgroup (kernfs keeps the link count, so no IN_IGNORED
comes; measured on 6.18). This module removes it, or its inode would stay for ever.

A container runtime creates the cgroups of others below a parent that all containers share. Those births are
counted by container (`containers.Container.key`) instead of by parent.
"""

from __future__ import annotations

import ctypes
import dataclasses
import errno
import os
import pathlib
import struct
import time
import weakref
from collections.abc import Callable

from overnight import errors, sources
from overnight.model import cgroups
from overnight.sources.cgroupchurn import containers, supervisors

IN_CREATE = 0x100
IN_DELETE = 0x200
IN_Q_OVERFLOW = 0x4000
IN_ONLYDIR = 0x01000000
IN_DONT_FOLLOW = 0x02000000
IN_ISDIR = 0x40000000
EVENT = struct.Struct("iIII")
READ_BYTES = 65536

SHORT_S = 60.0
MAX_WATCHES = 4096
MAX_PARENTS = 512
QUIET_S = 900.0  # a parent without births or deaths for this long has no row
PROGRAMS = 4  # names of what ran in a creator's cgroups
NAME_POLLS = 3  # a new container still runs the runtime's own program
MAX_NAMED = 16  # cgroups whose programs are read in a poll
UNWATCHED = "(unwatched)"  # directories beyond the bound on watches

BORN, DIED, SHORT, LIVED_MS, LAST = range(5)


@dataclasses.dataclass(slots=True)
class _Directory:
    """A watched cgroup."""

    hierarchy: int
    path: bytes
    watch: int
    born: float  # 0 for one that existed before the recorder started
    counted_as: bytes = b""  # the parent, or the key of a container's creator


@dataclasses.dataclass(slots=True)
class _Creator:
    """A container whose cgroups are born again and again."""

    container: containers.Container
    cgroup: str
    programs: dict[str, None] = dataclasses.field(default_factory=dict)

    def fact(self) -> sources.Fact:
        container = self.container
        return {
            "runtime": container.runtime,
            "cgroup": self.cgroup,
            "container": container.name,
            "image": container.image,
            "group": container.group,
            "restarted": container.restarted,
            "programs": ", ".join(self.programs),
        }


class Churn:
    """Counts births and deaths of cgroups by parent directory.

    One cgroup has a directory in several hierarchies: each hierarchy is counted separately, and a row
    shows the highest count. A cgroup that is born and dies between two polls counts as living 0 ms.
    With a `root`, containers are named by the state of its runtimes.
    """

    def __init__(
        self,
        tops: tuple[str, ...],
        *,
        root: pathlib.Path | None = None,
        max_watches: int = MAX_WATCHES,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._inotify = -1
        self._tops = tuple(os.fsencode(top) for top in tops)
        self._max_watches = max_watches
        self._clock = clock
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._by_path: dict[tuple[int, bytes], _Directory] = {}
        self._by_watch: dict[int, _Directory] = {}
        # (hierarchy, parent) -> born, died, short-lived, ms lived, when last
        self._counts: dict[tuple[int, bytes], list[float]] = {}
        self.unwatched = 0
        self._containers = containers.Containers(root) if root else None
        self._coincidences = supervisors.Coincidences(
            supervisors.Actions(root or sources.ROOT).look
        )
        self._creators: dict[bytes, _Creator] = {}
        self._repeated: list[bytes] = []  # creators with more than one birth
        self._born: set[str] = set()  # creators with a birth since the last poll
        self._unnamed: dict[tuple[int, bytes], int] = {}  # new cgroups of containers, polls left
        self._inotify = self._libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if self._inotify < 0:
            code = ctypes.get_errno()
            problem = f"inotify: {os.strerror(code)}; see fs.inotify.max_user_instances"
            errors.raise_own(OSError(code, problem))
            raise sources.NoDataError(problem)
        self._rescan(0.0)

    def fileno(self) -> int:
        """Return the inotify descriptor: readable when a cgroup was created or removed."""
        return int(self._inotify)

    def close(self) -> None:
        if self._inotify >= 0:
            os.close(self._inotify)
            self._inotify = -1

    def __del__(self) -> None:
        self.close()  # a reader is dropped together with its files

    def read(self) -> sources.Rows:
        """Return the counters since the start, by parent."""
        now = self._clock()
        if self._containers:
            self._containers.begin_poll()
        self._drain(now)
        self._forget(now)
        self._read_programs()
        often = {key for (_, key), counted in self._counts.items() if counted[BORN] > 1}
        self._repeated = [key for key in self._creators if key in often]
        if self._repeated:
            self._coincidences.add(self._born, map(os.fsdecode, self._repeated))
        self._born.clear()
        rows: dict[str, tuple[int, ...]] = {}
        for (_, parent), counted in self._counts.items():
            key = cgroups.key_of(parent or b"/")
            row = tuple(map(int, counted[:LAST]))
            rows[key] = max(rows.get(key, row), row)
        if self.unwatched:
            rows[UNWATCHED] = (self.unwatched, 0, 0, 0)
        return rows

    def read_creators(self) -> sources.Facts:
        """Return what is known of each container that is created repeatedly, by its key."""
        return {cgroups.key_of(key): self._creators[key].fact() for key in self._repeated}

    def read_supervisors(self) -> sources.Rows:
        """Return the units that acted when containers were born, by creator and unit."""
        return self._coincidences.rows()

    def _drain(self, now: float) -> None:
        """Read the queue to its end: a burst may take several reads."""
        lost = False
        while True:
            try:
                data = os.read(self._inotify, READ_BYTES)
            except BlockingIOError:
                break
            at = 0
            while at < len(data):
                watch, mask, _, length = EVENT.unpack_from(data, at)
                name = data[at + EVENT.size : at + EVENT.size + length].rstrip(b"\0")
                at += EVENT.size + length
                if mask & IN_Q_OVERFLOW:
                    lost = True
                elif mask & IN_ISDIR and (parent := self._by_watch.get(watch)) is not None:
                    if mask & IN_CREATE:
                        self._add_birth(parent, name, now)
                    elif mask & IN_DELETE:
                        self._add_death(parent.hierarchy, parent.path, name, now)
        if lost:
            self._rescan(now)

    def _add_birth(self, parent: _Directory, name: bytes, now: float) -> None:
        hierarchy = parent.hierarchy
        waiting = [(parent.path, name)]
        while waiting:
            above, name = waiting.pop()
            path = above + b"/" + name
            key = (hierarchy, path)
            if key in self._by_path:
                continue  # a scan was quicker than the event
            creator = self._count_birth(hierarchy, above, name, now)
            self._watch(hierarchy, path, now, creator)
            if key in self._by_path:
                # Directories created in it before the watch was set.
                below = sources.child_directories(self._tops[hierarchy] + path)
                waiting.extend((path, child.name) for child in below)

    def _count_birth(self, hierarchy: int, above: bytes, name: bytes, now: float) -> bytes:
        """Count a birth, and return as what: the parent, or a container's creator."""
        counted_as = above
        inside = self._by_path.get((hierarchy, above))
        if self._containers and not (inside and inside.counted_as in self._creators):
            parent = cgroups.key_of(above)
            container = self._containers.find(parent, os.fsdecode(name))
            if container is not None:
                counted_as = os.fsencode(container.key)
                creator = self._creators.setdefault(counted_as, _Creator(container, parent))
                creator.container, creator.cgroup = container, parent
                self._born.add(cgroups.key_of(counted_as))
                self._unnamed[hierarchy, above + b"/" + name] = NAME_POLLS
        self._counters(hierarchy, counted_as, now)[BORN] += 1
        return counted_as

    def _read_programs(self) -> None:
        """Read the names of what runs in new cgroups of containers."""
        for key in list(self._unnamed)[:MAX_NAMED]:
            hierarchy, path = key
            directory = self._by_path.get(key)
            creator = self._creators.get(directory.counted_as) if directory else None
            programs = _programs_of(os.fsdecode(self._tops[hierarchy] + path)) if creator else []
            self._unnamed[key] -= 1
            if creator and len(creator.programs) < PROGRAMS:
                creator.programs.update(dict.fromkeys(programs[:PROGRAMS]))
            if programs or not creator or not self._unnamed[key]:
                del self._unnamed[key]

    def _add_death(self, hierarchy: int, parent: bytes, name: bytes, now: float) -> None:
        dead = self._by_path.pop((hierarchy, parent + b"/" + name), None)
        counted_as = dead.counted_as if dead and dead.counted_as else parent
        counters = self._counters(hierarchy, counted_as, now)
        counters[DIED] += 1
        if dead is None:
            self.unwatched = max(0, self.unwatched - 1)
            return
        if dead.watch >= 0:
            self._by_watch.pop(dead.watch, None)
            self._libc.inotify_rm_watch(self._inotify, dead.watch)
        if dead.born:
            lived = now - dead.born
            counters[SHORT] += lived < SHORT_S
            counters[LIVED_MS] += lived * 1000
        self._counts.pop((hierarchy, dead.path), None)  # a parent that was removed has no row

    def _watch(self, hierarchy: int, path: bytes, born: float, counted_as: bytes = b"") -> None:
        """Remember a directory, and watch it while there are watches left."""
        watch = -1
        if len(self._by_watch) < self._max_watches:
            watch = self._libc.inotify_add_watch(
                self._inotify,
                self._tops[hierarchy] + path,
                IN_CREATE | IN_DELETE | IN_ONLYDIR | IN_DONT_FOLLOW,
            )
            if watch < 0 and ctypes.get_errno() == errno.ENOSPC:  # fs.inotify.max_user_watches
                self.unwatched += 1
            if watch < 0 and not born:
                return  # gone between the scan and now
        else:
            self.unwatched += 1
            # Its parent's watch still reports its death, so its lifetime is worth remembering.
            if not born or len(self._by_path) >= 2 * self._max_watches:
                return
        directory = _Directory(hierarchy, path, watch, born, counted_as)
        self._by_path[hierarchy, path] = directory
        if watch >= 0:
            self._by_watch[watch] = directory

    def _rescan(self, now: float) -> None:
        """Scan the hierarchies: at the start, and when the kernel's queue overflowed."""
        seen = set()
        for hierarchy in range(len(self._tops)):
            waiting = [b""]
            while waiting:
                path = waiting.pop()
                seen.add((hierarchy, path))
                if (hierarchy, path) not in self._by_path:
                    above, _, name = path.rpartition(b"/")
                    is_birth = now and not self.unwatched
                    creator = self._count_birth(hierarchy, above, name, now) if is_birth else b""
                    self._watch(hierarchy, path, now, creator)
                below = sources.child_directories(self._tops[hierarchy] + path)
                waiting.extend(path + b"/" + child.name for child in below)
        for hierarchy, path in sorted(self._by_path.keys() - seen, reverse=True):
            parent, _, name = path.rpartition(b"/")
            self._add_death(hierarchy, parent, name, now)

    def _counters(self, hierarchy: int, parent: bytes, now: float) -> list[float]:
        counters = self._counts.setdefault((hierarchy, parent), [0.0] * 5)
        counters[LAST] = now
        return counters

    def _forget(self, now: float) -> None:
        quiet = [key for key, counted in self._counts.items() if now - counted[LAST] > QUIET_S]
        if len(self._counts) - len(quiet) > MAX_PARENTS:
            oldest = sorted(self._counts, key=lambda key: self._counts[key][LAST])
            quiet = oldest[: len(oldest) - MAX_PARENTS]
        for key in quiet:
            del self._counts[key]
        counted = {parent for _, parent in self._counts}
        for creator in self._creators.keys() - counted:
            del self._creators[creator]


def _programs_of(folder: str) -> list[str]:
    """Return the names of the processes in a cgroup, without a runtime's that is still to start them."""
    pids = (sources.read_once(f"{folder}/cgroup.procs", 256) or b"").split()[:PROGRAMS]
    names = (sources.read_once(f"/proc/{int(pid)}/comm", 64) for pid in pids if pid.isdigit())
    texts = [sources.clean(name.strip(b"\n"))[:15] for name in names if name]
    return [text for text in texts if not text.startswith(("runc", "crun", "docker-init"))]


def hierarchies(root: pathlib.Path) -> tuple[str, ...]:
    """List the directories to watch.

    The memory controller's, where leaks happen; and systemd's own, because a unit has a cgroup there
    even without memory accounting, and a machine inside this one may write nowhere else.
    """
    layout = sources.read_cgroup_layout(root)
    wanted = dict.fromkeys((layout.memory, layout.systemd, layout.unified))
    tops = tuple(str(root / mount.relative_to("/")) for mount in wanted if mount is not None)
    if not tops:
        raise sources.NoDataError("no cgroup hierarchy is mounted")
    return tops


# The last reader of each root, from which the other two signals are read, too.
_churns: weakref.WeakValueDictionary[pathlib.Path, Churn] = weakref.WeakValueDictionary()


def open_churn(root: pathlib.Path) -> sources.Reader:
    churn = _churns[root] = Churn(hierarchies(root), root=root)
    return churn.read


def _latest(root: pathlib.Path) -> Churn:
    churn = _churns.get(root)
    if churn is None:
        raise sources.NoDataError("cgroup-births is not recorded")
    return churn


def open_creators(root: pathlib.Path) -> sources.FactReader:
    return lambda: _latest(root).read_creators()


def open_supervisors(root: pathlib.Path) -> sources.Reader:
    return lambda: _latest(root).read_supervisors()


COLUMNS = ("born", "died", "short_lived", "lived")
SIGNALS = (
    sources.Signal("cgroup-births", 1.0, "cgroup", COLUMNS, open_churn),
    sources.FactSignal("cgroup-creators", 10.0, "creator", open_creators),
    sources.Signal(
        "cgroup-supervisors", 10.0, "creator and unit",
        ("births", "coincided", "looks", "acted", "led", "followed"), open_supervisors,
    ),
)  # fmt: skip
