"""How long a person waits for `overnight --help`."""

from __future__ import annotations

import pathlib
import subprocess
import sys

from benchmarks import Result, median_of

OVERNIGHT = pathlib.Path(sys.executable).with_name("overnight")


def _run(*command: object) -> None:
    subprocess.run([str(c) for c in command], stdout=subprocess.DEVNULL, check=True)


def measure() -> list[Result]:
    ours = median_of(11, lambda: _run(OVERNIGHT, "--help")) * 1000
    bare = median_of(11, lambda: _run(sys.executable, "-c", "pass")) * 1000
    pip = median_of(5, lambda: _run(sys.executable, "-m", "pip", "--help")) * 1000
    doctor = median_of(5, lambda: _run(OVERNIGHT, "doctor", "-O", "json")) * 1000
    return [
        Result("overnight --help", ours, "ms", "<= 250", ours <= 250, "pip --help", pip),
        Result("of that, Python itself", bare, "ms"),
        Result("overnight doctor -O json", doctor, "ms"),
    ]
