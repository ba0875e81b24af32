"""Start-up cost of commands: wall time of --help, CPU time of the others."""

from __future__ import annotations

import pathlib
import resource
import subprocess
import sys
import tempfile

from benchmarks import Result, median_of

OVERNIGHT = pathlib.Path(sys.executable).with_name("overnight")
LIGHT = (("events",), ("rules", "list"), ("doctor", "--help"), ("pool", "--help"))
PROFILES = (("top",), ("flame",), ("import", "CAPTURE"))
RUNS = 11


def _run(*command: object, check: bool = True) -> None:
    words = [str(word) for word in command]
    subprocess.run(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=check)


def _cpu_seconds(*command: object) -> float:
    """Return the least CPU time of several runs: what disturbs a run only adds to it."""
    seconds = []
    for _ in range(RUNS):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        _run(*command, check=False)  # without a recording, events exits with 3
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        seconds.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return min(seconds)


def measure() -> list[Result]:
    ours = median_of(11, lambda: _run(OVERNIGHT, "--help")) * 1000
    bare = median_of(11, lambda: _run(sys.executable, "-c", "pass")) * 1000
    pip = median_of(5, lambda: _run(sys.executable, "-m", "pip", "--help")) * 1000
    doctor = median_of(5, lambda: _run(OVERNIGHT, "doctor", "-O", "json")) * 1000
    results = [
        Result("overnight --help", ours, "ms", "<= 250", ours <= 250, "pip --help", pip),
        Result("of that, Python itself", bare, "ms"),
        Result("overnight doctor -O json", doctor, "ms"),
    ]
    with tempfile.TemporaryDirectory() as home:
        capture = pathlib.Path(home) / "capture.collapsed"
        capture.write_text("bash;main;read 5\nbash;main;write 7\n")
        _run(OVERNIGHT, "--home", home, "import", capture)
        for commands, limit in ((LIGHT, 0.2), (PROFILES, 0.35)):
            for command in commands:
                words = [capture if word == "CAPTURE" else word for word in command]
                spent = _cpu_seconds(OVERNIGHT, "--home", home, *words)
                name = f"overnight {' '.join(command)}, CPU"
                results.append(Result(name, spent, "s", f"<= {limit}", spent <= limit))
    return results
