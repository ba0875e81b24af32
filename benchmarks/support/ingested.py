"""Import one perf.data file in its own process: `python -m benchmarks.support.ingested`.

The first import counts everything, also Python's start and imports; the second is like the next segment of
a recorder that already has its symbol tables.
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
    """CPU seconds and bytes of two imports, and the size of the capture."""

    samples: int
    stacks: int
    cold_cpu: float
    start_cpu: float  # of the first import, until all modules are loaded
    read_cpu: float  # of the second import
    write_cpu: float
    rss_cold: int
    rss_warm: int
    samples_bytes: int
    segment_bytes: int


def ingest(path: pathlib.Path, folder: pathlib.Path) -> Ingested:
    """Import a file twice, into stores under `folder`."""
    result = subprocess.run(
        [sys.executable, "-m", "benchmarks.support.ingested", str(path), str(folder)],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return Ingested(**json.loads(result.stdout))


def _cpu() -> float:
    """Return the CPU time of this process and its ended children (the C++ demangler)."""
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
