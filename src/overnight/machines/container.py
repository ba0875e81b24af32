"""File tree, cgroups and nspawn arguments of a machine that is booted in a container.

Rehearsals (nspawn.py) and warm pools (pools/providers/nspawn.py) boot such machines. The tree has the host's /usr,
read-only, and nothing else of it; the machine runs in its own cgroups, where all its processes are found.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import shutil
import sys
from collections.abc import Iterable, Mapping

from overnight import errors
from overnight.model import cgroups

FOLDERS = ("usr", "etc/systemd/system/multi-user.target.wants", "var", "run", "proc", "sys", "dev", "tmp", "root")  # fmt: skip
# Not needed in such a machine, and slow to start.
MASKED = ("dbus.service", "dbus.socket", "systemd-logind.service", "systemd-user-sessions.service", "systemd-sysctl.service", "systemd-networkd.service", "systemd-resolved.service", "systemd-timesyncd.service", "apt-daily.timer", "apt-daily-upgrade.timer", "dpkg-db-backup.timer", "e2scrub_all.timer", "fstrim.timer", "console-getty.service", "getty.target")  # fmt: skip
# A shell enters the cgroups before it becomes nspawn, so all its processes start there. If one of the cgroups
# is gone, the caller has given the machine up.
ENTER = 'for f in $CGROUPS; do echo 0 > "$f/cgroup.procs" || exit; done; '


def require() -> None:
    """Raise CannotError where no machine can be booted."""
    if os.geteuid() or shutil.which("systemd-nspawn") is None:
        raise errors.CannotError(
            "cannot boot a machine",
            why="this needs systemd-nspawn and root",
            todo="install systemd-container, and run this as root",
        )


def interpreter() -> tuple[pathlib.Path, tuple[str, ...]]:
    """Return the Python program, and the folders to bind where it is not below /usr."""
    program = pathlib.Path(sys.executable).resolve()
    prefix = pathlib.Path(sys.base_prefix).resolve()
    return program, () if prefix.is_relative_to("/usr") else (str(prefix),)


def tops(*, memory: bool = False) -> tuple[pathlib.Path, ...]:
    """Return the hierarchies in which a machine's systemd creates cgroups: systemd's and the unified one.

    With `memory` also the memory controller's (on v2 the unified one), so that the machine's memory is charged
    to itself and not to the process that booted it.
    """
    layout = cgroups.read_layout()
    places = dict.fromkeys((layout.systemd, layout.unified, layout.memory if memory else None))
    return tuple(pathlib.Path(str(place)) for place in places if place is not None)


def place(tree: pathlib.Path, inside: str) -> pathlib.Path:
    """Return the path of a file in a tree, and create its folder."""
    path = tree / inside.lstrip("/")
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def plant(tree: pathlib.Path, units: Mapping[str, str]) -> None:
    """Create a bootable tree with these units; those wanted by multi-user.target are enabled."""
    for name in FOLDERS:
        (tree / name).mkdir(parents=True)
    for link in ("bin", "sbin", "lib", "lib64"):
        if (target := pathlib.Path("/") / link).is_symlink():
            (tree / link).symlink_to(target.readlink())
    shutil.copy("/etc/passwd", tree / "etc")
    shutil.copy("/etc/group", tree / "etc")
    (tree / "etc/os-release").write_text('ID=overnight\nPRETTY_NAME="A machine of overnight"\n')
    (tree / "etc/machine-id").touch()
    folder = tree / "etc/systemd/system"
    for masked in MASKED:
        (folder / masked).symlink_to("/dev/null")
    for title, text in units.items():
        (folder / title).write_text(text)
        if "WantedBy=multi-user.target" in text:
            (folder / "multi-user.target.wants" / title).symlink_to(f"../{title}")


def nspawn_arguments(
    name: str, tree: pathlib.Path, *more: str, read_only: Iterable[str] = ()
) -> list[str]:
    """Return nspawn's arguments: boot this tree, without registering the machine."""
    return [
        "--quiet", "--boot", "--register=no", "--keep-unit", "--console=pipe", "--link-journal=no",
        f"--machine={name}", f"--directory={tree}",
        *(f"--bind-ro={folder}" for folder in ("/usr", *read_only)),
        *more, "systemd.unit=multi-user.target",
    ]  # fmt: skip


def environment() -> dict[str, str]:
    # nspawn looks for the machine's systemd in the bare tree, before /usr is mounted, and would fall back to
    # cgroup v1 even on a v2 host.
    environment = {"PATH": os.environ["PATH"]}
    if cgroups.read_layout().version == "v2":
        environment["SYSTEMD_NSPAWN_UNIFIED_HIERARCHY"] = "1"
    return environment


def processes(folders: Iterable[pathlib.Path]) -> tuple[int, ...]:
    """Return every process in these cgroups and below."""
    pids: set[int] = set()
    for top in folders:
        for folder, _, _ in os.walk(top):
            with contextlib.suppress(OSError):
                pids.update(map(int, pathlib.Path(folder, "cgroup.procs").read_text().split()))
    return tuple(sorted(pids - {0}))


def leader(pids: Iterable[int], root: pathlib.Path = pathlib.Path("/")) -> int:
    """Return the PID 1 of the machine, not of another inside it, one namespace further down; 0 for none."""
    candidates = []
    for pid in pids:
        with contextlib.suppress(OSError):
            text = (root / f"proc/{pid}/status").read_text()
            numbers = text.partition("\nNSpid:")[2].partition("\n")[0].split()
            if len(numbers) > 1 and numbers[-1] == "1":
                candidates.append((len(numbers), pid))
    return min(candidates)[1] if candidates else 0
