"""An agent that has a container runtime start its containers: its own unit never has their cgroups.

Like amazon-ecs-init it calls again and again, and waits; the runtime is supervisor.py, in another unit.
"""

from __future__ import annotations

import os
import sys
import time

WAIT_SECONDS, CALL_SECONDS = 2, 5.0


def main() -> None:
    """Arguments: the runtime's pipe, the program that waits for the containers."""
    pipe, waits = sys.argv[1:]
    while not os.path.exists(pipe):  # noqa: PTH110 - the runtime is still being started
        time.sleep(0.1)
    while True:
        begin = time.monotonic()
        with open(pipe, "ab", buffering=0) as calls:  # noqa: PTH123 - no Path.open on a pipe
            calls.write(b"+")
        os.waitpid(os.posix_spawn(waits, [waits, str(WAIT_SECONDS)], os.environ), 0)
        time.sleep(max(0.0, begin + CALL_SECONDS - time.monotonic()))


if __name__ == "__main__":
    main()
