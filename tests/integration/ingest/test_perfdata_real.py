"""What real perf recorded, in every shape it records: we read the same samples as perf itself."""

from __future__ import annotations

import pathlib
import struct
import subprocess
import sys

import perfparity
import pytest

from overnight.ingest import perfdata

pytestmark = [pytest.mark.needs_root, pytest.mark.needs_perf]

# Forks, execs, threads that name themselves, made-up work in C and in the kernel.
LOAD = r"""
timeout 1 "$1" -c 'import json, threading, zlib
def work():
    while True: zlib.compress(json.dumps(list(range(3000))).encode())
for _ in range(2): threading.Thread(target=work, daemon=True).start()
work()' &
timeout 1 sh -c 'while :; do ls -l /usr/lib /proc; head -c 500000 /dev/urandom | gzip; done' >/dev/null 2>&1 &
wait
"""
RECORD = ("perf", "record", "-q", "-a", "-g", "-N", "-k", "CLOCK_MONOTONIC", "-F", "499")
SHAPES = {
    "file": (),
    "pipe": ("-o", "-"),
    "packed": ("-z",),
    "build ids": ("--buildid-mmap",),
    "two events": ("-e", "cpu-clock", "-e", "task-clock"),
    "packed pipe": ("-z", "-o", "-"),
}


def record(folder: pathlib.Path, *options: str) -> pathlib.Path:
    path = folder / "perf.data"
    target = () if "-" in options else ("-o", str(path))
    done = subprocess.run(
        [*RECORD, *options, *target, "--", "sh", "-c", LOAD, "load", sys.executable],
        capture_output=True,
        check=True,
    )
    if not target:
        path.write_bytes(done.stdout)
    return path


@pytest.fixture(scope="module")
def symbols() -> perfdata.Symbols:
    return perfdata.live_symbols()


@pytest.mark.parametrize("shape", SHAPES)
def test_samples_are_those_of_perf_script(
    tmp_path: pathlib.Path, symbols: perfdata.Symbols, shape: str
) -> None:
    found = perfparity.compare(record(tmp_path, *SHAPES[shape]), symbols)
    assert found.total > 100
    assert found.unexplained == []
    assert found.identical >= 0.999 * found.total


def test_what_a_full_disk_and_a_killed_recorder_leave_is_read(
    tmp_path: pathlib.Path, symbols: perfdata.Symbols
) -> None:
    """Perf itself refuses both, so what it says of the whole file is what ours must be part of."""
    path = record(tmp_path)
    whole = perfparity.theirs(path)
    data = path.read_bytes()
    cut = data[: len(data) * 2 // 3]
    for name, left in (("full", cut), ("killed", cut[:48] + struct.pack("<Q", 0) + cut[56:])):
        (tmp_path / name).write_bytes(left)
        found = perfparity.ours(tmp_path / name, symbols)
        assert 0.3 * whole.total() < found.total() < whole.total()
        assert {sample[:3] for sample in found} <= {sample[:3] for sample in whole}
        # A name or a mapping that another core told of later may be in the part that is gone.
        assert (found & whole).total() > 0.95 * found.total()
        assert any("cut off" in note for note in perfdata.read(tmp_path / name, symbols).notes)
