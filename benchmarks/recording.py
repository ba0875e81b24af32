"""Cost of recording: at 97 Hz, at the sample rate of 96 cores on this host's cores, and of the whole command.

`python -m benchmarks.recording native` measures the whole command alone, in 6 minutes: `overnight record` with
that recorder, or with both, beside processes that keep half of the cores busy.
"""

from __future__ import annotations

import os
import pathlib
import sys
import tempfile

from benchmarks import Result, cpu_of_command
from benchmarks.support import load, recorded, whole

__all__ = ["measure"]

SECONDS = 20.0
HZ = 97
CORES = 96
WHOLE_SECONDS, SEGMENT_SECONDS = 380.0, 120.0  # three segments are ingested meanwhile


def measure() -> list[Result]:
    cores = os.cpu_count() or 1
    dense = CORES * HZ // cores
    results = []
    # All cores busy: an idle core gives no samples, which would lower the rate.
    with load.busy_cores(cores), tempfile.TemporaryDirectory(prefix="overnight-bench-") as name:
        folder = pathlib.Path(name)
        for rate in (HZ, dense):
            alone = cpu_of_command(
                ["perf", "record", "-q", "-a", "-g", "-N", "-k", "CLOCK_MONOTONIC", "-F", str(rate),
                 "-o", str(folder / f"{rate}.perf.data"), "--", "sleep", str(SECONDS)]
            )  # fmt: skip
            for recorder in ("perf", "native"):
                costs = recorded.record(recorder, rate, SECONDS, folder / f"{recorder}-{rate}")
                results += _results(recorder, rate, costs, 100 * alone / SECONDS)
    return results + measure_whole()


def measure_whole(*recorders: str) -> list[Result]:
    results = []
    half = max(1, (os.cpu_count() or 1) // 2)
    with load.busy_cores(half), tempfile.TemporaryDirectory(prefix="overnight-bench-") as name:
        for recorder in recorders or ("native", "perf"):
            home = pathlib.Path(name) / recorder
            costs = whole.record(recorder, WHOLE_SECONDS, SEGMENT_SECONDS, home)
            title = f"record, {recorder} recorder, {os.cpu_count()} cores"
            cpu, pss = costs.cpu_percent, costs.pss_peak
            results += [
                Result(f"{title}: in all", cpu, "% of a core", "<= 1", cpu <= 1),
                *(
                    Result(f"{title}: {part}", used, "% of a core")
                    for part, used in costs.parts_percent.items()
                ),
                Result(f"{title}: memory (PSS), mean", costs.pss_mean, "MB"),
                Result(f"{title}: memory (PSS), peak", pss, "MB", "<= 150", pss <= 150),
                Result(f"{title}: memory (sum of RSS), peak", costs.rss_peak, "MB"),
                Result(f"{title}: start and end", costs.once_cpu, "CPU s"),
                Result(f"{title}: failed", costs.failed, "", "0", not costs.failed),
            ]
    return results


def _results(recorder: str, rate: int, costs: recorded.Recorded, alone: float) -> list[Result]:
    name = f"{recorder} recorder, {rate} Hz"
    whole = costs.recorder_percent + costs.ingest_percent
    return [
        Result(f"{name}: samples a second", costs.samples / costs.seconds, "1/s"),
        Result(
            f"{name}: recorder", costs.recorder_percent, "% of a core", "", None,
            "perf record alone", alone,
        ),
        Result(f"{name}: ingest", costs.ingest_percent, "% of a core"),
        Result(f"{name}: in all", whole, "% of a core", "<= 6", whole <= 6),
        Result(f"{name}: once, for symbols", costs.once_cpu, "CPU s"),
        Result(f"{name}: peak memory", costs.rss_bytes / 1e6, "MB"),
        Result(f"{name}: lost", costs.lost, "samples", "0", costs.lost == 0),
        Result(
            f"{name}: gap at a switch", costs.gap_periods, "periods", "<= 1", costs.gap_periods <= 1
        ),
    ]  # fmt: skip


if __name__ == "__main__":
    for row in measure_whole(*sys.argv[1:]):
        print(f"{row.what:60} {row.value:8.2f} {row.unit:12} {row.goal}")
