"""Create zombie memory cgroups: a separate program, standard library only.

The caller itself must not enter and leave cgroups: pages that it allocates meanwhile would be charged there
and would keep them alive. The pages of this process are freed when it ends.

Each zombie is a directory that is created, entered, left and removed, and one page of a tmpfs file written
in between. All share one name and one file, so a kill -9 leaves at most one directory behind. Prints one
JSON object per line: how many exist, the available memory, the charged memory.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import time

PAGE = os.sysconf("SC_PAGE_SIZE")
CHECK_EVERY = 64  # at 100 kB each, 6 MB between two checks of the available memory
REPORT_S = 0.05
SURE = 256  # after this many the cost of one is known
STARTUP_BYTES = 1 << 20  # of this process, charged to the first cgroups


def available() -> int:
    """Return MemAvailable in bytes. A copy of model.meminfo: `-I` imports nothing, and this must be fast."""
    with open("/proc/meminfo", "rb") as file:  # noqa: PTH123 - read often
        for line in file:
            if line.startswith(b"MemAvailable:"):
                return int(line.split()[1]) * 1024
    return sys.maxsize


def number(path: str) -> int:
    """Read the number in a file; 0 where it cannot be read."""
    try:
        with open(path, "rb") as file:  # noqa: PTH123 - read often
            return int(file.read())
    except (OSError, ValueError):
        return 0


def make_one(child: str, leave: int, pages: int, index: int) -> None:
    os.mkdir(child)  # noqa: PTH102 - 10,000 per second: no Path objects
    procs = os.open(child + "/cgroup.procs", os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.pwrite(procs, b"0", 0)
    finally:
        os.close(procs)
    os.pwrite(pages, b"x", index * PAGE)
    os.pwrite(leave, b"0", 0)
    os.rmdir(child)  # noqa: PTH106 - no Path objects


def main(text: str) -> int:
    """Run until all are created, SIGTERM, a closed pipe, or a lack of memory."""
    plan = json.loads(text)
    child, count, rate = plan["child"], plan["count"], plan["rate"]
    stopped: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: stopped.append(number))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the caller handles Ctrl-C and ends this process
    leave = os.open(plan["leave"], os.O_WRONLY | os.O_CLOEXEC)
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    pages = os.open(plan["pages"], flags, 0o600)
    before, began = number(plan["usage"]), time.monotonic()
    reported, created, why = began, 0, ""

    def report() -> None:
        now = {"made": created, "why": why, "available": available(), "charged": number(plan["usage"]) - before}  # fmt: skip
        os.write(1, (json.dumps(now) + "\n").encode())

    try:
        while created < count and not stopped:
            if created % CHECK_EVERY == 0:
                charged = number(plan["usage"]) - before - STARTUP_BYTES
                if available() < plan["floor"]:
                    why = "floor"
                elif created >= SURE and charged / created * count > plan["most"]:
                    why = "cost"
                if why:
                    break
            make_one(child, leave, pages, created)
            created += 1
            now = time.monotonic()
            if now - reported > REPORT_S:
                reported = now
                report()
            while rate and not stopped and (wait := began + created / rate - time.monotonic()) > 0:
                time.sleep(min(wait, REPORT_S))
                report()  # a killed caller closed the pipe: then this ends, too
        report()
    except BrokenPipeError:
        return 1
    finally:
        with contextlib.suppress(OSError):
            os.pwrite(leave, b"0", 0)
        with contextlib.suppress(OSError):
            os.rmdir(child)  # noqa: PTH106 - no Path objects
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
