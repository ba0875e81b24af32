"""Which unit or container a process belongs to, from /proc/PID/cgroup.

One hierarchy a line, on cgroup v1 several, on v2 one::

    12:memory:/kubepods/burstable/pod7f/3fa9
    1:name=systemd:/system.slice/ecs.service
    0::/system.slice/ssh.service
"""

from __future__ import annotations

import pathlib

from overnight import sources

__all__ = ["parse_cgroup", "read_unit", "unit_of"]

KINDS = (".service", ".scope", ".socket", ".mount", ".slice")


def parse_cgroup(text: str) -> str:
    """The path that says most: systemd's own hierarchy, else v2's, else the memory controller's.

    >>> parse_cgroup("12:memory:/a\\n1:name=systemd:/system.slice/ecs.service\\n0::/\\n")
    '/system.slice/ecs.service'
    """
    paths = {}
    for line in text.splitlines():
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        paths[controllers] = path
    memory = next((path for names, path in paths.items() if "memory" in names.split(",")), "")
    for path in (paths.get("name=systemd", ""), paths.get("", ""), memory):
        if path.strip("/"):
            return path
    return ""


def unit_of(path: str) -> str:
    """The innermost unit of a cgroup's path; the path itself where no systemd named it.

    >>> unit_of("/system.slice/ecs.service/task"), unit_of("/kubepods/pod7f"), unit_of("")
    ('ecs.service', '/kubepods/pod7f', '')
    """
    units = [part for part in path.split("/") if part.endswith(KINDS) and part[0] != "."]
    # A slice is a shelf, not a unit that runs: name it only when there is nothing on it.
    running = [unit for unit in units if not unit.endswith(".slice")]
    return (running or [path])[-1]


def read_unit(pid: int, root: pathlib.Path = sources.ROOT) -> str:
    """The unit of a process that lives; '' for kernel threads and those that have ended."""
    try:
        text = (root / "proc" / str(pid) / "cgroup").read_text(errors="replace")
    except OSError:
        return ""
    return unit_of(parse_cgroup(text))
