"""Record the stacks of all cores for a night: recorder, spool, journal of gaps, own cost.

When the recorder ends for any reason, it is restarted and the time without samples is recorded as a gap.
`status.json` in the spool shows state and cost each second.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import json
import os
import pathlib
import threading
import time
from collections.abc import Callable, Iterator
from typing import Literal

from overnight import errors
from overnight.agent import decisions, spool, usage
from overnight.model import files
from overnight.model.stop_signals import stop_on_signals
from overnight.sources import cpu, perf
from overnight.sources.perf import native_recorder, perf_recorder, recovery

SCHEMA = "overnight.recording-status/1"
STATUS = "status.json"
LOCK = "lock"
TICK_SECONDS = 1.0
TRIM_SECONDS = 10.0
STOPPED = "stopped"


@dataclasses.dataclass(frozen=True)
class ProfilerOptions:
    """What to record, for how long, and how much of it to keep. `seconds` 0 is until stopped."""

    spool: pathlib.Path
    recorder: Literal["perf", "native"] = "perf"
    frequency: int = 97
    segment_seconds: float = 120.0
    seconds: float = 0.0
    budget_bytes: int = 20 << 30
    keep_seconds: float = 2 * 3600.0
    floor_bytes: int = 1 << 30
    # Other processes of this recording; their cost is not counted here.
    helpers: tuple[int, ...] = ()


@dataclasses.dataclass(frozen=True)
class Status:
    """State of a recording. CPU and memory include the recorder's helper processes."""

    mode: str
    why: str
    pid: int
    recorder: str
    frequency: int
    segment_seconds: float
    updated_ns: int
    began_ns: int
    seconds: float
    cpu_seconds: float
    cpu_percent: float
    rss_bytes: int
    written_bytes: int
    lost: int
    segments: int
    gaps: int
    spool_bytes: int
    over_budget: bool
    free_bytes: int
    processes: tuple[int, ...] = ()  # of the whole recording

    def as_json(self) -> dict[str, object]:
        """The form of status.json."""
        return {"schema": SCHEMA, **vars(self), "processes": list(self.processes)}


@dataclasses.dataclass(frozen=True)
class Summary:
    """One recording from start to stop; `gaps` are those of this run."""

    seconds: float
    segments: tuple[pathlib.Path, ...]
    gaps: tuple[perf.Gap, ...]
    written_bytes: int
    lost: int
    cpu_seconds: float
    rss_peak_bytes: int


def run(
    options: ProfilerOptions,
    stop: threading.Event,
    on_status: Callable[[Status], None] = lambda _: None,
) -> Summary:
    """Record until `stop` is set, the time is up, or SIGTERM or SIGINT comes.

    Only a failure of the first start is an error. The calling thread must live as long as the recorder.
    """
    store = spool.Spool(options.spool, options.budget_bytes, options.keep_seconds)
    kinds = {"native": native_recorder.NativeRecorder, "perf": perf_recorder.PerfRecorder}
    with lock_spool(options.spool), stop_on_signals(stop):
        recorder = kinds[options.recorder](
            perf.read_identity(), frequency=options.frequency, online=cpu.online
        )
        return Recording(options, store, recorder).run(stop, on_status)


@contextlib.contextmanager
def lock_spool(folder: pathlib.Path) -> Iterator[None]:
    """Make this the only recording in the folder. The kernel frees the lock of a dead process."""
    descriptor = files.open_private(folder / LOCK, os.O_RDWR | os.O_CREAT)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            owner = os.pread(descriptor, 20, 0).decode("ascii", "replace").strip() or "unknown"
            raise errors.CannotError(
                f"another recording is already writing to {folder}",
                why=f"process {owner} holds the lock",
                todo=f"stop it (kill {owner}), or record elsewhere: `overnight --home DIR record`",
            ) from error
        with contextlib.suppress(OSError):  # the owner is only for the error above
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, str(os.getpid()).encode(), 0)
        yield
    finally:
        os.close(descriptor)


class Recording:
    """One run of the loop; call `run` of this module."""

    def __init__(
        self, options: ProfilerOptions, store: spool.Spool, recorder: perf.Recorder
    ) -> None:
        self._options = options
        self._store = store
        self._recorder = recorder
        self._policy = decisions.Policy(options.segment_seconds, options.floor_bytes)
        self._segments: list[pathlib.Path] = []
        self._gaps: dict[tuple[int, str], perf.Gap] = {}
        self._trim_at = 0.0
        self._spool_bytes = 0
        self._rss_peak = 0
        self._began = perf.Clock(0, 0)
        self._cost: tuple[float, float] = (0.0, 0.0)
        self._percent = 0.0

    def run(self, stop: threading.Event, on_status: Callable[[Status], None]) -> Summary:
        """Start, check each second, and stop."""
        self._recover()
        self._recorder.start(self._options.spool)
        began = time.monotonic()
        self._began = perf.read_clock()
        self._cost = (began, usage.read_usage(()).cpu_seconds)
        first_cpu = self._cost[1]
        state = decisions.State(decisions.Mode.RECORDING, self._began, began, began)
        until = began + self._options.seconds if self._options.seconds else float("inf")
        try:
            self._report(state.mode, state.why, on_status)
            while not stop.is_set() and time.monotonic() < until:
                failed = self._wait(stop, min(time.monotonic() + TICK_SECONDS, until))
                state = self._step(state, failed)
                self._report(state.mode, state.why, on_status)
        finally:
            self._keep(self._recorder.stop())
            if state.mode is not decisions.Mode.RECORDING:
                self._note(perf.Gap(state.since_ns, perf.read_clock().wall_ns, state.why))
            self._report(STOPPED, "", on_status)
        return Summary(
            seconds=time.monotonic() - began,
            segments=tuple(self._segments),
            gaps=tuple(self._gaps.values()),
            written_bytes=self._recorder.written,
            lost=self._recorder.lost,
            cpu_seconds=self._cost[1] - first_cpu,
            rss_peak_bytes=self._rss_peak,
        )

    def _recover(self) -> None:
        """Finish the last segment of a killed run; the time since is a gap."""
        folder = self._options.spool
        recovery.recover_segments(folder, perf.read_identity(), len(cpu.online()))
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            before = json.loads((folder / STATUS).read_text())
            if before["mode"] != STOPPED:
                why = f"the recording of process {before['pid']} was killed"
                now = perf.read_clock().wall_ns
                self._note(perf.Gap(int(before["updated_ns"]), now, why))

    def _wait(self, stop: threading.Event, until: float) -> str:
        """Let the recorder work until the next tick; return why it failed, if it did."""
        while (left := until - time.monotonic()) > 0 and not stop.is_set():
            alive = self._recorder.alive
            try:
                # poll(2) continues after a signal (PEP 475): `stop` is seen at the next tick.
                if failed := self._keep(self._recorder.poll(left if alive else 0)):
                    return failed
            except OSError as error:
                if not errors.is_own(error):
                    raise
                alive = False  # it still records, but its files cannot be listed: at the next tick
            if not alive:
                stop.wait(left)
        return ""

    def _keep(self, progress: perf.Progress) -> str:
        self._segments += progress.finished
        for gap in progress.gaps:
            self._note(gap)
        if progress.finished:
            self._trim_at = 0.0
        return progress.failed

    def _step(self, state: decisions.State, failed: str) -> decisions.State:
        """Trim, decide, and carry out the decision."""
        now, clock = time.monotonic(), perf.read_clock()
        free = self._store.free_bytes()
        if now >= self._trim_at or free < self._policy.floor_bytes * decisions.RESUME_FACTOR:
            self._trim(clock.wall_ns)
            self._trim_at = now + TRIM_SECONDS
            free = self._store.free_bytes()
        self._store.journal.flush()
        wanted = self._options.spool / spool.WANTED
        seen = decisions.Observation(now, clock, free, failed, wanted.exists())
        state, actions = decisions.decide(state, seen, self._policy)
        for action in actions:
            match action:
                case decisions.Command.SWITCH:
                    with contextlib.suppress(OSError):
                        wanted.unlink(missing_ok=True)
                    self._recorder.switch()
                case decisions.Command.STOP:
                    self._keep(self._recorder.stop())
                case decisions.Command.START:
                    state = self._start(state)
                case gap:
                    self._note(gap)
        return state

    def _start(self, state: decisions.State) -> decisions.State:
        why = ""
        try:
            self._recorder.start(self._options.spool)
        except errors.OvernightError as error:
            why = f"{error.what}: {error.why}"
        except OSError as error:
            why = f"the recorder did not start: {error}"
        state, gap = decisions.started(state, time.monotonic(), perf.read_clock(), why)
        self._note(gap)
        return state

    def _trim(self, now_ns: int) -> None:
        floor = round(self._policy.floor_bytes * decisions.RESUME_FACTOR)
        with contextlib.suppress(OSError):  # too many open files, or a read-only disk: tried again
            self._store.trim(now_ns, floor_bytes=floor)
            self._spool_bytes = self._store.used_bytes()

    def _note(self, gap: perf.Gap) -> None:
        self._gaps[gap.begin_ns, gap.why] = gap
        self._store.journal.add(gap)

    def _report(self, mode: str, why: str, on_status: Callable[[Status], None]) -> None:
        now = time.monotonic()
        cost = usage.read_usage(self._recorder.processes)
        then, spent = self._cost
        # Over a shorter time, start and stop would look like load.
        if now - then >= TICK_SECONDS / 2:
            self._percent = round(100 * (cost.cpu_seconds - spent) / (now - then), 2)
        self._cost = (now, cost.cpu_seconds)
        self._rss_peak = max(self._rss_peak, cost.rss_bytes)
        clock = perf.read_clock()
        status = Status(
            mode=str(mode),
            why=why,
            pid=os.getpid(),
            processes=(os.getpid(), *self._recorder.processes, *self._options.helpers),
            recorder=self._options.recorder,
            frequency=self._options.frequency,
            segment_seconds=self._options.segment_seconds,
            updated_ns=clock.wall_ns,
            began_ns=self._began.wall_ns,
            seconds=round((clock.monotonic_ns - self._began.monotonic_ns) / 1e9, 3),
            cpu_seconds=round(cost.cpu_seconds, 4),
            cpu_percent=self._percent,
            rss_bytes=cost.rss_bytes,
            written_bytes=self._recorder.written,
            lost=self._recorder.lost,
            segments=len(self._segments),
            gaps=len(self._gaps),
            spool_bytes=self._spool_bytes,
            over_budget=self._spool_bytes > self._options.budget_bytes,
            free_bytes=self._store.free_bytes(),
        )
        # Renamed but not synced: it is written each second and worthless after a power cut.
        with contextlib.suppress(OSError):  # on a full disk the last one stays
            fresh = self._options.spool / (STATUS + ".new")
            files.write(fresh, json.dumps(status.as_json()))
            fresh.replace(self._options.spool / STATUS)
        on_status(status)
