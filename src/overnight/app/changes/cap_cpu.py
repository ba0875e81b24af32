"""Limit the CPU time of a unit or a cgroup; undo: the limit from before.

A unit gets a drop-in of systemd, which also enables the controller; a cgroup gets the value itself.
"""

from __future__ import annotations

import pathlib
import time

from overnight.app import changes
from overnight.app.changes import mask_unit
from overnight.model import cgroups, files, host_changes
from overnight.undo import settings

BUILTIN = host_changes.Builtin.CAP_CPU
SETTLE_SECONDS = 5.0
MIN_QUOTA_US = 1000  # of the kernel


def apply(words: tuple[str, ...], context: changes.Context) -> str:
    name, percent = words[0], int(words[1].removesuffix("%"))
    if not name.startswith("/"):
        mask_unit.need_unit(name)
    if _is_capped(name, percent):
        return f"{name} is already limited to {percent} % of a core"
    try:
        (_cap_cgroup if name.startswith("/") else _cap_unit)(name, percent, context)
    except OSError as error:
        why = f"{error}; its parent may have a lower limit, or no cpu controller for it"
        changes.refuse(f"cannot limit {name}", why, "name a unit, or a cgroup that has a CPU limit")
    deadline = time.monotonic() + SETTLE_SECONDS  # systemd writes the limits of units later
    while not _is_capped(name, percent):
        if time.monotonic() > deadline:
            changes.refuse(f"{name} was not limited", "the kernel shows no such limit of its cgroup: it does not run, or has no cpu controller", "systemd-cgls")  # fmt: skip
        time.sleep(0.05)
    return f"limited {name} to {percent} % of a core"


def _cap_cgroup(name: str, percent: int, context: changes.Context) -> None:
    path, before, after = _read_limit(name, percent)
    context.journal.write_value(path, before, after)
    path.write_text(after)


def _cap_unit(unit: str, percent: int, context: changes.Context) -> None:
    path = settings.drop_in(unit, context.journal.run)
    context.journal.write("drop-in", path)
    path.parent.mkdir(mode=0o755, exist_ok=True)
    section = unit.rpartition(".")[2].capitalize()
    files.write_atomically(path, f"[{section}]\nCPUQuota={percent}%\n", mode=0o644)
    settings.systemctl("daemon-reload")


def _is_capped(name: str, percent: int) -> bool:
    try:
        _, now, wanted = _read_limit(name, percent)
    except OSError:
        return False
    return now == wanted


def _read_limit(name: str, percent: int) -> tuple[pathlib.Path, str, str]:
    """Return the file of the limit, its text, and the text for a share of one core; raise OSError without one."""
    layout = cgroups.read_layout()
    cgroup = name if name.startswith("/") else settings.show(name, "ControlGroup")["ControlGroup"]
    if layout.cpu is None or not cgroup.strip("/"):
        raise FileNotFoundError(f"{name} has no cgroup with a CPU limit")
    folder = pathlib.Path(layout.cpu) / cgroup.lstrip("/")
    if layout.cpu_version == 2:
        path = folder / "cpu.max"
        now = path.read_text().strip()
        period = int(now.split()[1])
        return path, now, f"{_quota(percent, period)} {period}"
    path = folder / "cpu.cfs_quota_us"
    period = int((folder / "cpu.cfs_period_us").read_text())
    return path, path.read_text().strip(), str(_quota(percent, period))


def _quota(percent: int, period: int) -> int:
    return max(MIN_QUOTA_US, period * percent // 100)
