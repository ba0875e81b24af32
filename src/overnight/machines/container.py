"""What a machine inside this one is made of, and how systemd-nspawn is called for it.

Rehearsals (machines.py) and warm pools (pools/providers/nspawn.py) boot such machines. The tree has the
host's /usr, read-only, and nothing else of it; the machine runs in cgroups of its own, and all its
processes are found there, whoever started it.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import shutil
import sys
from collections.abc import Iterable, Mapping

from overnight import errors
from overnight.sources import cgroups

__all__ = ["ENTER", "environment", "interpreter", "leader", "place", "plant", "processes", "require", "tops", "words"]  # fmt: skip

FOLDERS = ("usr", "etc/systemd/system/multi-user.target.wants", "var", "run", "proc", "sys", "dev", "tmp", "root")  # fmt: skip
# What such a machine has no use for, and takes its time.
MASKED = ("dbus.service", "dbus.socket", "systemd-logind.service", "systemd-user-sessions.service", "systemd-sysctl.service", "systemd-networkd.service", "systemd-resolved.service", "systemd-timesyncd.service", "apt-daily.timer", "apt-daily-upgrade.timer", "dpkg-db-backup.timer", "e2scrub_all.timer", "fstrim.timer", "console-getty.service", "getty.target")  # fmt: skip
# A shell enters the cgroups before it becomes nspawn: all that follows is born there. Where one of them is
# gone, whoever wanted the machine has given it up.
ENTER = 'for f in $CGROUPS; do echo 0 > "$f/cgroup.procs" || exit; done; '


def require() -> None:
    """Raises where no machine can be booted."""
    if os.geteuid() or shutil.which("systemd-nspawn") is None:
        raise errors.CannotError(
            "no machine can be booted",
            why="that takes systemd-nspawn, and root",
            todo="install systemd-container, and run this as root",
        )


def interpreter() -> tuple[pathlib.Path, tuple[str, ...]]:
    """Python as a machine can run it, and what must be bound for that where it is not below /usr."""
    program = pathlib.Path(sys.executable).resolve()
    prefix = pathlib.Path(sys.base_prefix).resolve()
    return program, () if prefix.is_relative_to("/usr") else (str(prefix),)


def tops(*, memory: bool = False) -> tuple[pathlib.Path, ...]:
    """Where a machine's own systemd makes cgroups: systemd's hierarchy and the unified one.

    With `memory` that of the memory controller, too, which on v2 is the unified one: what the machine
    holds is then its own, and not of whoever booted it.
    """
    layout = cgroups.read_layout()
    places = dict.fromkeys((layout.systemd, layout.unified, layout.memory if memory else None))
    return tuple(pathlib.Path(str(place)) for place in places if place is not None)


def place(tree: pathlib.Path, inside: str) -> pathlib.Path:
    """Where a file of a tree is to be put; its folder is there."""
    path = tree / inside.lstrip("/")
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def plant(tree: pathlib.Path, units: Mapping[str, str]) -> None:
    """A tree that boots, with these units; those that multi-user.target wants are enabled."""
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


def words(name: str, tree: pathlib.Path, *more: str, read_only: Iterable[str] = ()) -> list[str]:
    """What nspawn is told, after its own name: boot this tree, registered nowhere."""
    return [
        "--quiet", "--boot", "--register=no", "--keep-unit", "--console=pipe", "--link-journal=no",
        f"--machine={name}", f"--directory={tree}",
        *(f"--bind-ro={folder}" for folder in ("/usr", *read_only)),
        *more, "systemd.unit=multi-user.target",
    ]  # fmt: skip


def environment() -> dict[str, str]:
    """What nspawn is to find in its environment.

    It looks for the systemd of the machine in the bare tree, where /usr is not yet, and would give it the
    cgroups of old even on a host that has none of them.
    """
    given = {"PATH": os.environ["PATH"]}
    if cgroups.read_layout().version == "v2":
        given["SYSTEMD_NSPAWN_UNIFIED_HIERARCHY"] = "1"
    return given


def processes(folders: Iterable[pathlib.Path]) -> tuple[int, ...]:
    """Every process in these cgroups and below."""
    found: set[int] = set()
    for top in folders:
        for folder, _, _ in os.walk(top):
            with contextlib.suppress(OSError):
                found.update(map(int, pathlib.Path(folder, "cgroup.procs").read_text().split()))
    return tuple(sorted(found - {0}))


def leader(pids: Iterable[int], root: pathlib.Path = pathlib.Path("/")) -> int:
    """The one among them that is PID 1 where it lives, and not here; 0 for none.

    A machine may have others inside it: theirs is one namespace further down.
    """
    found = []
    for pid in pids:
        with contextlib.suppress(OSError):
            text = (root / f"proc/{pid}/status").read_text()
            numbers = text.partition("\nNSpid:")[2].partition("\n")[0].split()
            if len(numbers) > 1 and numbers[-1] == "1":
                found.append((len(numbers), pid))
    return min(found)[1] if found else 0
