"""Ingest raw segments from the spool into the store while the recording goes on.

Runs in its own process: the recorder stays small and never waits for it, and pending segments survive a
crash. When its standard input closes, for whatever reason, it ingests the rest and ends.
"""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import gzip
import math
import os
import pathlib
import select
import signal
import sys
import time
from collections.abc import Iterator

from overnight import errors
from overnight.agent import profiler as agent
from overnight.agent import spool
from overnight.app import spool_paths
from overnight.ingest import identities, perfdata
from overnight.model import files, times
from overnight.model.times import SECOND_NS
from overnight.sources import cpu, perf
from overnight.sources.perf import recovery
from overnight.store import capture, segments, trim, writer

DONE = spool_paths.DONE
# A listing of /proc, for processes that end within a segment, and of the spool.
POLL_SECONDS = identities.REFRESH_SECONDS
M_MMAP_THRESHOLD, LARGE_BYTES = -3, 1 << 18  # of mallopt(3); glibc's own limit grows to 32 MiB
MEMORY_SECONDS = 60.0  # between two tries of a segment that needs more memory than is free


def find_pending(folder: pathlib.Path) -> tuple[pathlib.Path, ...]:
    """List finished raw segments that are not in the store yet, oldest first."""
    ingested = spool_paths.read_ingested(folder)
    found = spool.Spool(folder, 0, 0).segments()
    return tuple(segment.path for segment in found if segment.path.name not in ingested)


class Ingester:
    """Ingests raw segments; keeps symbol tables in memory between them."""

    def __init__(self, home: pathlib.Path, budget_bytes: int, keep_seconds: float) -> None:
        self.home = home
        self.folder = spool_paths.spool_folder(home)
        self.budget_bytes = budget_bytes
        self.keep_seconds = keep_seconds
        self.processes = identities.Registry()
        self._live: perfdata.Symbols | None = None
        self._boot = perf.read_identity().boot[:8]
        self._journal = spool.Journal(self.folder / "gaps.jsonl")
        self._gaps_until = 0
        self._retry_at: dict[
            str, float
        ] = {}  # of segments that failed; a damaged one is not tried again

    def run(self) -> Iterator[str]:
        """Ingest segments until none is left; yield problems.

        A segment that cannot be read stays in the spool; the next process tries again.
        """
        ingested = False
        try:
            pending = find_pending(self.folder)
        except OSError as error:
            yield f"the spool cannot be read: {error.strerror or error}"
            return
        for path in pending:
            if self._retry_at.get(path.name, 0.0) > time.monotonic():
                continue
            try:
                self._ingest(path)
                files.append_lines(self.folder / DONE, [path.name.encode() + b"\n"])
            except OSError as error:  # a full disk: tried again later
                yield f"{path.name} is not ingested yet: {error.strerror or error}"
                return
            except MemoryError as error:
                self._retry_at[path.name] = time.monotonic() + MEMORY_SECONDS
                yield f"{path.name} is not ingested yet: {errors.reason(error)}"
                continue
            except Exception as error:  # one bad segment must not stop the night
                self._retry_at[path.name] = math.inf
                what = error.what if isinstance(error, errors.OvernightError) else repr(error)
                yield f"cannot ingest {path.name}: {what}"
                continue
            ingested = True
        if ingested:
            self._trim()
            _give_back_memory()

    def _trim(self) -> None:
        """Remove raw data first, then stored data, until both are within the budget."""
        raw = spool.Spool(self.folder, 0, self.keep_seconds)
        stored = spool_paths.bytes_under(self.home / "profiles")
        raw.budget_bytes = max(0, self.budget_bytes - stored)
        raw.trim(time.time_ns())
        names = (perf.parse_segment_name(segment.path.name) for segment in raw.segments())
        boots = {self._boot, *(name.boot for name in names if name)}
        spool_paths.remove_kallsyms(self.folder, boots)
        trim.trim_store(
            segments.Catalogue(self.home),
            budget_bytes=max(0, self.budget_bytes - raw.used_bytes()),
            keep_seconds=self.keep_seconds,
            now_us=times.now_us(),
            pins=[(pin.begin_ns // 1000, pin.end_ns // 1000) for pin in raw.pins.pins()],
        )

    def _ingest(self, path: pathlib.Path) -> None:
        name = perf.parse_segment_name(path.name)
        if name is None:
            return
        profile = perfdata.read(path, self._symbols(name.boot), host=name.host, begin=name.start_ns)
        writer.write_capture(
            self.home,
            dataclasses.replace(profile, gaps=self._read_gaps(profile)),
            source=path.name,
            segment_seconds=24 * 3600,  # it is a segment already
        )

    def _symbols(self, boot: str) -> perfdata.Symbols:
        if boot == self._boot:
            self._live = self._live or perfdata.live_symbols(registry=self.processes)
            return self._live
        try:
            text = gzip.decompress(spool_paths.kallsyms_file(self.folder, boot).read_bytes())
        except (OSError, EOFError, gzip.BadGzipFile) as error:
            errors.raise_own(error)
            text = None
        return perfdata.foreign_symbols(text, pathlib.Path("/"))

    def _read_gaps(self, profile: capture.Capture) -> tuple[capture.Gap, ...]:
        """Return the gaps in this segment and since the one before."""
        since = self._gaps_until or profile.begin - SECOND_NS
        self._gaps_until = profile.end
        return tuple(
            capture.Gap(gap.begin_ns, gap.end_ns, gap.why)
            for gap in self._journal.read()
            if gap.end_ns > since and gap.begin_ns < profile.end
        )


def _give_back_memory() -> None:
    """Return what a segment took: the next one comes in two minutes."""
    # Only glibc keeps freed memory, and has this call.
    with contextlib.suppress(AttributeError, OSError):
        ctypes.CDLL(None).malloc_trim(0)


def _keep_little_memory() -> None:
    """Make free() return arrays to the kernel at once: 15 MB less at the peak of a segment, for 10 ms of CPU."""
    with contextlib.suppress(AttributeError, OSError):
        ctypes.CDLL(None).mallopt(M_MMAP_THRESHOLD, LARGE_BYTES)


def ingest_leftovers(home: pathlib.Path) -> Iterator[str]:
    """Ingest what a killed recording left, including its unfinished segment; yield problems.

    Does nothing while a recording runs: its own ingest process does the work.
    """
    folder = spool_paths.spool_folder(home)
    if not folder.is_dir():
        return
    with contextlib.suppress(errors.CannotError), agent.lock_spool(folder):
        recovery.recover_segments(folder, perf.read_identity(), len(cpu.online()))
        yield from Ingester(home, 1 << 62, 0.0).run()


def main(arguments: list[str]) -> None:
    """Run the ingest process; arguments: HOME BUDGET KEEP-SECONDS."""
    home, budget, keep = pathlib.Path(arguments[0]), int(arguments[1]), float(arguments[2])
    os.nice(10)  # the host's work first, then the recorder
    _keep_little_memory()
    # A service manager signals every process of a service; this one still has to ingest the rest.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    ingester = Ingester(home, budget, keep)
    reported: set[str] = set()
    going = True
    while going:
        readable, _, _ = select.select([sys.stdin], [], [], POLL_SECONDS)
        going = not readable or bool(os.read(0, 4096))
        with contextlib.suppress(OSError):  # too many open files: tried again
            ingester.processes.refresh()
        for problem in ingester.run():
            if problem not in reported:
                reported.add(problem)
                sys.stderr.write(problem + "\n")
                sys.stderr.flush()
    sys.stdout.write(f"{time.process_time():.3f}\n")  # for the parent


if __name__ == "__main__":
    main(sys.argv[1:])
