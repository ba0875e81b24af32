"""Uplinks for tests: a ring with events and CPU readings, and the real process that reports it."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace

import uplink_server

import overnight
from overnight.model import clock, cpu
from overnight.model.event import Event, event_id
from overnight.store.ring import layout, writer

PACKAGE = str(pathlib.Path(overnight.__file__).parent.parent)
HOST, BOOT = "db-7", "1a2b3c4d" * 4


class LiveRing:
    """A ring that a test writes as the flight recorder does, on a clock of its own."""

    def __init__(self, home: pathlib.Path, begin_s: float | None = None, cores: int = 4) -> None:
        self.home = home
        self.cores = cores
        self.folder = layout.host_folder(home, HOST)
        self.wall_ns = round((time.time() - 600 if begin_s is None else begin_s) * 1e9)
        self.mono_ns = 5_000 * 10**9
        self.ring = writer.Writer(home, HOST, BOOT, budget_bytes=1 << 30, age_seconds=30 * 86400)
        self.events: dict[str, Event] = {}
        self._ticks = {str(core): [10**6] * len(cpu.MODES) for core in range(cores)}

    def second(self, busy: dict[int, tuple[int, ...]] | None = None) -> None:
        """Record one second; `busy` has the ticks by mode of some cores."""
        self.wall_ns += 10**9
        self.mono_ns += 10**9
        for core, row in self._ticks.items():
            step = (busy or {}).get(int(core), (2, 0, 1, 97, 0, 0, 0, 0, 0, 0))
            self._ticks[core] = [a + b for a, b in zip(row, step, strict=True)]
        now = clock.Clock(self.wall_ns, self.mono_ns)
        rows = {core: tuple(row) for core, row in self._ticks.items()}
        self.ring.numbers("cpu", cpu.MODES, now, rows)
        self.ring.numbers("memory", ("free",), now, {"": (self.wall_ns % 1000,)})
        self.ring.tick(now)

    def seconds(self, count: int) -> None:
        for _ in range(count):
            self.second()

    def followed_seconds(self, count: int) -> None:
        """Record many seconds, no faster than an uplink follows: a block takes ten minutes elsewhere."""
        for n in range(count):
            self.second()
            if n % 250 == 0:
                time.sleep(0.7)

    def event(self, key: str, severity: str = "info", **fields: object) -> Event:
        time_us = self.wall_ns // 1000
        name = event_id(HOST, BOOT, "test.event", key, self.mono_ns)
        event = Event(time_us, "test.event", f"event {key}", HOST, severity=severity, id=name, boot=BOOT, **fields)  # type: ignore[arg-type]  # fmt: skip
        self.ring.event(event)
        self.events[event.id] = event
        return event


class Process:
    """The uplink as `overnight agent` starts it."""

    def __init__(self, home: pathlib.Path, url: str, **options: object) -> None:
        given = {
            "home": str(home),
            "ring": str(layout.host_folder(home, HOST)),
            "host": HOST,
            "boot": BOOT,
            "server": url,
            "token": uplink_server.TOKEN,
            **options,
        }
        self.child = subprocess.Popen(
            [sys.executable, "-S", "-P", "-m", "overnight.agent.uplink"],
            stdin=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": PACKAGE},
        )
        assert self.child.stdin is not None
        self.child.stdin.write(json.dumps(given) + "\n")
        self.child.stdin.flush()
        self.log = ""

    def kill(self) -> None:
        self.child.kill()
        self._end()

    def stop(self) -> int:
        """Stop it as the agent does: it sends what is left."""
        assert self.child.stdin is not None
        self.child.stdin.close()
        self._end()
        return self.child.returncode

    def _end(self) -> None:
        assert self.child.stdin is not None
        assert self.child.stderr is not None
        self.log = self.child.stderr.read()
        self.child.stderr.close()
        with contextlib.suppress(OSError):
            self.child.stdin.close()
        self.child.wait(60)


@contextlib.contextmanager
def running(home: pathlib.Path, url: str, **options: object) -> Iterator[Process]:
    process = Process(home, url, **options)
    try:
        yield process
    finally:
        if process.child.poll() is None or not process.log:
            with contextlib.suppress(ValueError, OSError):
                process.child.send_signal(signal.SIGKILL)
                process._end()


__all__ = ["HOST", "LiveRing", "Process", "replace", "running"]
