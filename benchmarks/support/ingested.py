"""One perf.data file brought in by a process of its own: `python -m benchmarks.support.ingested`.

The first time counts everything, Python's start and imports too; the second is the next segment of
a recorder that has its symbol tables already.
"""

from __future__ import annotations

import dataclasses
import json
import pathlib
import resource
import subprocess
import sys

__all__ = ["Ingested", "ingest"]


@dataclasses.dataclass(frozen=True)
class Ingested:
    """CPU seconds, bytes, and what the capture holds."""

    samples: int
    stacks: int
    cold_cpu: float
    start_cpu: float  # of the first: until all is imported
    read_cpu: float  # of the second
    write_cpu: float
    rss_cold: int
    rss_warm: int
    samples_bytes: int
    segment_bytes: int


def ingest(path: pathlib.Path, folder: pathlib.Path) -> Ingested:
    """Bring a file in twice, into stores under `folder`."""
    result = subprocess.run(
        [sys.executable, "-m", "benchmarks.support.ingested", str(path), str(folder)],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return Ingested(**json.loads(result.stdout))


def _cpu() -> float:
    """Ours and that of children that ended: the one that undoes C++ names."""
    own = resource.getrusage(resource.RUSAGE_SELF)
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime


def _rss() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def main(path: pathlib.Path, folder: pathlib.Path) -> None:
    from overnight.ingest import perfdata
    from overnight.ingest.symbols import cplusplus
    from overnight.store import writer

    start = _cpu()
    symbols = perfdata.live_symbols()
    cold_capture = perfdata.read(path, symbols)
    stored = writer.write_capture(folder / "cold", cold_capture, segment_seconds=86400)
    cplusplus.WORKER.close()  # its time counts when it has ended
    cold, rss = _cpu(), _rss()
    samples, stacks = len(cold_capture.time), len(cold_capture.stacks.offset) - 1
    del cold_capture
    begin = _cpu()
    warm_capture = perfdata.read(path, symbols)
    read = _cpu()
    writer.write_capture(folder / "warm", warm_capture, segment_seconds=86400)
    write = _cpu()
    sizes = {
        file.name: file.stat().st_size for segment in stored for file in segment.path.iterdir()
    }
    print(
        json.dumps(
            dataclasses.asdict(
                Ingested(
                    samples=samples,
                    stacks=stacks,
                    cold_cpu=cold,
                    start_cpu=start,
                    read_cpu=read - begin,
                    write_cpu=write - read,
                    rss_cold=rss,
                    rss_warm=_rss(),
                    samples_bytes=sizes["samples.parquet"],
                    segment_bytes=sum(sizes.values()),
                )
            )
        )
    )


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]))
