"""One recording by the agent in its own process, and the ingest of its last segment.

`python -m benchmarks.support.recorded RECORDER FREQUENCY SECONDS FOLDER`, JSON out. Start-up and
the first segment, which fills the symbol tables, happen once a night and are reported separately.
"""

from __future__ import annotations

import dataclasses
import json
import pathlib
import resource
import subprocess
import sys
import threading
from typing import TYPE_CHECKING

from overnight.agent import profiler

if TYPE_CHECKING:
    from overnight.store import capture

__all__ = ["Recorded", "record"]


@dataclasses.dataclass(frozen=True)
class Recorded:
    """Percentages are of one core."""

    seconds: float
    samples: int
    lost: int
    segments: int
    recorder_percent: float
    ingest_percent: float
    once_cpu: float  # ingest of the first segment minus that of the second
    rss_bytes: int
    gap_periods: float  # samples missing at a switch, on the core that lost most


def record(recorder: str, frequency: int, seconds: float, folder: pathlib.Path) -> Recorded:
    """Record and measure, in two segments."""
    result = subprocess.run(
        [
            sys.executable, "-m", "benchmarks.support.recorded",
            recorder, str(frequency), str(seconds), str(folder),
        ],
        stdout=subprocess.PIPE, text=True, check=True,
    )  # fmt: skip
    return Recorded(**json.loads(result.stdout))


def _cpu() -> float:
    usages = [
        resource.getrusage(scope) for scope in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    ]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def _gap(before: capture.Capture, after: capture.Capture) -> float:
    """Return the missing periods between the last sample of a segment and the first of the next, worst core."""
    period = 1e9 / before.frequency
    missing = []
    for core in before.cores:
        last = before.time[before.cpu == core]
        first = after.time[after.cpu == core]
        if len(last) and len(first):
            missing.append((int(first[0]) - int(last[-1])) / period - 1)
    return max(missing)


def main(recorder: str, frequency: int, seconds: float, folder: pathlib.Path) -> None:
    spool = folder / "spool"
    spool.mkdir(parents=True)
    recording = profiler.run(
        profiler.ProfilerOptions(
            spool=spool,
            recorder="native" if recorder == "native" else "perf",
            frequency=frequency,
            segment_seconds=seconds / 2,
            seconds=seconds,
        ),
        threading.Event(),
    )
    # Imported late: the recorder's memory is measured without them.
    from overnight.ingest import perfdata
    from overnight.store import writer

    symbols = perfdata.live_symbols()
    captures, costs = [], []
    for path in recording.segments:
        begin = _cpu()
        captures.append(perfdata.read(path, symbols))
        writer.write_capture(folder / "store", captures[-1], segment_seconds=86400)
        costs.append(_cpu() - begin)
    lengths = [(each.end - each.begin) / 1e9 for each in captures]
    # The second: the first filled the symbol tables, and a third may be a moment long.
    print(
        json.dumps(
            dataclasses.asdict(
                Recorded(
                    seconds=recording.seconds,
                    samples=sum(len(each.time) for each in captures),
                    lost=recording.lost,
                    segments=len(captures),
                    recorder_percent=100 * recording.cpu_seconds / recording.seconds,
                    ingest_percent=100 * costs[1] / lengths[1],
                    once_cpu=costs[0] - costs[1],
                    rss_bytes=recording.rss_peak_bytes,
                    gap_periods=_gap(captures[0], captures[1]),
                )
            )
        )
    )


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), pathlib.Path(sys.argv[4]))
