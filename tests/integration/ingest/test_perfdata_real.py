"""Recordings of real perf in all its formats: we read the same samples as perf."""

from __future__ import annotations

import pathlib
import signal
import struct
import subprocess
import sys

import perfparity
import pytest

from overnight.ingest import perfdata

pytestmark = [pytest.mark.needs_root, pytest.mark.needs_perf, pytest.mark.together]

# Forks, execs, threads that name themselves, and artificial work in C and in the kernel.
LOAD = r"""
echo $$ > "$2"
timeout 0.7 "$1" -c 'import json, threading, zlib
def work():
    while True: zlib.compress(json.dumps(list(range(3000))).encode())
for _ in range(2): threading.Thread(target=work, daemon=True).start()
work()' &
timeout 0.7 sh -c 'while :; do ls -l /usr/lib /proc; head -c 500000 /dev/urandom | gzip; done' >/dev/null 2>&1 &
wait
"""
RECORD = ("perf", "record", "-q", "-g", "-N", "-k", "CLOCK_MONOTONIC", "-F", "1499")
SHAPES = {
    "file": ("-a",),
    "pipe": ("-a", "-o", "-"),
    "packed": ("-a", "-z"),
    # The load alone: on all cores, it would set the flag of build ids in the recordings of other tests,
    # which have none, and perf 6.1 aborts ("assertion failed at util/build-id.c:1010").
    "build ids": ("--buildid-mmap", "--sample-cpu"),
    "two events": ("-a", "-e", "cpu-clock", "-e", "task-clock"),
    "packed pipe": ("-a", "-z", "-o", "-"),
}


def record(folder: pathlib.Path, *options: str) -> pathlib.Path:
    """Record the load; its process id is in the file `pid` next to the capture."""
    path = folder / "perf.data"
    target = () if "-" in options else ("-o", str(path))
    process = subprocess.run(
        [
            *RECORD,
            *options,
            *target,
            "--",
            "sh",
            "-c",
            LOAD,
            "load",
            sys.executable,
            folder / "pid",
        ],
        capture_output=True,
        check=True,
    )
    if not target:
        path.write_bytes(process.stdout)
    return path


@pytest.fixture(scope="module")
def symbols() -> perfdata.Symbols:
    return perfdata.live_symbols()


@pytest.fixture(scope="module")
def compared(
    tmp_path_factory: pytest.TempPathFactory, symbols: perfdata.Symbols
) -> dict[str, perfparity.Comparison]:
    def record_and_compare(*options: str) -> perfparity.Comparison:
        path = record(tmp_path_factory.mktemp("real"), *options)
        return perfparity.compare(path, symbols, int(path.with_name("pid").read_text()))

    comparisons = {}
    for shape, options in SHAPES.items():
        try:
            comparisons[shape] = record_and_compare(*options)
        except subprocess.CalledProcessError as error:
            # perf 6.1 aborted on one packed file of 140: there is nothing to compare with then.
            if error.returncode != -signal.SIGABRT:
                raise
            comparisons[shape] = record_and_compare(*options)
    return comparisons


@pytest.mark.parametrize("shape", SHAPES)
def test_samples_are_the_same_as_in_perf_script(
    compared: dict[str, perfparity.Comparison], shape: str
) -> None:
    comparison = compared[shape]
    assert comparison.total > 100
    assert comparison.unexplained == []


def test_almost_all_samples_are_identical(
    compared: dict[str, perfparity.Comparison],
) -> None:
    """Check that only a few samples need an explanation.

    Only the load's own threads count: how many jump tables and odd chains other programs have depends
    on what else runs here. The idle task does not count: its few kernel stacks are easy to get right.
    """
    total = sum(comparison.own for comparison in compared.values())
    assert total > 1000
    assert sum(comparison.own_identical for comparison in compared.values()) >= 0.999 * total


def test_an_unknown_name_is_accepted_only_in_the_vdso() -> None:
    """Only perf's maps decide that an address is in the vdso; our name is not enough."""
    text = (
        "python3  7 [001]     5.000001: \n"
        "\t    7ffc8d1f2a31 [unknown] ([vdso])\n"
        "\t    55d0c0ffee00 (anonymous namespace)::f(int) (/usr/bin/x (deleted))\n"
        "\n"
        "python3  7 [001]     5.000002: \n"
        "\t    7f0000001000 [unknown] (/usr/lib/libc.so.6)\n"
        "\t    55d0c0ffee00 (anonymous namespace)::f(int) (/usr/bin/x (deleted))\n\n"
    )
    inside, outside = (sample[4] for sample in perfparity._printed(text))
    name = "(anonymous namespace)::f(int)"
    assert inside == (perfparity.IN_VDSO, name)
    assert outside == (perfparity.UNKNOWN, name)
    ours = ("__vdso_clock_gettime", name)
    assert perfparity._we_name_more(ours, inside)
    assert not perfparity._we_name_more(ours, outside)
    assert not perfparity._we_name_more(("clock_gettime", name), inside)


def count_samples(data: bytes) -> int:
    """Count the whole PERF_RECORD_SAMPLE records in a perf.data file, however it was cut."""
    (offset,) = struct.unpack_from("<Q", data, 40)
    count = 0
    while offset + 8 <= len(data):
        kind, _, size = struct.unpack_from("<IHH", data, offset)
        offset += size
        count += kind == 9 and offset <= len(data)
    return count


def test_files_left_by_a_full_disk_or_a_killed_recorder_are_read(
    tmp_path: pathlib.Path, symbols: perfdata.Symbols
) -> None:
    """Our samples are a subset of those in the whole file; perf refuses both damaged files."""
    path = record(tmp_path, *SHAPES["file"])
    whole = perfparity.read_perf_script(path)
    data = path.read_bytes()
    cut = data[: len(data) * 2 // 3]
    for name, left in (("full", cut), ("killed", cut[:48] + struct.pack("<Q", 0) + cut[56:])):
        (tmp_path / name).write_bytes(left)
        samples = perfparity.read_samples(tmp_path / name, symbols)
        assert samples.total() < whole.total()
        assert samples.total() == count_samples(cut)
        # Names and mappings recorded on another core may be in the missing part.
        assert {sample[:3] for sample in samples} <= {sample[:3] for sample in whole}
        assert any("was killed" in note for note in perfdata.read(tmp_path / name, symbols).notes)
