"""Records with perf_event_open alone: needs no perf binary that matches the kernel, and little CPU.

The rings stay open for the whole night and only the file behind them changes, so that no sample is lost
between two segments. Drained records are in the page cache: a kill -9 of this process loses only what the
rings hold, at most a second while `poll` is called each second.
"""

from __future__ import annotations

import contextlib
import dataclasses
import pathlib
import select
import sys
from collections.abc import Callable

from overnight import errors
from overnight.model import files
from overnight.sources import perf
from overnight.sources.perf import decode, events, processes, recovery, ring, segmentfile

PAGES = 128  # 512 KiB per core: nine seconds of 64-frame stacks at 97 Hz before anything is lost
REPROBE_NS = 5_000_000_000
AWAY_NS = 50_000_000  # the process may wait for a core between reading the clock and the event
ALLOW = "run as root, or with CAP_PERFMON, or: sudo sysctl kernel.perf_event_paranoid=-1"
# PERF_RECORD_FINISHED_ROUND: lets perf sort one round at a time instead of the whole file.
ROUND = decode.RECORD.pack(68, 0, 8)

ATTR = events.EventAttr(
    sample_type=events.EventAttr.sample_type | decode.PERIOD,
    flags=events.EventAttr.flags | events.SIDE_BAND | events.WATERMARK,
    read_format=events.FORMAT_TOTAL_TIME_ENABLED | events.FORMAT_LOST,
)


class NativeRecorder:
    """A `perf.Recorder` on perf_event_open; `online` returns the online cores."""

    processes: tuple[int, ...] = ()

    def __init__(
        self,
        identity: perf.Identity,
        *,
        frequency: int,
        online: Callable[[], tuple[int, ...]],
        pages: int = PAGES,
    ) -> None:
        self._identity = identity
        self._online = online
        self._pages = pages
        self._wanted = dataclasses.replace(ATTR, frequency=frequency, wakeup=pages * ring.PAGE // 4)
        self._attr = self._wanted
        self._rings: dict[int, ring.Ring] = {}
        self._away: dict[int, int] = {}
        self._refused: dict[int, str] = {}  # why a core that is on-line is not sampled
        self._poller = select.poll()
        self._kernel: list[bytes] = []
        self._spool = pathlib.Path()
        self._file: segmentfile.SegmentFile | None = None
        self._began = perf.Clock(0, 0)
        self._probed_ns = 0
        self._lost = 0
        self._written = 0
        self._finished: list[pathlib.Path] = []
        self._gaps: list[perf.Gap] = []
        self._failure = ""

    @property
    def alive(self) -> bool:
        return self._file is not None

    @property
    def lost(self) -> int:
        """Return the samples for which a ring had no room, as of the last check of the cores."""
        return self._lost + sum(core_ring.lost for core_ring in self._rings.values())

    @property
    def written(self) -> int:
        return self._written + (self._file.end if self._file else 0)

    def start(self, spool: pathlib.Path) -> None:
        ring.barrier()
        self._spool = spool
        self._failure = ""
        self._kernel = processes.kernel_records()
        cores = self._online()
        try:
            self._attr = events.best_attr(self._wanted, cores[0])
            for core in cores:
                self._open(core)
        except OSError as error:
            self._close_rings()
            if errors.is_own(error):
                raise errors.own_error(error, "cannot sample every core") from error
            raise errors.MissingPermissionError(
                "the kernel does not allow this process to sample whole cores",
                why=f"perf_event_open: {error.strerror}",
                todo=ALLOW,
            ) from error
        try:
            with files.named(spool):
                self._begin(b"".join(processes.process_records()), perf.read_clock())
        except OSError as error:
            self._close_rings()
            if errors.is_own(error):
                raise errors.own_error(error, f"cannot record into {spool}") from error
            raise errors.RecordingError(
                f"cannot write a segment into {spool}", why=str(error), todo="free some space there"
            ) from error
        for core_ring in self._rings.values():
            core_ring.enable()
        self.reprobe()

    def poll(self, timeout: float) -> perf.Progress:
        """Wait until a ring fills, then write all rings to the file."""
        if self._failure:
            return self._fail(self._failure)
        if self._file is None:
            return self._progress()
        ready = self._poller.poll(round(timeout * 1000))
        try:
            with files.named(self._spool):
                self._drain()
        except OSError as error:
            return self._fail(f"the segment could not be written: {errors.reason(error)}")
        # The event of an off-line core reports a hang-up, which would wake every later poll at once.
        hung = frozenset(number for number, what in ready if what & ~select.POLLIN)
        if hung or perf.read_clock().monotonic_ns - self._probed_ns >= REPROBE_NS:
            self.reprobe(hung)
        return self._progress()

    def switch(self) -> None:
        """Finish the segment and begin the next while the rings keep filling.

        /proc is read before the last drain into the old file. Process records in between go into both
        files, so that neither misses a fork or a mapping.
        """
        if self._file is None:
            return
        try:
            with files.named(self._spool):
                existing = b"".join(processes.process_records())
                boundary = perf.read_clock()
                between = self._drain(keep_sideband=True)
                self._end()
                self._begin(existing + between, boundary)
        except OSError as error:
            self._failure = f"the next segment could not be created: {errors.reason(error)}"

    def stop(self) -> perf.Progress:
        if self._file is not None:
            with contextlib.suppress(OSError):
                self._drain()
            self.reprobe()
            now = perf.read_clock().wall_ns
            for core in list(self._away):
                self._end_absence(core, now)
            self._end()
        self._close_rings()
        return self._progress()

    def reprobe(self, hung: frozenset[int] = frozenset()) -> None:
        """Follow cores that went off-line or came back, and record a gap for each."""
        now = perf.read_clock()
        self._probed_ns = now.monotonic_ns
        online = set(self._online())
        for core, core_ring in list(self._rings.items()):
            idle = core_ring.idle_ns(now.monotonic_ns)
            if idle > AWAY_NS or core not in online or core_ring.descriptor in hung:
                self._away.setdefault(core, now.wall_ns - idle)
                self._close(core)
        for core in sorted(online - set(self._rings)):
            try:
                self._open(core).enable()
            except OSError as error:  # the next probe tries again
                if errors.is_own(error):
                    self._refused[core] = errors.reason(error)
                continue
            self._end_absence(core, now.wall_ns)

    def _end_absence(self, core: int, now_ns: int) -> None:
        refused = self._refused.pop(core, "")
        if core in self._away:
            why = f"was not sampled: {refused}" if refused else "was off-line"
            self._gaps.append(perf.Gap(self._away.pop(core), now_ns, f"core {core} {why}"))

    def _open(self, core: int) -> ring.Ring:
        opened = ring.Ring(self._attr, core, self._pages)
        self._rings[core] = opened
        self._poller.register(opened.descriptor, select.POLLIN)
        return opened

    def _close(self, core: int) -> None:
        """Write the last records of a ring and close it."""
        core_ring = self._rings[core]
        if self._file is not None:
            with contextlib.suppress(OSError), ring.drain([core_ring]) as chunks:
                self._file.write(chunks)
        self._lost += core_ring.lost
        self._poller.unregister(core_ring.descriptor)
        del self._rings[core]
        core_ring.close()

    def _close_rings(self) -> None:
        for core in list(self._rings):
            self._close(core)

    def _drain(self, *, keep_sideband: bool = False) -> bytes:
        """Write the contents of the rings and release them to the kernel."""
        assert self._file is not None
        rings = self._rings.values()
        kept = b""
        # Before Linux 6.0 events do not count their losses: sum the LOST records.
        count_lost = not self._attr.read_format & events.FORMAT_LOST
        with ring.drain(rings) as chunks:
            if not chunks:
                return b""
            if keep_sideband or count_lost:
                # One copy: a record may wrap around the end of its ring.
                whole = memoryview(b"".join(chunks))
                for kind, begin, _ in segmentfile.walk(whole) if count_lost else ():
                    at = {decode.LOST: begin + 16, decode.LOST_SAMPLES: begin + 8}.get(kind)
                    if at is not None:
                        self._lost += int.from_bytes(whole[at : at + 8], "little")
                kept = segmentfile.sideband(whole) if keep_sideband else b""
            self._file.write([*chunks, memoryview(ROUND)])
        return kept

    def _begin(self, existing: bytes, began: perf.Clock) -> None:
        """Open the next file; it begins with the records of all running processes."""
        self._began = began
        path = self._spool / (str(self._identity.name_segment(began)) + perf.WRITING)
        ids = [core_ring.id for core_ring in self._rings.values()]
        self._file = segmentfile.SegmentFile.create(path, self._attr.pack(), ids)
        self._file.write([*self._kernel, existing])
        recovery.write_current(self._spool, recovery.Current(path.name, self._began))

    def _end(self) -> None:
        """Finish the file and publish it, on a full disk without its features.

        A file that cannot be renamed stays for the next start to recover.
        """
        file = self._file
        if file is None:
            return
        self._file = None
        self._written += file.end
        command, span = sys.argv or ["overnight"], (self._began, perf.read_clock())
        parts = segmentfile.features(self._identity.host, command, len(self._rings), span)
        with contextlib.suppress(OSError):
            file.finish(parts)
        with contextlib.suppress(OSError):
            name = self._identity.name_segment(self._began)
            self._finished.append(perf.publish(file.path, name))

    def _fail(self, why: str) -> perf.Progress:
        self._failure = ""
        self._end()
        self._close_rings()
        return self._progress(why)

    def _progress(self, failed: str = "") -> perf.Progress:
        progress = perf.Progress(tuple(self._finished), tuple(self._gaps), failed)
        self._finished.clear()
        self._gaps.clear()
        return progress
