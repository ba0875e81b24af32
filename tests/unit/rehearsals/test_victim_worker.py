"""The worker's arithmetic: lateness, resets and drops."""

from __future__ import annotations

import json
import pathlib
import socket
import time
from collections.abc import Iterator

import pytest

from overnight.rehearsals import victim_worker

PARAMETERS = {
    "run": "overnight-0", "bus": "0000:20:03.0", "interface": "ens5", "queue": 3, "late_ms": 5000, "core": 1,
    "driver": "2.17.0g", "share": 0.01, "rate": 1000,
}  # fmt: skip


class Quiet(victim_worker.Worker):
    """Keep the lines that it would write to the kernel log."""

    lines: list[str]

    def log(self, line: str) -> None:
        self.lines.append(line)


@pytest.fixture
def pair() -> Iterator[tuple[Quiet, socket.socket]]:
    own_end, other_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    with own_end, other_end:
        worker = Quiet(PARAMETERS, own_end)
        worker.lines = []
        yield worker, other_end


def packet(number: int, late_s: float) -> bytes:
    return victim_worker.HEAD.pack(number, time.monotonic_ns() - round(late_s * 1e9)) + b"x" * 64


def test_packets_in_time_are_completed_and_missing_numbers_are_lost(
    pair: tuple[Quiet, socket.socket], tmp_path: pathlib.Path
) -> None:
    worker, _ = pair
    for number in (0, 1, 4):
        worker.work(packet(number, 0.0))
    worker.write_status(tmp_path / "status.json", 0.5)
    data = json.loads((tmp_path / "status.json").read_text())
    assert (data["completed"], data["lost"], data["resets"], data["cpu_share"]) == (3, 2, 0, 0.5)
    assert 0 <= data["late_p50_ms"] <= data["late_ms"] < 5000
    assert worker.lines == []


def test_a_completion_five_seconds_late_drops_the_queue_and_logs_it(
    pair: tuple[Quiet, socket.socket],
) -> None:
    worker, other_end = pair
    for number in range(1, 8):
        other_end.send(packet(number, 3.0))
    worker.work(packet(0, 5.5))
    assert worker.status["resets"] == 1
    assert worker.status["dropped"] == 7
    paused, done = worker.lines
    assert "TX q 3 is paused for too long (threshold 5000000)" in paused
    assert "napi CPU: 1" in paused
    assert "Device reset completed, status: 0" in done


def test_it_resets_once_in_five_seconds(pair: tuple[Quiet, socket.socket]) -> None:
    worker, _ = pair
    worker.work(packet(0, 6.0))
    worker.work(packet(1, 6.0))
    assert worker.status["resets"] == 1
    assert worker.status["lost"] == 0


def test_a_worker_that_gets_little_time_is_not_given_more_work(
    pair: tuple[Quiet, socket.socket],
) -> None:
    """It compared CPU time with wall-clock time: on a busy core the work grew, and it never caught up."""
    worker, _ = pair
    before = worker.status["bytes_a_packet"]
    ns_a_packet = round(1e9 * PARAMETERS["share"] / PARAMETERS["rate"])
    worker.correct(100 * ns_a_packet, 100)  # a tenth of the packets of a second, as on a busy core
    assert worker.bytes_a_packet == before
    worker.correct(1000 * ns_a_packet * 11 // 10, 1000)
    assert worker.bytes_a_packet < before
