"""The text of the real `perf script`, with any fields."""

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


def threads(parsed: capture.Capture) -> list[tuple[int, str]]:
    return [(int(parsed.tasks.tid[i]), parsed.tasks.thread[i]) for i in parsed.task.tolist()]


def stack(parsed: capture.Capture, row: int) -> list[str]:
    number = parsed.stack[row]
    begin, end = parsed.stacks.offset[number], parsed.stacks.offset[number + 1]
    return [parsed.frames.name[i] for i in parsed.stacks.frame[begin:end].tolist()]


@pytest.mark.needs_root
@pytest.mark.needs_perf
@pytest.mark.together
def test_real_perf_script_is_read_the_same_with_any_fields(tmp_path: pathlib.Path) -> None:
    data = tmp_path / "perf.data"
    burn = "timeout 0.4 bash -c 'while :; do :; done'; true"
    record = ["perf", "record", "-q", "-g", "-N", "-k", "CLOCK_MONOTONIC", "-F", "499", "-a"]
    subprocess.run([*record, "-e", "cpu-clock", "-o", data, "--", "bash", "-c", burn], check=True)
    closed = data.stat().st_mtime_ns
    outputs = []
    for fields in (["--header"], ["-F", "+pid,+symoff"], ["--ns", "-F", "+pid,-period"]):
        script = ["perf", "script", "--no-inline", "-i", data, *fields]
        text = subprocess.run(script, check=True, capture_output=True).stdout
        outputs.append(read(tmp_path / f"{len(outputs)}.txt", text))
    plain, with_pid, exact = outputs
    assert len(plain.time) > 100
    assert closed - 3_000_000_000 < plain.end <= closed + 1_000_000
    assert "bash" in with_pid.tasks.process
    for other in (with_pid, exact):
        assert threads(other) == threads(plain)
        assert other.cpu.tolist() == plain.cpu.tolist()
        rows = range(len(plain.time))
        assert [stack(other, row) for row in rows] == [stack(plain, row) for row in rows]
    assert plain.frequency == 499
    assert not any("unknown lines" in note for output in outputs for note in output.notes)
