"""Reboot the host. There is nothing to undo; the agent sees by the boot id that it happened."""

from __future__ import annotations

import time

from overnight.app import changes
from overnight.model import host_changes
from overnight.sources import systemd
from overnight.undo import settings

BUILTIN = host_changes.Builtin.REBOOT
DOWN_SECONDS = 240.0  # systemd kills what does not stop after 90 s


def apply(_: tuple[str, ...], context: changes.Context) -> str:
    """Ask systemd, and wait to be ended by it."""
    del context
    if not systemd.booted():
        changes.refuse("cannot reboot", "systemd does not run this host", "reboot it by hand")
    try:
        settings.systemctl("reboot", "--no-wall")
        time.sleep(DOWN_SECONDS)
        changes.refuse("the host did not reboot", f"it was still up after {DOWN_SECONDS:.0f} s", "systemctl list-jobs")  # fmt: skip
    except OSError as error:
        changes.refuse("cannot reboot", str(error), "run as root")
    except KeyboardInterrupt:  # systemd ends this process with all others
        pass
    return "the host reboots"
