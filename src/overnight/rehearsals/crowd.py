"""Several processes of one name: an actor becomes many, which end with it."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import traceback
from collections.abc import Callable
from typing import Any

from overnight.rehearsals import processes

__all__ = ["fork"]

PR_SET_PDEATHSIG = 1


def fork(told: dict[str, Any], part: Callable[[int], object], count: int) -> None:
    """`count` more processes like this one; each plays its part, told its number, and ends."""
    parent = os.getpid()
    for number in range(count):
        if os.fork():
            continue
        try:
            # Neither is inherited: that it ends with its parent, and after its seconds.
            ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
            signal.alarm(max(1, round(told["seconds"])))
            if os.getppid() == parent:
                processes.set_name(told["name"])
                part(number)
        except BaseException:  # it must not go on where its parent would
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(1)
