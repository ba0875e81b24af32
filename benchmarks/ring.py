"""Cost of the flight recorder's ring: bytes per day and CPU per second, packing included."""

from __future__ import annotations

import bz2
import collections
import lzma
import pathlib
import resource
import tempfile
import time
import zlib
from collections.abc import Callable, Mapping, Sequence

from benchmarks import Result
from benchmarks.support import hostload
from overnight.model import clock
from overnight.store.ring import blocks, columns, reader, writer

__all__ = ["measure"]

BEGIN_NS = 1_794_700_000_000_000_000
SECONDS = 3600
DAY = 86400


def measure() -> list[Result]:
    results = []
    for cores, seconds, max_cpu in (
        (2, SECONDS, 0.3),
        (96, SECONDS, None),
        (192, SECONDS // 2, 1.5),
    ):
        with tempfile.TemporaryDirectory(prefix="overnight-bench-") as name:
            home = pathlib.Path(name)
            cpu, day = _write(home, cores, seconds, hostload.STORED_EVERY)
            goal, met = (f"<= {max_cpu}", cpu <= max_cpu) if max_cpu else ("", None)
            label = f"ring, {cores} cores"
            results.append(
                Result(f"{label}: CPU per second, packing included", cpu, "ms", goal, met)
            )
            limit = ("<= 25", day <= 25) if cores == 96 else ("", None)
            results.append(Result(f"{label}: a day", day, "MB", *limit))
            if cores == 96:
                results += _by_signal(home, seconds)
                results += _questions(home)
    with tempfile.TemporaryDirectory(prefix="overnight-bench-") as name:
        cpu, day = _write(pathlib.Path(name), 96, SECONDS, {})
        results.append(Result("ring, 96 cores, every reading stored: a day", day, "MB"))
        results.append(Result("ring, 96 cores, every reading stored: CPU per second", cpu, "ms"))
    return results


def _write(
    home: pathlib.Path, cores: int, seconds: int, every: Mapping[str, Sequence[float]]
) -> tuple[float, float]:
    """Return milliseconds of CPU per second and megabytes per day."""
    ring = writer.Writer(home, "bench", "1a2b3c4d", budget_bytes=1 << 40, age_seconds=DAY * 365)
    spent = 0.0
    for second in hostload.host_seconds(cores, seconds):
        at = second.number * 1_000_000_000 + hash(second.number) % 97_000
        now = clock.Clock(BEGIN_NS + at, 10**12 + at)
        begin = time.process_time()
        for signal, rows in second.rows.items():
            ring.numbers(signal, hostload.COLUMNS[signal], now, rows, every=every.get(signal, ()))
        ring.tick(now)
        spent += time.process_time() - begin
    begin = time.process_time()
    ring.close()
    spent += time.process_time() - begin
    size = sum(path.stat().st_size for path in ring.folder.glob("*.ring"))
    return spent / seconds * 1e3, size / seconds * DAY / 1e6


def _by_signal(home: pathlib.Path, seconds: int) -> list[Result]:
    sizes: collections.Counter[str] = collections.Counter()
    for path in (home / "signals" / "bench").glob("*.ring"):
        with path.open("rb") as file:
            for block in blocks.blocks_of(path, file.fileno()):
                assert isinstance(block, blocks.Block)
                sizes["heads and directories"] += blocks.HEAD_BYTES + block.head.directory_bytes
                for entry in block.directory()["tables"]:
                    places = [place for _, place in entry["chunks"]]
                    sizes[entry["signal"]] += sum(place[1] for place in places)
                    sizes["first values"] += entry["first"][1]
                    sizes["keys and times"] += entry["at"][2][1]
                    for part in ("counts", "gaps"):
                        sizes["keys and times"] += entry[part][2][1] if part in entry else 0
                times = [block.directory()[name][2][1] for name in ("mono", "offset")]
                sizes["keys and times"] += sum(times)
    return [
        Result(f"  of that {name}", size / seconds * DAY / 1e6, "MB")
        for name, size in sizes.most_common()
    ]


def _questions(home: pathlib.Path) -> list[Result]:
    """Measure reading, and other compressors on the same bytes."""
    source = reader.Reader(home)
    begin_us = BEGIN_NS // 1000 + SECONDS // 2 * 1_000_000
    started = time.process_time()
    frames = list(source.numbers("bench", "cpu", begin_us, begin_us + 60_000_000))
    took = (time.process_time() - started) * 1e3
    assert len(frames[0].keys) == 96
    chunks = []
    for path in (home / "signals" / "bench").glob("*.ring"):
        with path.open("rb") as file:
            for block in blocks.blocks_of(path, file.fileno()):
                assert isinstance(block, blocks.Block)
                for entry in block.directory()["tables"]:
                    chunks += [block.chunk(place) for _, place in entry["chunks"]]
    results = [Result("ring, 96 cores: a minute of cpu read back", took, "ms")]
    fast = [{**columns.FILTERS[0], "mode": lzma.MODE_FAST, "mf": lzma.MF_HC4, "depth": 4}]
    ways: dict[str, Callable[[bytes], bytes]] = {
        "lzma, as chosen": lambda data: columns.pack(data)[1],
        "lzma, fast": lambda data: lzma.compress(data, lzma.FORMAT_RAW, filters=fast),
        "bz2 -1": lambda data: bz2.compress(data, 1),
        "bz2 -9": lambda data: bz2.compress(data, 9),
        "zlib -9": lambda data: zlib.compress(data, 9),
        "zlib -1": lambda data: zlib.compress(data, 1),
    }
    for name, way in ways.items():
        started = time.process_time()
        size = sum(len(way(chunk)) for chunk in chunks)
        spent = (time.process_time() - started) / SECONDS * 1e3
        results.append(Result(f"  columns packed with {name}", size / SECONDS * DAY / 1e6, "MB"))
        results.append(Result(f"  {name}: CPU per second", spent, "ms"))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
    results.append(Result("  peak memory of this process, generator included", peak, "MB"))
    return results
