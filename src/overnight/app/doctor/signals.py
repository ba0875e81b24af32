"""Check signals: the kernel log, systemd, and what a panic leaves behind."""

from __future__ import annotations

import errno

from overnight.app import doctor
from overnight.model.checkup import Check, Question
from overnight.model.text import plural
from overnight.sources import crashes, kmsg, systemd

GROUP = "Signals"
ORDER = 3

KERNEL_LOG = Question(
    "kmsg", "Kernel log", "reports driver resets, lockups and stalls, where most diagnoses start"
)
SYSTEMD = Question(
    "systemd", "systemd", "its restart counters show crash-looping units, and snapshots what runs"
)

PSTORE = Question(
    "pstore", "Panic log (pstore)", "has the last kernel log lines after a panic", optional=True
)
KDUMP = Question("kdump", "Crash dump (kdump)", "has the kernel log of a panic", optional=True)


def checks(host: doctor.Surroundings) -> tuple[Check, ...]:
    return _kernel_log(host), _systemd(host), _pstore(host), _kdump(host)


def _kernel_log(host: doctor.Surroundings) -> Check:
    error = kmsg.try_kmsg(host.root)
    if error is None:
        return KERNEL_LOG.ok("/dev/kmsg is readable")
    fix = (
        "pass the device into the container: --device /dev/kmsg"
        if error.errno == errno.ENOENT
        else doctor.grant("CAP_SYSLOG", "kernel.dmesg_restrict=0")
    )
    return KERNEL_LOG.missing(f"/dev/kmsg: {error.strerror}", fix)


def _systemd(host: doctor.Surroundings) -> Check:
    if not systemd.booted(host.root):
        return SYSTEMD.missing(
            "this host is not run by systemd",
            "run overnight on the host itself, not in a container "
            "(crash loops are still found by new cgroups)",
        )
    state = systemd.manager_state()
    if state is None:
        return SYSTEMD.degraded("runs but does not answer", "systemctl status   (shows the reason)")
    return SYSTEMD.ok(state, state=state)


def _pstore(host: doctor.Surroundings) -> Check:
    where = crashes.read_pstore_backend(host.root)
    if where is None:
        return PSTORE.missing(
            "the kernel has no place for it",
            "modprobe efi_pstore, or reserve memory for ramoops: ramoops.mem_address=… on the kernel command line",
        )
    folder = host.root / crashes.PSTORE
    try:
        count = len(list(folder.iterdir()))
    except PermissionError as error:
        return PSTORE.degraded(f"{where}, {folder}: {error.strerror}", doctor.grant("CAP_DAC_READ_SEARCH"), backend=where)  # fmt: skip
    except OSError as error:
        return PSTORE.degraded(f"{where}, {folder}: {error.strerror}", "mount -t pstore pstore /sys/fs/pstore", backend=where)  # fmt: skip
    return PSTORE.ok(f"{where}, {plural(count, 'file')}", backend=where, files=count)


def _kdump(host: doctor.Surroundings) -> Check:
    if crashes.is_crash_kernel_loaded(host.root):
        return KDUMP.ok("a crash kernel is loaded")
    return KDUMP.missing(
        "no crash kernel is loaded",
        "apt-get install kdump-tools (dnf install kexec-tools), and boot with crashkernel=256M",
    )
