"""Record the cores of this host under ordinary mixes of work, to count false alarms of `cpu.core_pinned`.

    python -m benchmarks.support.mixes benchmarks/data/mixes.csv.gz --seconds 45

Each mix is real work that nobody wants an alarm for. A row has the ticks of one core in one second, by mode as in
/proc/stat, and the milliseconds that tasks waited for the core (empty: this kernel does not count them).
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import gzip
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence

from overnight import sources
from overnight.model import cpu as modes
from overnight.sources import cpu, schedstat

COLUMNS = ("mix", "second", "core", *modes.TOTAL, "waited")
CORES = sorted(os.sched_getaffinity(0))
HALF = max(1, len(CORES) // 2)
OVERNIGHT = f"{sys.executable} -m overnight"
# A source file that takes a compiler about a second.
SOURCE = "#include <{0}>\n#include <regex>\n#include <map>\nint f(const char *s)" '{{return std::regex_match(s, std::regex("a(b|c)*{1}"));}}\n'  # fmt: skip
TRAINING = """
import torch
model = torch.nn.Sequential(*(torch.nn.Linear(512, 512) for _ in range(8))).cuda()
optimizer = torch.optim.Adam(model.parameters())
while True:
    data = torch.randn(256, 512).cuda()
    loss = model(data).square().mean()
    optimizer.zero_grad(); loss.backward(); optimizer.step(); loss.item()
"""
# Of each mix a shell command that runs until it is killed, in an empty folder. `files` is a tree of 200 MB.
MIXES = {
    "idle": "sleep 1000",
    "load-60": f"exec {OVERNIGHT} --home home load cpu --duty 60% --cores {modes.format_cores(CORES)} --for 10m",
    "trials-60": f"exec {OVERNIGHT} --home home load trials --backend numpy --duty 60% --cores {modes.format_cores(CORES)} --for 10m",
    "compilation": f"while true; do ls *.cc | xargs -P {HALF} -n 1 g++ -O1 -c -o /dev/null; done",
    "user-jobs": "while true; do tar -cf all.tar files; gzip -k all.tar; sha256sum all.tar; python3 -c 'sum(i * i for i in range(10**8))'; sort -R all.tar | wc; rm all.tar*; done",
    "kernel-jobs": "while true; do for i in 1 2 3; do cp -r files copy; du -s copy; grep -rc hello copy > /dev/null; tar -cf /dev/null copy; rm -r copy; done; dd if=/dev/zero of=zero bs=1M count=2000; cat zero > /dev/null; rm zero; find /usr -name '*.h' > /dev/null; sleep 5; done",
    "kernel-jobs-load-60": f"{OVERNIGHT} --home home load cpu --duty 60% --cores {modes.format_cores(CORES)} --for 10m & while true; do cp -r files copy; tar -cf /dev/null copy; rm -r copy; dd if=/dev/zero of=zero bs=1M count=2000; rm zero; sleep 5; done",
    "stress-memory": f"exec stress-ng --vm {HALF} --vm-bytes 20% --timeout 600",
    "stress-os": "exec stress-ng --fork 1 --switch 1 --pipe 1 --poll 1 --futex 1 --hdd 1 --sock 1 --mmap 1 --timeout 600",
    "stress-cpu": f"exec stress-ng --cpu {HALF} --cpu-load 80 --matrix 2 --timeout 600",
    "gpu-training": f"exec {sys.executable} train.py",
}  # fmt: skip
NEEDS = {
    "stress": "stress-ng",
    "compilation": "g++",
    "gpu": "nvidia-smi",
}


def record(mix: str, seconds: float) -> Iterator[tuple[object, ...]]:
    """Yield the rows of one mix; what it started is killed, and its folder removed."""
    with tempfile.TemporaryDirectory(prefix="overnight-mix-", dir="/var/tmp") as name:
        folder = pathlib.Path(name)
        _fill(folder)
        process = subprocess.Popen(
            MIXES[mix], shell=True, cwd=folder, start_new_session=True, stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )  # fmt: skip
        try:
            yield from _poll(mix, seconds)
            if process.poll() is not None:
                assert process.stderr is not None
                sys.exit(f"error: {mix} ended early: {process.stderr.read().decode()[-500:]}")
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
                time.sleep(0.5)
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _fill(folder: pathlib.Path) -> None:
    files = folder / "files"
    files.mkdir()
    for number in range(2000):
        (files / f"{number}").write_bytes(os.urandom(50_000) + bytes(50_000))
    for number in range(40):
        (folder / f"{number}.cc").write_text(SOURCE.format("iostream", "x" * number))
    (folder / "train.py").write_text(TRAINING)


def _poll(mix: str, seconds: float) -> Iterator[tuple[object, ...]]:
    read_ticks, read_waits = cpu.open_ticks(), schedstat.open_schedstat()
    before: tuple[sources.Rows, sources.Rows] | None = None
    begin = time.monotonic()
    for second in range(round(seconds) + 1):
        time.sleep(max(0.0, begin + second - time.monotonic()))
        try:
            waits = read_waits()
        except sources.NoDataError:
            waits = {}
        now = read_ticks(), waits
        if before is not None:
            for core, row in now[0].items():
                ticks = modes.tick_changes(before[0][core], row)
                waited = now[1][core][1] - before[1][core][1] if core in now[1] else ""
                yield (mix, second - 1, core, *ticks, waited)
        before = now


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("file", type=pathlib.Path)
    parser.add_argument("--seconds", type=float, default=45.0, help="of each mix")
    parser.add_argument("--only", action="append", choices=MIXES)
    options = parser.parse_args(words)
    missing = {key for key, tool in NEEDS.items() if shutil.which(tool) is None}
    with gzip.open(options.file, "wt", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        for mix in options.only or MIXES:
            if mix.partition("-")[0] in missing:
                print(f"{mix}: not possible here", file=sys.stderr)
                continue
            print(mix, file=sys.stderr, flush=True)
            writer.writerows(record(mix, options.seconds))


if __name__ == "__main__":
    main()
