"""Speed, size and correctness of ingest compared with perf, on a freshly recorded mixed load."""

from __future__ import annotations

import pathlib
import tempfile

from benchmarks import Result, cpu_of_command
from benchmarks.support import ingested, load, parity

__all__ = ["measure"]

SAMPLES = 1_117_440  # two minutes of 96 cores at 97 Hz
SECONDS = 36.0


def measure() -> list[Result]:
    with tempfile.TemporaryDirectory(prefix="overnight-bench-") as name:
        folder = pathlib.Path(name)
        with load.record_mixed(folder, SAMPLES, SECONDS) as path:
            costs = ingested.ingest(path, folder)
            script = cpu_of_command(["perf", "script", "--no-inline", "-i", str(path)])
            same = parity.compare(path)
            raw = path.stat().st_size
    for other in same.others:
        print(f"parity: {other}")
    return [*_costs(costs, script, raw), *_parities(same)]


def _costs(costs: ingested.Ingested, script: float, raw: int) -> list[Result]:
    samples = costs.samples
    warm = costs.read_cpu + costs.write_cpu
    rate, cold = samples / warm, samples / costs.cold_cpu
    megabytes = costs.rss_cold / 1e6 * SAMPLES / max(samples, SAMPLES)
    small = costs.samples_bytes / samples
    whole = costs.segment_bytes / samples
    return [
        Result("ingest: samples recorded", samples, "samples"),
        Result("ingest: distinct stacks", costs.stacks, "stacks"),
        Result(
            "ingest, symbol tables in memory", rate / 1e6, "M samples/CPU s", ">= 1", rate >= 1e6,
            "perf script --no-inline", samples / script / 1e6, True,
        ),
        Result(
            "ingest, cold process with its imports", cold / 1e6, "M samples/CPU s", ">= 1", cold >= 1e6,
            "perf script --no-inline", samples / script / 1e6, True,
        ),
        Result("of that: Python and imports", costs.start_cpu, "CPU s"),
        Result("of the warm one: decode and names", costs.read_cpu, "CPU s"),
        Result("of the warm one: fold and write", costs.write_cpu, "CPU s"),
        Result(
            "ingest against perf script", script / warm, "x", ">= 20", script / warm >= 20,
        ),
        Result("ingest: peak memory, first segment", megabytes, "MB", "<= 400", megabytes <= 400),
        Result(
            "ingest: peak memory, second segment", costs.rss_warm / 1e6, "MB", "<= 400",
            costs.rss_warm / 1e6 <= 400,
        ),
        Result(
            "stored: samples.parquet", small, "B/sample", "<= 5", small <= 5,
            "perf.data", raw / samples,
        ),
        Result(
            "stored: the whole segment", whole, "B/sample", "<= 8", whole <= 8,
            "perf.data", raw / samples,
        ),
    ]  # fmt: skip


def _parities(same: parity.Parity) -> list[Result]:
    return [
        Result(
            "parity with perf script, strictly", same.strictly, "%", ">= 99.98",
            same.strictly >= 99.98,
        ),
        Result("parity, explained differences apart", same.explained, "%"),
        Result("perf says unknown, we x@plt", same.plt, "samples"),
        Result("perf cuts a stack at an invalid word", same.emptied, "samples"),
    ]  # fmt: skip
