"""A fake host whose counters rise with real time, for a recorder that runs in its own process.

Its cores are exactly as busy as a test says, however busy the machine is that runs the test. Only the
files that the `cpu` and `processes` signals read are there.

    with livehost.LiveHost(folder, cores=2, others=0.1) as host:
        host.saturate(1, pid=4242, name="the-hog")    # now start the agent with --root FOLDER
"""

from __future__ import annotations

import os
import pathlib
import threading
import time

TICKS_A_SECOND = os.sysconf("SC_CLK_TCK")
WRITE_SECONDS = 0.05


class LiveHost:
    """Rewrites /proc/stat some times a second. Ticks follow the clock, so a late write loses none."""

    def __init__(self, root: pathlib.Path, cores: int = 2, others: float = 0.1) -> None:
        self.root = root
        self._others = others
        self._ticks = [[1000.0] * 10 for _ in range(cores)]
        self._saturated: dict[int, str] = {}
        self._process_ticks = 0.0
        self._written = time.monotonic()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._put("proc/sys/kernel/osrelease", "6.1.0\n")
        self._put("proc/sys/kernel/random/boot_id", "0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0\n")
        self._put("sys/devices/system/cpu/online", f"0-{cores - 1}\n")
        self._put("proc/loadavg", "0.10 0.10 0.10 1/10 5000\n")
        self._write()

    def __enter__(self) -> LiveHost:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def saturate(self, core: int, pid: int, name: str) -> None:
        """From now on the process keeps that core 100 % busy in the kernel."""
        before, between, after = " 0" * 9, " 0" * 6, " 0" * 14
        self._saturated[core] = (
            f"{pid} ({name}) R 1{before} 0 {{ticks:012d}}{between} 99 0 44{after} {core} 0 0 0\n"
        )

    def _run(self) -> None:
        while not self._stop.wait(WRITE_SECONDS):
            self._write()

    def _write(self) -> None:
        now = time.monotonic()
        ticks, self._written = (now - self._written) * TICKS_A_SECOND, now
        for core, row in enumerate(self._ticks):
            mode, share = (2, 1.0) if core in self._saturated else (0, self._others)
            row[mode] += ticks * share
            row[3] += ticks * (1 - share)
        rows = [" ".join(f"{int(value):012d}" for value in row) for row in self._ticks]
        lines = [f"cpu {rows[0]}", *(f"cpu{core} {row}" for core, row in enumerate(rows))]
        self._put("proc/stat", "\n".join([*lines, "intr 0", ""]))
        self._process_ticks += ticks
        for text in list(self._saturated.values()):
            pid = text.partition(" ")[0]
            self._put(f"proc/{pid}/stat", text.format(ticks=int(self._process_ticks)))

    def _put(self, path: str, text: str) -> None:
        """Write in one call and never truncate: a reader may hold the file open at any moment."""
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT, 0o644)
        try:
            os.pwrite(descriptor, text.encode(), 0)
        finally:
            os.close(descriptor)
