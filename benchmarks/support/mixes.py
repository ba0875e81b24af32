"""Ordinary work of several kinds, and how busy every core was meanwhile, second by second.

`python -m benchmarks.support.mixes FILE [--seconds N] [MIX …]` runs each mix and appends a line per second: its name,
the second, and `user/kernel` percent of each core. None of this is a fault: what the watches report as an alarm is
a false one.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import pathlib
import random
import shlex
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator

from overnight.model import cpu

__all__ = ["read"]

DATA = pathlib.Path(__file__).parents[1] / "data/mixes.txt"
NATIVE = pathlib.Path(__file__).parents[2] / "src/native"
Rows = list[list[tuple[float, float]]]


def read(path: pathlib.Path = DATA) -> dict[str, Rows]:
    """Return (user, kernel) shares of each mix: by second, then by core."""
    mixes: dict[str, Rows] = {}
    for line in path.read_text().splitlines():
        mix, _, *cores = line.split()
        pairs = (core.split("/") for core in cores)
        mixes.setdefault(mix, []).append([(int(u) / 100, int(k) / 100) for u, k in pairs])
    return mixes


def _repeat(command: str, folder: str, stop: threading.Event, pause: Callable[[], float]) -> None:
    while not stop.is_set():
        process = subprocess.Popen(
            ["sh", "-c", command], cwd=folder, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
        while process.poll() is None and not stop.wait(0.1):
            pass
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        stop.wait(pause())


def _jobs(cores: int, python: str) -> dict[str, list[tuple[str, float]]]:
    """Return the commands of each mix, with the mean pause after each in seconds."""
    load = shlex.join([python, "-m", "overnight", "--home", "home", "load"])
    loop = f"{python} -c 'x = sum(i * i for i in range({{}} * 10**7))'"
    sources = " ".join(shlex.quote(str(path)) for path in sorted(NATIVE.glob("*.c")))
    compiled = f'for f in {sources}; do ${{CC:-cc}} -O2 -w -I"$({python} -c "import sysconfig; print(sysconfig.get_paths()[\'include\'])")" -c $f -o /dev/null; done'
    tree = shlex.quote(str(pathlib.Path(python).resolve().parents[1] / "lib"))
    return {
        "load": [(f"{load} cpu --cores 0-{cores - 1} --duty 60% --for 1h", 1)],
        "trials": [(f"{load} trials --cores 0-{cores - 1} --duty 60% --for 1h", 1)],
        "stress-ng": [
            (f"exec stress-ng --cpu {cores} --cpu-load 50 --vm 1 --vm-bytes 256M --timeout 1h", 1)
        ],
        "compile": [(compiled, 0.2)] * max(1, cores * 3 // 5),
        "single": [
            (loop.format(n), pause) for n, pause in ((1, 3), (4, 8), (20, 10))
        ] * max(1, cores // 8),
        "files": [
            (f"tar cf - {tree} | xz -0 > /dev/null", 5),
            (f"find {tree} /usr/lib -type f | sort | sha256sum", 5),
            (f"cp -r {tree} copy; rm -rf copy", 10),
            ("dd if=/dev/zero of=file bs=1M count=512; sha256sum file; rm file", 5),
        ] * max(1, cores // 16),
    }  # fmt: skip


@contextlib.contextmanager
def running(mix: str, seed: int = 0) -> Iterator[None]:
    cores, stop = os.cpu_count() or 1, threading.Event()
    with tempfile.TemporaryDirectory(prefix="overnight-mix-") as folder:
        threads = []
        for number, (command, pause) in enumerate(_jobs(cores, sys.executable)[mix]):
            own = pathlib.Path(folder) / str(number)
            own.mkdir()
            chance = random.Random(f"{seed} {mix} {number}")
            threads.append(
                threading.Thread(
                    target=_repeat, args=(command, str(own), stop, lambda c=chance, p=pause: c.expovariate(1 / p))
                )
            )  # fmt: skip
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            stop.set()
            for thread in threads:
                thread.join()


def _read_ticks() -> dict[str, list[int]]:
    lines = pathlib.Path("/proc/stat").read_text().splitlines()
    rows = (line.split() for line in lines if line.startswith("cpu") and line[3] != " ")
    return {name: [int(value) for value in values] for name, *values in rows}


def record(mix: str, seconds: int, file: pathlib.Path) -> None:
    with running(mix), file.open("a") as out:
        time.sleep(5)
        then, due = _read_ticks(), time.monotonic()
        for second in range(seconds):
            due += 1
            time.sleep(max(0.0, due - time.monotonic()))
            now = _read_ticks()
            changes = (cpu.tick_changes(then[core], now[core]) for core in now)
            shares = (cpu.tick_shares(row) or cpu.Shares(0, 0, 0) for row in changes)
            texts = (f"{100 * (s.busy - s.kernel):.0f}/{100 * s.kernel:.0f}" for s in shares)
            print(mix, second, *texts, file=out, flush=True)
            then = now


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=pathlib.Path)
    parser.add_argument("mix", nargs="*")
    parser.add_argument("--seconds", type=int, default=300)
    options = parser.parse_args()
    for mix in options.mix or _jobs(1, sys.executable):
        print(mix, file=sys.stderr, flush=True)
        record(mix, options.seconds, options.file)


if __name__ == "__main__":
    main()
