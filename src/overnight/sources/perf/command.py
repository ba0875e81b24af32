"""The perf binary: whether one is there that really runs, and how it is asked to record."""

from __future__ import annotations

import pathlib
import re
import shutil
import subprocess

__all__ = ["find_perf", "parse_version", "read_version", "record_arguments"]


def find_perf() -> str | None:
    """The perf on PATH."""
    return shutil.which("perf")


def parse_version(text: str) -> str | None:
    """The version in `perf --version`.

    >>> parse_version("perf version 6.1.187\\n")
    '6.1.187'
    """
    found = re.search(r"perf version (\S+)", text)
    return found and found[1]


def read_version(perf: str) -> str | None:
    """The version of a perf that runs.

    Ubuntu's /usr/bin/perf is a script that fails unless linux-tools of the running kernel is
    installed: it prints a warning and no version.
    """
    try:
        done = subprocess.run(
            [perf, "--version"], capture_output=True, text=True, timeout=10, check=False
        )
    except (subprocess.TimeoutExpired, OSError):
        return None
    return parse_version(done.stdout) if done.returncode == 0 else None


def record_arguments(perf: str, output: pathlib.Path, frequency: int) -> list[str]:
    """How perf records all cores until it is told to stop.

    -B and -N because perf would read every mapped binary at the end of each file, which delays it,
    fills a cache with hundreds of MB, and aborts perf 6.1 where another mount namespace or a damaged
    build id stands in the way (measured: "assertion failed at util/namespaces.c:301");
    CLOCK_MONOTONIC because perf's default clock is off by hundreds of ms and has no wall-clock
    reference in the file (measured: 227.6 ms).
    """
    return [
        perf,
        "record",
        "--quiet",
        "--all-cpus",
        "-g",
        "-B",
        "-N",
        "--clockid=CLOCK_MONOTONIC",
        f"--freq={frequency}",
        f"--output={output}",
    ]
