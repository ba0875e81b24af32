"""Cost of each instrument on a host with load: its share of a core, and what it takes from the load.

    python -m benchmarks.instruments        the table alone

Beside it run `overnight load network`, whose packets are softirqs and wake-ups, and the loop of `overnight load cpu`,
which counts its rounds per second of CPU time, in turns without and with the instrument: what BPF programs and
tracepoints take in interrupts and context switches is missing there. Rounds per second of CPU time do not depend on
other work on the machine, as rounds per second do.
"""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator

import benchmarks
from overnight import errors, instruments
from overnight.store import readings

CLI = (sys.executable, "-m", "overnight")
SPIN_SECONDS, TURNS = 3.0, 3
TARGETS = {"process": "load-network-0", "function": "vfs_read"}
SPIN = """
import os, sys, time
from overnight.load.workloads import cpu
os.sched_setaffinity(0, {int(sys.argv[1])})
rates, end = [], time.monotonic() + float(sys.argv[2])
while time.monotonic() < end:
    rounds, used = 0, time.thread_time()
    while (spent := time.thread_time() - used) < 0.1:
        for _ in cpu.SPIN:
            pass
        rounds += 1
    rates.append(rounds / spent)
# Not the mean: what others do to the caches in some of these tenths of a second does not count.
print(sorted(rates)[9 * len(rates) // 10])
"""


def measure() -> list[benchmarks.Result]:
    results = []
    core = max(os.sched_getaffinity(0))
    with tempfile.TemporaryDirectory() as folder, _load(pathlib.Path(folder) / "load"):
        first, second = ([_spin(core) for _ in range(TURNS)] for _ in range(2))
        noise = 100 * statistics.median(second) / statistics.mean(first)
        results.append(
            benchmarks.Result("no instrument: rounds of `load cpu`", noise, "% of before")
        )
        for name, instrument in instruments.discover().items():
            target = TARGETS[instrument.target] if instrument.needs_target else ""
            try:
                instrument.prepare(target)
            except errors.CannotError as error:
                print(f"{name}: {error.what}", file=sys.stderr)
                continue
            shares, document = _compare(pathlib.Path(folder) / name, name, target, core)
            (recording,) = document["recordings"]
            seconds = (recording["until_us"] - recording["began_us"]) / 1e6
            usage = recording["usage"]
            spent = usage["cpu_seconds"] + (usage["kernel_seconds"] or 0.0)
            results += [
                benchmarks.Result(f"{name}: its processes and BPF programs", 100 * spent / seconds, "% of a core"),
                benchmarks.Result(f"{name}: rounds of `load cpu` with it", 100 * statistics.median(shares), "% of without"),
                benchmarks.Result(f"{name}: events lost", usage["lost"], "events"),
            ]  # fmt: skip
    return results


def _compare(
    home: pathlib.Path, name: str, target: str, core: int
) -> tuple[list[float], dict[str, list[dict[str, dict[str, float]]]]]:
    """Return the rounds with the instrument as shares of those without, turn by turn, and its result."""
    without = [_spin(core)]
    words = [*CLI, "--home", str(home), "instrument", name, *filter(None, [target]), "-O", "json"]
    process = subprocess.Popen([*words, "--for", "10m"], stdout=subprocess.PIPE)
    while not readings.read_recordings(home):
        time.sleep(0.05)
    time.sleep(2.0)
    beside = [_spin(core) for _ in range(TURNS)]
    process.terminate()
    output, _ = process.communicate(timeout=60)
    without.append(_spin(core))
    return [each / statistics.mean(without) for each in beside], json.loads(output)


def _spin(core: int) -> float:
    words = [sys.executable, "-c", SPIN, str(core), str(SPIN_SECONDS)]
    return float(subprocess.run(words, capture_output=True, check=True, text=True).stdout)


@contextlib.contextmanager
def _load(home: pathlib.Path) -> Iterator[None]:
    cores = ",".join(map(str, sorted(os.sched_getaffinity(0))[-2:]))
    words = ("--home", str(home), "load", "network", "--cores", cores, "--for", "1h")
    process = subprocess.Popen([*CLI, *words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        time.sleep(8.0)
        yield
    finally:
        process.terminate()
        process.wait()


if __name__ == "__main__":
    for result in measure():
        print(f"{result.what:52} {result.value:8.2f} {result.unit}")
