"""Reading samples out of a real perf.data: C, Python, and `perf script` on the same file."""

from __future__ import annotations

import pathlib
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable

from benchmarks import Result, cpu_of_command
from overnight.sources.perf import perfdata, records


def measure() -> list[Result]:
    perf = shutil.which("perf")
    if perf is None:
        raise SystemExit("this benchmark records with perf: apt-get install linux-perf")
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "perf.data")
        load = "find /usr/lib -type f | head -3000 | xargs cat | gzip -1 > /dev/null"
        subprocess.run(
            [
                perf,
                "record",
                "-q",
                "-a",
                "-g",
                "-N",
                "-F",
                "4999",
                "-o",
                path,
                "--",
                "sh",
                "-c",
                load,
            ],
            check=True,
            stderr=subprocess.DEVNULL,
        )
        samples = len(perfdata.read_samples(path))
        in_c = samples / _cpu_seconds(perfdata.read_samples, path)
        perfdata.decode_records = records.decode_records
        in_python = samples / _cpu_seconds(perfdata.read_samples, path)
        perfs = samples / cpu_of_command([perf, "script", "--no-inline", "-i", str(path)])
    unit = "samples/CPU s"
    return [
        Result(
            f"decode {samples} samples in C",
            in_c,
            unit,
            "",
            None,
            "perf script, with symbols",
            perfs,
            more_is_better=True,
        ),
        Result("the same in Python", in_python, unit),
    ]


def _cpu_seconds(read: Callable[[pathlib.Path], object], path: pathlib.Path) -> float:
    begin = time.process_time()
    read(path)
    return max(time.process_time() - begin, 1e-9)
