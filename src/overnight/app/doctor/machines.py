"""Check whether this host can boot systemd-nspawn machines, for rehearsals and pools."""

from __future__ import annotations

import shutil
import subprocess
from typing import TYPE_CHECKING

from overnight import sources
from overnight.model.checkup import Check, Question

if TYPE_CHECKING:
    from overnight.app import doctor

GROUP = "Machines and fleet"
ORDER = 4

NSPAWN = Question(
    "nspawn", "systemd-nspawn", "boots the machines of rehearsals and warm pools", optional=True
)


def checks(host: doctor.Surroundings) -> tuple[Check, ...]:
    return (_nspawn(host),)


def _nspawn(host: doctor.Surroundings) -> Check:
    if shutil.which("systemd-nspawn") is None:
        return NSPAWN.missing("not installed", "apt-get install systemd-container")
    if not host.is_root:
        return NSPAWN.degraded("installed, but booting a machine requires root", "sudo overnight …")
    if problem := _cannot_unshare():
        return NSPAWN.missing(
            f"cannot create namespaces: {problem}",
            "run overnight on the host itself, or in a privileged container",
        )
    known = (sources.read_once(host.root / "proc/filesystems") or b"").split()
    if b"overlay" not in known:
        return NSPAWN.degraded("the kernel has no overlay file system", "modprobe overlay")
    return NSPAWN.ok("can boot machines on an overlay of this host")


def _cannot_unshare() -> str:
    """Return why mount and PID namespaces cannot be created; '' if they can."""
    try:
        done = subprocess.run(
            ["unshare", "--mount", "--pid", "--fork", "true"],
            capture_output=True,
            text=True,
            timeout=10,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return "" if done.returncode == 0 else done.stderr.strip() or "unshare failed"
