"""Which unit or container a process belongs to, from /proc/PID/cgroup.

One hierarchy per line: several on cgroup v1, one on v2::

    12:memory:/kubepods/burstable/pod7f/3fa9
    1:name=systemd:/system.slice/ecs.service
    0::/system.slice/ssh.service
"""

from __future__ import annotations

import pathlib

from overnight import errors, sources
from overnight.model import cgroups

KINDS = (".service", ".scope", ".socket", ".mount", ".slice")


def parse_cgroup(text: str) -> str:
    """Parse the most specific path: systemd's own hierarchy, else v2's, else the memory controller's.

    >>> parse_cgroup("12:memory:/a\\n1:name=systemd:/system.slice/ecs.service\\n0::/\\n")
    '/system.slice/ecs.service'
    """
    paths = cgroups.parse_membership(text)
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
    units = [part for part in path.split("/") if part.endswith(KINDS) and part[0] != "."]
    # A slice only groups units; it is not a running unit itself.
    running = [unit for unit in units if not unit.endswith(".slice")]
    return (running or [path])[-1]


def read_unit(pid: int, root: pathlib.Path = sources.ROOT) -> str:
    """Read the unit of a process; "" for a kernel thread or a process that has ended."""
    try:
        text = (root / "proc" / str(pid) / "cgroup").read_text(errors="replace")
    except OSError as error:
        errors.raise_own(error)
        return ""
    return unit_of(parse_cgroup(text))
