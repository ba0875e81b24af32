"""Which cgroup hierarchies a host has, and how the paths in them are written down.

Here and not in a source, because several sources need it and a source never imports another.
"""

from __future__ import annotations

import dataclasses
import hashlib
import pathlib
from collections.abc import Iterable

from overnight.model import mounts
from overnight.model.text import printable

MAX_KEY = 200


@dataclasses.dataclass(frozen=True)
class Layout:
    """Which cgroup hierarchies are mounted, and where the memory and the CPU controller are."""

    version: str  # "v1", "v2", "hybrid" or "none"
    memory: pathlib.PurePosixPath | None
    unified: pathlib.PurePosixPath | None
    systemd: pathlib.PurePosixPath | None = None  # v1's hierarchy without a controller
    memory_version: int = 0  # 1 or 2: which interface the memory controller has; 0 for none
    # False: a container shows only its own part, and counts there say nothing about the host.
    whole: bool = True
    cpu: pathlib.PurePosixPath | None = None
    cpu_version: int = 0


def parse_layout(mountinfo: str) -> Layout:
    return _find_layout(mounts.parse_mounts(mountinfo))


def _find_layout(mounted: Iterable[mounts.Mount]) -> Layout:
    """Find the hierarchies. The mounts decide, not the kernel version: a 6.18 host may run v1 (measured)."""
    memory = unified = systemd = cpu = None
    v1 = False
    roots: dict[pathlib.PurePosixPath, str] = {}
    for mount in mounted:
        place = pathlib.PurePosixPath(mount.path)
        if mount.type == "cgroup2":
            unified = unified or place
        elif mount.type == "cgroup":
            v1 = True
            if "memory" in mount.options:
                memory = memory or place
            if "cpu" in mount.options:
                cpu = cpu or place
            if "name=systemd" in mount.options:
                systemd = systemd or place
        else:
            continue
        roots.setdefault(place, mount.root)
    version = ("hybrid" if unified else "v1") if v1 else "v2" if unified else "none"
    where = memory or unified
    interface = 1 if memory else 2 if unified else 0
    whole = where is None or roots[where] == "/"
    cpu_version = 1 if cpu else 2 if unified else 0
    return Layout(version, where, unified, systemd, interface, whole, cpu or unified, cpu_version)


def read_layout(root: pathlib.Path = pathlib.Path("/")) -> Layout:
    return _find_layout(mounts.read_mounts(root))


def parse_membership(text: str) -> dict[str, str]:
    """Parse /proc/PID/cgroup: the process's path by hierarchy ("" is v2's).

    >>> parse_membership("12:memory:/a\\n0::/b\\n")
    {'memory': '/a', '': '/b'}
    """
    lines = (line.partition(":")[2].partition(":") for line in text.splitlines())
    return {controllers: path for controllers, _, path in lines}


def key_of(path: bytes) -> str:
    r"""Return a cgroup's path as the key of a row: printable, and short however long the path is.

    >>> key_of(b"/system.slice/ecs.service"), key_of(b"/a\x1b[1m\xff")
    ('/system.slice/ecs.service', '/a\\x1b[1m\\xff')
    """
    text = printable(path.decode("utf-8", "backslashreplace"))
    if len(text) <= MAX_KEY:
        return text
    # Two long paths that begin alike stay two keys.
    digest = hashlib.blake2b(path, digest_size=4).hexdigest()
    return f"{text[: MAX_KEY - 10]}…{digest}"
