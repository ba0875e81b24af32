"""Stop a unit and mask it until the next boot; undo: unmask it, and start it if it was active."""

from __future__ import annotations

import pathlib

from overnight.app import changes
from overnight.model import cgroups, host_changes
from overnight.sources import systemd
from overnight.undo import settings

BUILTIN = host_changes.Builtin.MASK_UNIT
PROPERTIES = ("Id", "LoadState", "ActiveState")


def apply(words: tuple[str, ...], context: changes.Context) -> str:
    (unit,) = words
    need_unit(unit)
    try:
        state = settings.show(unit, *PROPERTIES)
        is_masked = state["LoadState"] == "masked"
        is_active = state["ActiveState"] not in settings.INACTIVE
        if is_masked and not is_active:
            return f"{unit} is already masked and does not run"
        if is_masked:
            changes.refuse(f"{unit} is masked, but runs", "it could not be started again", f"systemctl stop {unit}")  # fmt: skip
        # In this order: the undo unmasks it first.
        if is_active:
            context.journal.write("unit-stopped", unit)
        context.journal.write("unit-masked", unit)
        settings.mask(unit)
        settings.systemctl("stop", "--", unit)
        state = settings.show(unit, *PROPERTIES)
    except OSError as error:
        changes.refuse(f"cannot mask {unit}", str(error), "run as root, on a host with systemd")
    if state["LoadState"] != "masked" or state["ActiveState"] not in settings.INACTIVE:
        now = f"it is {state['LoadState']} and {state['ActiveState']}"
        changes.refuse(f"{unit} could not be masked", now, f"systemctl status {unit}")
    return f"masked {unit}, {'and stopped it' if is_active else 'which did not run'}"


def need_unit(unit: str) -> None:
    """Raise CannotError for a unit that does not exist, is an alias, or contains this process."""
    if not systemd.booted():
        changes.refuse(f"cannot change {unit}", "systemd does not run this host", "choose a change that needs no unit")  # fmt: skip
    try:
        state = settings.show(unit, *PROPERTIES)
        own = pathlib.Path("/proc/self/cgroup").read_text()
    except OSError as error:
        changes.refuse(f"cannot read the state of {unit}", str(error), "run as root")
    if state["LoadState"] in ("not-found", "error", "bad-setting"):
        changes.refuse(f"unit {unit} does not exist", f"systemd calls it {state['LoadState']}", "systemctl list-units --all")  # fmt: skip
    if state["Id"] != unit:
        # agent.toml allowed the alias; it may not allow the unit behind it.
        changes.refuse(f"{unit} is another name of {state['Id']}", "a change needs the unit's own name", f"name {state['Id']}")  # fmt: skip
    if any(unit in path.split("/") for path in cgroups.parse_membership(own).values()):
        changes.refuse(f"{unit} contains overnight itself", "nothing would be left to undo the change", "choose another unit")  # fmt: skip
