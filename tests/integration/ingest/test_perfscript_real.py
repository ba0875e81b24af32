"""The text of the real `perf script`, whatever fields it was asked for."""

from __future__ import annotations

import pathlib
import subprocess
from typing import TYPE_CHECKING

import pytest

from overnight.ingest.formats import perfscript

if TYPE_CHECKING:
    from overnight.store import capture


def read(path: pathlib.Path, text: bytes) -> capture.Capture:
    path.write_bytes(text)
    return perfscript.read(path, "")


def threads(made: capture.Capture) -> list[tuple[int, str]]:
    return [(int(made.tasks.tid[i]), made.tasks.thread[i]) for i in made.task.tolist()]


def stack(made: capture.Capture, row: int) -> list[str]:
    number = made.stack[row]
    begin, end = made.stacks.offset[number], made.stacks.offset[number + 1]
    return [made.frames.name[i] for i in made.stacks.frame[begin:end].tolist()]


@pytest.mark.needs_root
@pytest.mark.needs_perf
def test_real_perf_gives_the_same_with_any_fields(tmp_path: pathlib.Path) -> None:
    data = tmp_path / "perf.data"
    burn = "timeout 0.4 bash -c 'while :; do :; done'; true"
    record = ["perf", "record", "-q", "-g", "-N", "-k", "CLOCK_MONOTONIC", "-F", "499", "-a"]
    subprocess.run([*record, "-e", "cpu-clock", "-o", data, "--", "bash", "-c", burn], check=True)
    closed = data.stat().st_mtime_ns
    taken = []
    for fields in (["--header"], ["-F", "+pid,+symoff"], ["--ns", "-F", "+pid,-period"]):
        script = ["perf", "script", "--no-inline", "-i", data, *fields]
        text = subprocess.run(script, check=True, capture_output=True).stdout
        taken.append(read(tmp_path / f"{len(taken)}.txt", text))
    usual, with_pid, exact = taken
    assert len(usual.time) > 100
    assert closed - 3_000_000_000 < usual.end <= closed + 1_000_000
    assert "bash" in with_pid.tasks.process
    for other in (with_pid, exact):
        assert threads(other) == threads(usual)
        assert other.cpu.tolist() == usual.cpu.tolist()
        rows = range(len(usual.time))
        assert [stack(other, row) for row in rows] == [stack(usual, row) for row in rows]
    assert usual.frequency == 499
    assert not any("unknown lines" in note for one in taken for note in one.notes)
