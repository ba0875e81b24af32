"""The modes of CPU time in /proc/stat, and which of them count as busy. Few imports, for the agent's uplink."""

from __future__ import annotations

# In the order of /proc/stat. guest and guest_nice are already part of user and nice (proc(5)).
MODES = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal", "guest", "guest_nice")  # fmt: skip
TOTAL = MODES[:8]
USER = ("user", "nice")
KERNEL = ("system", "irq", "softirq")  # interrupts included: they starve the core's own threads too
BUSY = (*USER, *KERNEL)
STEAL = ("steal",)
IDLE = ("idle", "iowait")
