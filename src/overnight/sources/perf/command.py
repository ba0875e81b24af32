"""The perf binary: its version if it runs, and its arguments for recording."""

from __future__ import annotations

import pathlib
import re
import shutil

from overnight import sources


def find_perf() -> str | None:
    return shutil.which("perf")


def parse_version(text: str) -> str | None:
    """Parse the output of `perf --version`.

    >>> parse_version("perf version 6.1.187\\n")
    '6.1.187'
    """
    match = re.search(r"perf version (\S+)", text)
    return match and match[1]


def read_version(perf: str) -> str | None:
    """Return the version of a perf that runs, or None.

    Ubuntu's /usr/bin/perf is a script that fails, with a warning instead of a version, unless linux-tools
    of the running kernel is installed.
    """
    try:
        completed = sources.run_command([perf, "--version"], timeout=10)
    except sources.NoDataError:
        return None
    return parse_version(completed.stdout) if completed.returncode == 0 else None


def record_arguments(perf: str, output: pathlib.Path, frequency: int) -> list[str]:
    """Return the arguments for recording all cores until perf is stopped.

    -B and -N keep perf from reading every mapped binary at the end of each file: that delays it, fills a
    cache with hundreds of MB, and aborts perf 6.1 at another mount namespace or a damaged build id
    (measured: "assertion failed at util/namespaces.c:301"). CLOCK_MONOTONIC because perf's default clock
    is off by hundreds of ms and has no wall-clock reference in the file (measured: 227.6 ms).
    """
    options = ["--quiet", "--all-cpus", "-g", "-B", "-N", "--clockid=CLOCK_MONOTONIC"]
    return [perf, "record", *options, f"--freq={frequency}", f"--output={output}"]
