"""Which unit or container a process belongs to, from /proc/PID/cgroup.

One hierarchy per line: several on cgroup v1, one on v2::

    12:memory:/kubepods/burstable/pod7f/3fa9
    1:name=systemd:/system.slice/ecs.service
    0::/system.slice/ssh.service
"""

from __future__ import annotations

import functools
import pathlib
import re

from overnight import errors, sources
from overnight.model import cgroups
from overnight.model.actor import CONTAINER

# systemd's driver writes the UID's dashes as underscores: kubepods-burstable-pod7f0c_11ee.slice
POD = re.compile(
    r"(?:^|[/-])pod([0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12}|[0-9a-f]{32})(?=[./]|$)"
)
PODS = "var/log/pods"
parse_cgroup = cgroups.parse_own
unit_of = cgroups.unit_of


def parse_pod(path: str) -> str:
    """Return the UID of the pod that a cgroup belongs to; "" for none.

    >>> parse_pod("/kubepods/besteffort/pod0f3a1b2c-1111-2222-3333-444455556666/3fa9")
    '0f3a1b2c-1111-2222-3333-444455556666'
    """
    match = POD.search(path)
    return match[1].replace("_", "-") if match else ""


def parse_container(path: str) -> str:
    """Return the beginning of the container's id, as its tools show it; "" for none."""
    match = CONTAINER.search(path)
    return match[1] if match else ""


def read_pods(root: pathlib.Path = sources.ROOT) -> dict[str, str]:
    """Return `namespace/pod` by UID, from kubelet's folders NAMESPACE_POD_UID."""
    try:
        changed = (root / PODS).stat().st_mtime_ns
    except OSError as error:
        errors.raise_own(error)
        return {}
    return _list_pods(f"{root}/{PODS}", changed)


@functools.lru_cache(maxsize=2)
def _list_pods(folder: str, _changed: int) -> dict[str, str]:
    names = (name.split("_") for name in sources.list_folder(folder))
    return {
        parts[2]: f"{sources.clean(parts[0])}/{sources.clean(parts[1])}"
        for parts in names
        if len(parts) == 3
    }


def owner_of(path: str, root: pathlib.Path = sources.ROOT) -> str:
    """Return the pod, else the unit of a cgroup's path, as `unit_of` does."""
    uid = parse_pod(path)
    return (uid and read_pods(root).get(uid)) or unit_of(path)


def read_unit(pid: int, root: pathlib.Path = sources.ROOT) -> str:
    """Read the pod or unit of a process; "" for a kernel thread or a process that has ended."""
    try:
        text = (root / "proc" / str(pid) / "cgroup").read_text(errors="replace")
    except OSError as error:
        errors.raise_own(error)
        return ""
    return owner_of(parse_cgroup(text), root)
