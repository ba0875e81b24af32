"""Child processes of the agent that have time: the host's work comes first."""

from __future__ import annotations

import contextlib
import os


def yield_to_others() -> None:
    """Use only idle CPU time; SCHED_IDLE also makes the kernel treat disk requests as idle (ionice(1))."""
    with contextlib.suppress(OSError):
        os.nice(19)
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
