"""Check the host itself: kernel, cores, cgroups, disk space."""

from __future__ import annotations

import contextlib
import shutil
from typing import TYPE_CHECKING

from overnight.model import cgroups
from overnight.model.checkup import Check, Question
from overnight.sources import kernel

if TYPE_CHECKING:
    import pathlib

    from overnight.app import doctor

GROUP = "This host"
ORDER = 1

NIGHT_SECONDS = 12 * 3600
RAW_SECONDS = 2 * 3600  # raw data kept regardless of the budget
FREQUENCY = 97
# Measured: 140 to 152 bytes of perf.data per sample with frame-pointer stacks, under 8 stored.
RAW_BYTES, STORED_BYTES = 152, 8
# Leave some of the disk free.
MARGIN = 1.2

KERNEL = Question(
    "kernel",
    "Linux kernel",
    "perf events, the kernel log and cgroup counters differ between kernels",
)
CORES = Question(
    "cores",
    "CPU cores",
    "every core is recorded separately: the mean over all cores hides a saturated one",
)
CGROUPS = Question(
    "cgroups",
    "Control groups",
    "dying (zombie) memory cgroups are counted there; v1 and v2 use different files",
)
DISK = Question("disk", "Disk for a night", "a full disk can take the host down")
MOUNT_PROC = "mount -t proc proc /proc"
MOUNT_CGROUP = "mount -t cgroup2 none /sys/fs/cgroup"


def checks(host: doctor.Surroundings) -> tuple[Check, ...]:
    return _kernel(host), _cores(host), _cgroups(host), _disk(host)


def _kernel(host: doctor.Surroundings) -> Check:
    try:
        release = kernel.read_release(host.root)
    except OSError as error:
        return KERNEL.missing(f"unknown: {error}", MOUNT_PROC)
    return KERNEL.ok(release, release=release)


def _cores(host: doctor.Surroundings) -> Check:
    if not host.cores:
        return CORES.missing("neither /proc/stat nor /sys lists them", MOUNT_PROC)
    return CORES.ok(f"{len(host.cores)} online", online=len(host.cores))


def _cgroups(host: doctor.Surroundings) -> Check:
    try:
        layout = cgroups.read_layout(host.root)
    except OSError as error:
        return CGROUPS.missing(str(error), MOUNT_PROC)
    if layout.memory is None:
        return CGROUPS.missing(
            f"{layout.version}, no memory controller mounted", MOUNT_CGROUP, version=layout.version
        )
    return CGROUPS.ok(
        f"{layout.version}, memory controller at {layout.memory}", version=layout.version
    )


def night_bytes(cores: int) -> int:
    """Disk space for twelve hours of recording that many cores."""
    return cores * FREQUENCY * (NIGHT_SECONDS * STORED_BYTES + RAW_SECONDS * RAW_BYTES)


def _disk(host: doctor.Surroundings) -> Check:
    place = _existing(host.home)
    free = shutil.disk_usage(place).free
    needed = night_bytes(max(1, len(host.cores)))
    found = f"{free / 1e9:.1f} GB free in {place}; a 12-hour recording takes {needed / 1e9:.1f} GB"
    facts = {"free_bytes": free, "night_bytes": needed, "path": str(place)}
    if free >= needed * MARGIN:
        return DISK.ok(found, **facts)
    hours = 12 * free / needed / MARGIN
    return DISK.degraded(
        f"{found}: enough for {hours:.1f} h",
        "overnight --home /path/on/a/bigger/disk record",
        **facts,
    )


def _existing(path: pathlib.Path) -> pathlib.Path:
    """Return the nearest existing folder: the data home may not exist yet."""
    for candidate in (path.absolute(), *path.absolute().parents):
        with contextlib.suppress(OSError):
            candidate.stat()
            return candidate
    return path.absolute()
