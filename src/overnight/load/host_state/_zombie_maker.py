"""Makes zombie memory cgroups: a program of its own, with the standard library alone.

What enters and leaves cgroups must not be the caller: pages that it gets meanwhile would be charged there,
and would keep them when nothing else does. When this process ends, its own pages are gone.

    python3 -I _zombiemaker.py '{"child": DIR, "leave": FILE, "pages": FILE, "usage": FILE, "count": N, ...}'

Each zombie is a directory that is made, entered, left and removed, and one page of a tmpfs file that was
written in between. They all have the same name and the same file: what a kill -9 leaves half-made is
one directory at most. Prints a JSON object a line: how many are made, what is available, what is charged.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import time

PAGE = os.sysconf("SC_PAGE_SIZE")
LOOK_EVERY = 64  # at 100 kB each, 6 MB between two looks at what is left
TELL_S = 0.05
SURE = 256  # so many tell what one costs
STARTUP_BYTES = 1 << 20  # of this process itself, charged to the first ones


def available() -> int:
    """Bytes; as many as there may be where the kernel does not say."""
    with open("/proc/meminfo", "rb") as file:  # noqa: PTH123 - read often
        for line in file:
            if line.startswith(b"MemAvailable:"):
                return int(line.split()[1]) * 1024
    return sys.maxsize


def number(path: str) -> int:
    """The one number in a file; 0 where it cannot be read."""
    try:
        with open(path, "rb") as file:  # noqa: PTH123 - read often
            return int(file.read())
    except (OSError, ValueError):
        return 0


def make_one(child: str, leave: int, pages: int, index: int) -> None:
    """One more."""
    os.mkdir(child)  # noqa: PTH102 - 10,000 a second: no objects between
    procs = os.open(child + "/cgroup.procs", os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.pwrite(procs, b"0", 0)
    finally:
        os.close(procs)
    os.pwrite(pages, b"x", index * PAGE)
    os.pwrite(leave, b"0", 0)
    os.rmdir(child)  # noqa: PTH106


def main(text: str) -> int:
    """Until all are made, somebody stops it, nobody listens, or memory is short."""
    plan = json.loads(text)
    child, count, rate = plan["child"], plan["count"], plan["rate"]
    stopped: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: stopped.append(number))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the caller, who ends this one
    leave = os.open(plan["leave"], os.O_WRONLY | os.O_CLOEXEC)
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    pages = os.open(plan["pages"], flags, 0o600)
    before, began = number(plan["usage"]), time.monotonic()
    told, made, why = began, 0, ""

    def tell() -> None:
        now = {"made": made, "why": why, "available": available(), "charged": number(plan["usage"]) - before}  # fmt: skip
        os.write(1, (json.dumps(now) + "\n").encode())

    try:
        while made < count and not stopped:
            if made % LOOK_EVERY == 0:
                charged = number(plan["usage"]) - before - STARTUP_BYTES
                if available() < plan["floor"]:
                    why = "floor"
                elif made >= SURE and charged / made * count > plan["most"]:
                    why = "cost"
                if why:
                    break
            make_one(child, leave, pages, made)
            made += 1
            now = time.monotonic()
            if now - told > TELL_S:
                told = now
                tell()
            while rate and not stopped and (wait := began + made / rate - time.monotonic()) > 0:
                time.sleep(min(wait, TELL_S))
                tell()  # whoever was killed is not there to read it: then this ends, too
        tell()
    except BrokenPipeError:
        return 1
    finally:
        with contextlib.suppress(OSError):
            os.pwrite(leave, b"0", 0)
        with contextlib.suppress(OSError):
            os.rmdir(child)  # noqa: PTH106
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
