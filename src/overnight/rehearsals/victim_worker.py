"""The victim's worker: takes packets from its queue, does fixed work on each, resets when it is late.

It stands in for a driver's completion handler. It needs most of its core; when the core is taken, completions
fall behind. A completion that is `late_ms` late makes it drop its queue and log a driver's reset message to the
kernel log, marked as a rehearsal.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import pathlib
import select
import socket
import struct
import time
from typing import Any

from overnight.rehearsals import processes

HEAD = struct.Struct("!QQ")  # number, time sent
PORT = 5001
SO_RCVBUFFORCE = 33
QUEUE_BYTES = 256 << 20
BLOCK = bytes(range(256)) * (16 << 10)
RESET_NS = 5_000_000_000
STATUS_NS = 250_000_000
WARM_NS, WARM_TRIES = 900_000_000, 3
CALIBRATE_NS = 200_000_000


def lines(settings: dict[str, Any], waited_us: int) -> tuple[str, str]:
    """Return the kernel log lines of driver version 2.17, marked as a rehearsal."""
    mark = f"[overnight rehearsal {settings['run']}]"
    head = f"ena {settings['bus']} {settings['interface']}:"
    paused = (
        f"{head} TX q {settings['queue']} is paused for too long (threshold {1000 * settings['late_ms']})."
        f" usecs since napi {waited_us}. napi scheduled: 1. napi CPU: {settings['core']}."
        f" msecs since interrupt: {waited_us // 1000} {mark}"
    )
    done = "Device reset completed, status: 0, Driver info: Elastic Network Adapter (ENA)"
    return paused, f"{head} {done} v{settings['driver']} {mark}"


class Worker:
    def __init__(self, settings: dict[str, Any], queue: socket.socket) -> None:
        self._settings = settings
        self._queue = queue
        self._view = memoryview(BLOCK)
        self.bytes_a_packet = self._calibrate()
        self._due = 0
        self._late: list[int] = []
        self._reset_ns = 0
        self.status: dict[str, Any] = {
            "ready": True, "warm": False, "completed": 0, "dropped": 0, "lost": 0, "resets": 0,
            "late_ms": 0.0, "late_p50_ms": 0.0, "worst_ms": 0.0,
            "cpu_share": 0.0, "bytes_a_packet": self.bytes_a_packet,
        }  # fmt: skip

    def _calibrate(self) -> int:
        """Return how many bytes of work give the wanted CPU share on this core."""
        done, began = 0, time.thread_time_ns()
        while (used := time.thread_time_ns() - began) < CALIBRATE_NS:
            hashlib.blake2b(self._view[: 64 << 10]).digest()
            done += 64 << 10
        wanted_ns = 1e9 * self._settings["share"] / self._settings["rate"]
        return _bounded(done * wanted_ns / used)

    def work(self, packet: bytes) -> None:
        """Checksum the packet and a block: the same work for each packet, all of it in C."""
        number, sent = HEAD.unpack_from(packet)
        summed = hashlib.blake2b(packet)
        summed.update(self._view[: self.bytes_a_packet])
        now = time.monotonic_ns()
        self.status["completed"] += 1
        self.status["lost"] += max(0, number - self._due)
        self._due = number + 1
        late = now - sent
        self._late.append(late)
        is_new = now - self._reset_ns >= RESET_NS  # once in a strike
        if late >= 1_000_000 * self._settings["late_ms"] and is_new:
            self._reset_ns = now
            self.reset(late // 1000)

    def reset(self, waited_us: int) -> None:
        """Drop the queue, as the driver's reset does, and log it."""
        dropped = 0
        while select.select((self._queue,), (), (), 0)[0] and dropped < 1 << 20:
            number, sent = HEAD.unpack_from(self._queue.recv(2048))
            dropped += 1
            self._due = number + 1
            if time.monotonic_ns() - sent < STATUS_NS:
                break
        self.status["dropped"] += dropped
        self.status["resets"] += 1
        for line in lines(self._settings, waited_us):
            self.log(line)

    def log(self, line: str) -> None:
        """Write one warning to the kernel log; one write is one record."""
        handle = os.open("/dev/kmsg", os.O_WRONLY)
        try:
            os.write(handle, f"<4>{line}\n".encode())
        finally:
            os.close(handle)

    def write_status(self, file: pathlib.Path, share: float) -> None:
        late = sorted(self._late) or [0]
        self.status |= {
            "late_ms": late[-1] / 1e6,
            "late_p50_ms": late[len(late) // 2] / 1e6,
            "worst_ms": max(self.status["worst_ms"], late[-1] / 1e6),
            "cpu_share": round(share, 3),
            "bytes_a_packet": self.bytes_a_packet,
            "monotonic_ns": time.monotonic_ns(),
        }
        self._late.clear()
        # Without fsync: several times a second, and of no use after a crash.
        new = file.with_suffix(".new")
        new.write_text(json.dumps(self.status))
        new.replace(file)

    def run(self, file: pathlib.Path) -> None:
        self.write_status(file, 0.0)
        written = warm = time.monotonic_ns()
        used = used_warm = time.thread_time_ns()
        tries = completed_warm = 0
        while True:
            with contextlib.suppress(TimeoutError):
                self.work(self._queue.recv(2048))
            now = time.monotonic_ns()
            if self.status["completed"] < self._settings["rate"] // 4:
                # No packets yet, or the first ones are still warming the caches.
                warm, used_warm = now, time.thread_time_ns()
                completed_warm = self.status["completed"]
            elif tries < WARM_TRIES and now - warm > WARM_NS:
                spent, completed = time.thread_time_ns(), self.status["completed"]
                self.correct(spent - used_warm, completed - completed_warm)
                warm, used_warm, completed_warm = now, spent, completed
                tries += 1
                self.status |= {"warm": tries == WARM_TRIES, "worst_ms": 0.0}
            if now - written > STATUS_NS:
                spent = time.thread_time_ns()
                self.write_status(file, (spent - used) / max(1, now - written))
                written, used = now, spent

    def correct(self, used_ns: int, packets: int) -> None:
        """Adjust the work to the CPU time that packets took, which includes the cost of receiving.

        Per packet, not per second: on a busy core the worker gets less CPU time, and must not be given more work.
        """
        share = used_ns / max(1, packets) * self._settings["rate"] / 1e9
        more = min(1.3, max(0.7, self._settings["share"] / max(0.01, share)))
        self.bytes_a_packet = _bounded(self.bytes_a_packet * more)


def _bounded(size: float) -> int:
    return max(1024, min(len(BLOCK), int(size)))


def main() -> None:
    settings = processes.begin()
    queue = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    queue.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, QUEUE_BYTES)
    queue.bind((settings["address"], PORT))
    queue.settimeout(0.1)
    Worker(settings, queue).run(pathlib.Path(settings["status"]))


if __name__ == "__main__":
    main()
