"""Check signals: the kernel log and systemd."""

from __future__ import annotations

import errno

from overnight.app import doctor
from overnight.model.checkup import Check, Question
from overnight.sources import kmsg, systemd

GROUP = "Signals"
ORDER = 3

KERNEL_LOG = Question(
    "kmsg", "Kernel log", "reports driver resets, lockups and stalls, where most diagnoses start"
)
SYSTEMD = Question("systemd", "systemd", "its restart counters show crash-looping units")


def checks(host: doctor.Surroundings) -> tuple[Check, ...]:
    return _kernel_log(host), _systemd(host)


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
