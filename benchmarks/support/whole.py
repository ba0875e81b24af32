"""The whole `overnight record` command as a user runs it: CPU time and memory of all its processes.

Memory is PSS: a page that several processes share counts once, in parts. RSS counts it in each of them. CPU
time is that of all processes, including those that ended, from the beginning of the first measured second to
the end of the last one: start-up and the final report happen once a night and are reported separately.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import pathlib
import subprocess
import sys
import time

__all__ = ["Whole", "record"]

SETTLE = 10.0  # seconds until all processes have started
TICKS = os.sysconf("SC_CLK_TCK")
PARTS = {
    "overnight.agent": "flight recorder",
    "spool_ingest": "ingest",
    "cxa_worker": "ingest",
    "perf\0record": "perf",
}


@dataclasses.dataclass(frozen=True)
class Whole:
    """Percentages are of one core; megabytes of 2**20 bytes."""

    cpu_percent: float
    parts_percent: dict[str, float]
    pss_mean: float
    pss_peak: float
    rss_peak: float
    once_cpu: float  # seconds of CPU at start and end
    failed: bool


def _tree(pid: int) -> list[int]:
    found = [pid]
    with contextlib.suppress(OSError):
        for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
            for child in (task / "children").read_text().split():
                found += _tree(int(child))
    return found


def _part(pid: int) -> str:
    command = pathlib.Path(f"/proc/{pid}/cmdline").read_text()
    return next((part for word, part in PARTS.items() if word in command), "record")


def _read(root: int) -> tuple[dict[str, float], float, float]:
    """Return CPU seconds by part, with those of ended children, and PSS and RSS in megabytes."""
    cpu: dict[str, float] = {}
    pss = rss = 0.0
    for pid in _tree(root):
        with contextlib.suppress(OSError):  # it has just ended
            part = _part(pid)
            fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
            cpu[part] = cpu.get(part, 0.0) + sum(map(int, fields[11:15])) / TICKS
            for line in pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
                if line.startswith("Pss:"):
                    pss += int(line.split()[1]) / 1024
                elif line.startswith("Rss:"):
                    rss += int(line.split()[1]) / 1024
    return cpu, pss, rss


def record(recorder: str, seconds: float, segment: float, home: pathlib.Path) -> Whole:
    """Record into `home` and measure each second, from the tenth on."""
    process = subprocess.Popen(
        [
            sys.executable, "-m", "overnight", "--home", str(home), "record", "--for", f"{seconds}s",
            "--segment", f"{segment}s", "--recorder", recorder,
        ],
        stdout=subprocess.DEVNULL,
    )  # fmt: skip
    began = time.monotonic()
    read: list[tuple[float, dict[str, float], float, float]] = []
    while (now := time.monotonic()) < began + seconds - 1:
        if now > began + SETTLE:
            read.append((now, *_read(process.pid)))
        time.sleep(1 - (time.monotonic() - began) % 1)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    first, last = read[0], read[-1]
    parts = {
        part: 100 * (last[1][part] - first[1].get(part, 0.0)) / (last[0] - first[0])
        for part in last[1]
    }
    percent = sum(parts.values())
    steady = percent / 100 * seconds
    return Whole(
        cpu_percent=percent,
        parts_percent=parts,
        pss_mean=sum(each[2] for each in read) / len(read),
        pss_peak=max(each[2] for each in read),
        rss_peak=max(each[3] for each in read),
        once_cpu=used.ru_utime + used.ru_stime - steady,
        failed=process.returncode != 0,
    )
