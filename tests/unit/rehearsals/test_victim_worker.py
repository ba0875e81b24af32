"""The worker's own arithmetic: lateness, resets and what is dropped."""

from __future__ import annotations

import json
import pathlib
import socket
import time
from collections.abc import Iterator

import pytest

from overnight.rehearsals import victim_worker

TOLD = {
    "run": "overnight-0", "bus": "0000:20:03.0", "interface": "ens5", "queue": 3, "core": 1,
    "driver": "2.17.0g", "share": 0.01, "rate": 1000,
}  # fmt: skip


class Quiet(victim_worker.Worker):
    """Says what it would write into the kernel log."""

    said: list[str]

    def log(self, line: str) -> None:
        self.said.append(line)


@pytest.fixture
def pair() -> Iterator[tuple[Quiet, socket.socket]]:
    mine, others = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    with mine, others:
        made = Quiet(TOLD, mine)
        made.said = []
        yield made, others


def packet(number: int, late_s: float) -> bytes:
    return victim_worker.HEAD.pack(number, time.monotonic_ns() - round(late_s * 1e9)) + b"x" * 64


def test_what_comes_in_time_is_completed_and_numbers_that_are_missing_are_lost(
    pair: tuple[Quiet, socket.socket], tmp_path: pathlib.Path
) -> None:
    made, _ = pair
    for number in (0, 1, 4):
        made.work(packet(number, 0.0))
    made.write_status(tmp_path / "status.json", 0.5)
    said = json.loads((tmp_path / "status.json").read_text())
    assert (said["completed"], said["lost"], said["resets"], said["cpu_share"]) == (3, 2, 0, 0.5)
    assert 0 <= said["late_p50_ms"] <= said["late_ms"] < 5000
    assert made.said == []


def test_a_completion_that_is_five_seconds_late_drops_the_queue_and_says_so(
    pair: tuple[Quiet, socket.socket],
) -> None:
    made, others = pair
    for number in range(1, 8):
        others.send(packet(number, 3.0))
    made.work(packet(0, 5.5))
    assert made.status["resets"] == 1
    assert made.status["dropped"] == 7
    paused, done = made.said
    assert "TX q 3 is paused for too long (threshold 5000000)" in paused
    assert "napi CPU: 1" in paused
    assert "Device reset completed, status: 0" in done


def test_it_resets_once_in_five_seconds(pair: tuple[Quiet, socket.socket]) -> None:
    made, _ = pair
    made.work(packet(0, 6.0))
    made.work(packet(1, 6.0))
    assert made.status["resets"] == 1
    assert made.status["lost"] == 0
