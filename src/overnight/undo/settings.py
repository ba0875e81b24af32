"""Undo operations for settings of this host: units of systemd, and values in files of the kernel.

Nothing here carries the name of a run, so each target must have the form that a change of overnight gives it.
"""

from __future__ import annotations

import contextlib
import errno
import pathlib
import re
import shutil
import subprocess
from collections.abc import Mapping

from overnight.model import host_changes, process_identity

# Before /etc/systemd/system in the order of systemd.unit(5). `systemctl mask --runtime` links in /run/systemd/system,
# which comes after it: a unit of /etc stays as it is (systemd 252, measured).
MASKS = pathlib.Path("/run/systemd/system.control")
DROP_INS = pathlib.Path("/run/systemd/system")
IRQS = pathlib.Path("/proc/irq")
CGROUPS = pathlib.Path("/sys/fs/cgroup")
NULL = "/dev/null"
SECONDS = 120  # systemd kills a unit that does not stop after 90 s
INACTIVE = ("inactive", "failed")
VALUE = re.compile(r"-?[0-9][0-9,-]*|(?:max|[0-9]+) [0-9]+", re.ASCII)
LIMITS = ("cpu.max", "cpu.cfs_quota_us")
# With v1's hierarchy.
LIMITED = re.compile(rf"(?:/[a-z_,]+)?{host_changes.CGROUP.pattern}", re.ASCII)
GONE = (errno.ENOENT, errno.ENODEV)  # ENODEV: a cgroup that is being removed


def check(change: Mapping[str, str], run: str) -> bool:
    """Return whether a change of overnight has this form."""
    target = change["target"]
    match change["kind"]:
        case "unit-stopped" | "unit-masked":
            return host_changes.STARTED.fullmatch(target) is not None
        case "drop-in":
            unit = pathlib.Path(target).parent.name.removesuffix(".d")
            is_unit = host_changes.UNIT.fullmatch(unit) is not None
            return is_unit and target == str(drop_in(unit, run))
        case "value":
            values = (change.get(name, "") for name in ("before", "after"))
            return _is_value_file(target) and all(map(VALUE.fullmatch, values))
    return False


def _is_value_file(target: str) -> bool:
    path = pathlib.Path(target)
    if path.name == "smp_affinity_list":
        return path.parent.name.isdecimal() and path.parent.parent == IRQS
    below = target.removeprefix(str(CGROUPS)).removesuffix(f"/{path.name}")
    return (
        path.name in LIMITS
        and target == f"{CGROUPS}{below}/{path.name}"
        and LIMITED.fullmatch(below) is not None
    )


def drop_in(unit: str, run: str) -> pathlib.Path:
    """Return the file in which a run sets properties of a unit until the next boot."""
    return DROP_INS / f"{unit}.d" / f"90-{run}.conf"


def systemctl(*words: str) -> str:
    """Return what systemctl printed; raise OSError where it fails."""
    program = shutil.which("systemctl")
    if program is None:
        raise FileNotFoundError(errno.ENOENT, "systemctl is not installed")
    try:
        done = subprocess.run(
            [program, *words], stdin=subprocess.DEVNULL, capture_output=True, text=True,
            errors="replace", timeout=SECONDS, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired as error:
        raise TimeoutError(f"systemctl {' '.join(words)} did not end in {SECONDS} s") from error
    if done.returncode:
        reason = done.stderr.strip() or f"exit code {done.returncode}"
        raise OSError(f"systemctl {' '.join(words)}: {reason}")
    return done.stdout


def show(unit: str, *properties: str) -> dict[str, str]:
    """Return properties of a unit."""
    lines = systemctl("show", f"--property={','.join(properties)}", "--", unit).splitlines()
    return dict.fromkeys(properties, "") | dict(line.partition("=")[::2] for line in lines)


def mask(unit: str) -> None:
    MASKS.mkdir(mode=0o755, exist_ok=True)
    (MASKS / unit).symlink_to(NULL)
    systemctl("daemon-reload")


def _unmask(unit: str) -> None:
    path = MASKS / unit
    if path.is_symlink() and str(path.readlink()) == NULL:
        path.unlink()
    with contextlib.suppress(OSError):
        MASKS.rmdir()  # unless it holds settings of others
    systemctl("daemon-reload")


def _start(unit: str) -> None:
    # Not awaited: a unit that crashes at its start is as it was before, and a job of hours would block the undo.
    if show(unit, "ActiveState")["ActiveState"] in INACTIVE:
        systemctl("start", "--no-block", "--", unit)


def _remove_drop_in(target: str) -> None:
    path = pathlib.Path(target)
    path.unlink(missing_ok=True)
    with contextlib.suppress(OSError):
        path.parent.rmdir()
    systemctl("daemon-reload")


def restore(change: Mapping[str, str]) -> None:
    """Write the value from before; a value of another boot, or that somebody has changed since, is left."""
    path = pathlib.Path(change["target"])
    if change["boot"] != process_identity.read_boot():
        return
    try:
        if path.read_text().strip() == change["after"]:
            path.write_text(change["before"])
    except OSError as error:
        if error.errno not in GONE:
            raise


UNDO = {"unit-stopped": _start, "unit-masked": _unmask, "drop-in": _remove_drop_in}
