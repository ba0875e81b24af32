"""Route an interrupt to one core; undo: the list of cores from before."""

from __future__ import annotations

import errno
import pathlib

from overnight import sources
from overnight.app import changes
from overnight.model import host_changes
from overnight.sources import interrupts
from overnight.undo import settings

BUILTIN = host_changes.Builtin.MOVE_IRQ
WHY = {
    errno.EIO: "the kernel manages the cores of this interrupt itself",
    errno.EINVAL: "the core does not exist, is off-line, or cannot serve it",
}


def apply(words: tuple[str, ...], context: changes.Context) -> str:
    name, core = words
    moved = []
    for irq in find_irqs(name):
        path = settings.IRQS / str(irq) / "smp_affinity_list"
        try:
            before = path.read_text().strip()
            if before == core:
                continue
            context.journal.write_value(path, before, core)
            path.write_text(core)
            now = path.read_text().strip()
        except OSError as error:
            why = WHY.get(error.errno or 0, str(error))
            changes.refuse(f"cannot move interrupt {irq} to core {core}", why, "choose another core, or run as root")  # fmt: skip
        if now != core:
            changes.refuse(f"interrupt {irq} did not move to core {core}", f"its cores are {now}", "systemctl stop irqbalance.service")  # fmt: skip
        moved.append(f"interrupt {irq} from cores {before} to core {core}")
    if not moved:
        return f"interrupt {name} is already on core {core}"
    return f"moved {', '.join(moved)}{_warn()}"


def find_irqs(name: str) -> list[int]:
    """Return the interrupt, or those that serve the queue: drivers may have one for each direction."""
    queue = host_changes.QUEUE.fullmatch(name)
    if queue is None:
        return [int(name)]
    wanted = queue["interface"], int(queue["queue"])
    try:
        facts = interrupts.open_queues(sources.ROOT)()
    except sources.NoDataError:
        facts = {}
    irqs = [
        int(fact["irq"]) for fact in facts.values() if (fact["interface"], fact["queue"]) == wanted
    ]
    if not irqs:
        changes.refuse(f"no interrupt serves {name}", f"{settings.IRQS} names none for that queue", "cat /proc/interrupts")  # fmt: skip
    return sorted(irqs)


def _warn() -> str:
    """Say that irqbalance may move it back."""
    for path in pathlib.Path("/proc").glob("[0-9]*/comm"):
        if (sources.read_once(str(path)) or b"").strip() == b"irqbalance":
            return "; irqbalance runs, and may move it back"
    return ""
