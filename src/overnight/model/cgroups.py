"""Which cgroup hierarchies a host has, and how the paths in them are written down.

Here and not in a source, because several sources need it and a source never imports another.
"""

from __future__ import annotations

import dataclasses
import hashlib
import pathlib
import re
from collections.abc import Iterable

from overnight.model import mounts
from overnight.model.text import printable

MAX_KEY = 200
UNITS = (".service", ".scope", ".socket", ".mount", ".slice")
SHARED_SLICE = re.compile(
    r"(?:^|/)(?:system|machine|user|user-\d+|app|background|session)\.slice$|/user@\d+\.service$|^/$"
)


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


def parse_own(text: str) -> str:
    """Parse the most specific path of a process: systemd's own hierarchy, else v2's, else the memory controller's.

    >>> parse_own("12:memory:/a\\n1:name=systemd:/system.slice/ecs.service\\n0::/\\n")
    '/system.slice/ecs.service'
    """
    paths = parse_membership(text)
    memory = next((path for names, path in paths.items() if "memory" in names.split(",")), "")
    for path in (paths.get("name=systemd", ""), paths.get("", ""), memory):
        if path.strip("/"):
            return path
    return ""


def unit_of(path: str) -> str:
    """Return the innermost unit of a cgroup's path; the path itself where it names none.

    >>> unit_of("/system.slice/ecs.service/task"), unit_of("/kubepods/pod7f"), unit_of("")
    ('ecs.service', '/kubepods/pod7f', '')
    """
    units = [part for part in path.split("/") if part.endswith(UNITS) and part[0] != "."]
    # A slice only groups units; it is not a running unit itself.
    running = [unit for unit in units if not unit.endswith(".slice")]
    return (running or [path])[-1]


def is_shared_slice(cgroup: str) -> bool:
    """Return whether timers, sessions and jobs of many units come and go below this cgroup on any healthy host."""
    return SHARED_SLICE.search(cgroup) is not None


def names_of(container: str) -> dict[str, str]:
    """Return the names in the key of a container that a runtime creates again and again.

    >>> names_of("docker:ecs-agent"), names_of("docker:image=busybox")
    ({'runtime': 'docker', 'container': 'ecs-agent'}, {'runtime': 'docker', 'image': 'busybox'})
    >>> names_of("containerd:default/agent")
    {'runtime': 'containerd', 'namespace': 'default', 'container': 'agent'}
    >>> names_of("docker:?"), names_of("systemd:run-*.scope"), names_of("/docker")
    ({'runtime': 'docker'}, {'runtime': 'systemd'}, {})
    """
    runtime, colon, rest = container.partition(":")
    if not colon or runtime.startswith("/"):
        return {}
    if rest.startswith("image="):
        return {"runtime": runtime, "image": rest.removeprefix("image=")}
    group, _, name = rest.rpartition("/")
    names = {"runtime": runtime}
    if runtime == "containerd" and group:
        names["namespace"] = group
    return names if name == "?" or runtime == "systemd" else {**names, "container": name}


def describe(container: str) -> str:
    """Describe what the key of a container names; "" for a cgroup's path.

    >>> describe("docker:ecs-agent"), describe("docker:image=busybox"), describe("podman:?")
    ('container ecs-agent', 'a container of image busybox', 'a container of Podman')
    >>> describe("systemd:run-*.scope"), describe("/docker")
    ('transient unit run-*.scope', '')
    """
    names = names_of(container)
    if "container" in names:
        return f"container {names['container']}"
    if "image" in names:
        return f"a container of image {names['image']}"
    if names.get("runtime") == "systemd":
        return f"transient unit {container.partition(':')[2]}"
    return f"a container of {title_of(names['runtime'])}" if names else ""


def title_of(runtime: str) -> str:
    return {"docker": "Docker", "podman": "Podman", "cri-o": "CRI-O"}.get(runtime, runtime)


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
