"""A mixed real load, recorded by perf, for benchmarks of ingest."""

from __future__ import annotations

import contextlib
import ctypes
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator

__all__ = ["busy_cores", "record_mixed"]

PR_SET_CHILD_SUBREAPER = 36

PYTHON = """
import json, re, random
while True:
    rows = [{"id": i, "name": "n%d" % i, "values": [random.random() for _ in range(8)]} for i in range(2000)]
    text = json.dumps(rows)
    json.loads(text)
    len(re.findall(r'"name": "(n\\d+)"', text))
    sorted(rows, key=lambda row: row["values"][3])
"""
NODE = """
for (;;) {
  const rows = Array.from({ length: 20000 }, (_, i) => ({ i, text: "row " + i, x: Math.sin(i) }));
  JSON.parse(JSON.stringify(rows)).sort((a, b) => a.x - b.x);
}
"""
PERL = 'while (1) { my %h; $h{$_ % 977} .= chr(65 + $_ % 26) for 1..50000; join ",", sort keys %h }'
C = """
#include <algorithm>
#include <map>
#include <regex>
#include <string>
#include <vector>
int main(int n, char **v) {
  std::map<std::string, std::vector<int>> m;
  for (int i = 0; i < 1000; i++) m[std::to_string(i)].push_back(n);
  return std::regex_search(v[0], std::regex("a+b")) + (int)m.size();
}
"""


def _commands(folder: pathlib.Path) -> list[list[str]]:
    source = folder / "load.cc"
    source.write_text(C)
    compiler = shutil.which("g++") or shutil.which("gcc") or "false"
    forever = "while :; do {}; done"
    commands = [
        [sys.executable, "-c", PYTHON],
        ["sh", "-c", forever.format(f"{compiler} -O2 -o {folder}/load {source} 2>/dev/null")],
        ["sh", "-c", forever.format(f"head -c 30000000 {sys.executable} | gzip -6 >/dev/null")],
        ["sh", "-c", forever.format("find /usr -xdev -newer /etc/hostname >/dev/null 2>&1")],
    ]
    if node := shutil.which("node"):
        commands.append([node, "-e", NODE])
    elif perl := shutil.which("perl"):
        commands.append([perl, "-e", PERL])
    return commands


@contextlib.contextmanager
def running(commands: list[list[str]], folder: pathlib.Path) -> Iterator[None]:
    """Run the commands during the block, then kill them with all their children."""
    # Orphans of the shells become our children: not every init process reaps them.
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    started = [
        subprocess.Popen(
            command,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        for command in commands
    ]
    try:
        yield
    finally:
        for process in started:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            with contextlib.suppress(ChildProcessError):  # until none of its group is left
                while True:
                    os.waitpid(-process.pid, 0)


@contextlib.contextmanager
def busy_cores(count: int) -> Iterator[None]:
    """Run `count` processes that never sleep and whose stacks change."""
    with running([[sys.executable, "-c", PYTHON]] * count, pathlib.Path("/")):
        yield


@contextlib.contextmanager
def record_mixed(folder: pathlib.Path, samples: int, seconds: float) -> Iterator[pathlib.Path]:
    """Record the load and yield a perf.data file of about `samples` samples.

    During the block the processes of the load are stopped but alive, so that their symbols can be found, as in a
    recording.
    """
    path = folder / "mixed.perf.data"
    rate = round(samples / seconds / (os.cpu_count() or 1))
    commands = _commands(folder)
    with running(commands, folder):
        time.sleep(0.5)
        _record(path, rate, seconds)
        with _resting():
            yield path


def _record(path: pathlib.Path, rate: int, seconds: float) -> None:
    command = [
        "perf", "record", "-q", "-a", "-g", "-N", "-k", "CLOCK_MONOTONIC", "-F", str(rate),
        "-m", "4M", "-o", str(path), "--", "sleep", str(seconds),
    ]  # fmt: skip
    for tries_left in (2, 1, 0):
        result = subprocess.run(command, capture_output=True, text=True, check=False)
        if not result.returncode:
            return
        # perf 6.1 aborts at its end when any process on the host has mapped a file with a damaged
        # build id, as tests of readers of such files do (util/build-id.c:1010, seen here).
        if not tries_left or result.returncode > 0:
            raise RuntimeError(f"perf record: {result.stderr[-300:]}")


@contextlib.contextmanager
def _resting() -> Iterator[None]:
    """Stop all descendants of this process, so that the measurement has the cores."""
    pids = _descendants(os.getpid())
    _send(pids, signal.SIGSTOP)
    try:
        yield
    finally:  # one that serves this process, and is not of the load, could not end otherwise
        _send(pids, signal.SIGCONT)


def _send(pids: Iterable[int], number: signal.Signals) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def _descendants(pid: int) -> list[int]:
    pids = []
    for child in pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        pids += [int(child), *_descendants(int(child))]
    return pids
