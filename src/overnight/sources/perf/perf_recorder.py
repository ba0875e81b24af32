"""Records with one `perf record` process for the whole night.

SIGUSR2 makes perf switch files, which loses nothing in between, where a loop of `perf record` loses
seconds. Every second it is pinged over its control pipe: it drains its buffers only when one is half full,
and would lose up to half a minute when killed; a ping makes it drain at once. When this process dies, the
kernel stops perf, which then finishes its file. perf opens its events once, so it is restarted when a core
comes back on-line.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import select
import signal
import subprocess
import time
from collections.abc import Callable

from overnight import errors, sources
from overnight.model import files, process_identity
from overnight.sources import perf
from overnight.sources.perf import command, hotplug, recovery, segmentfile

START_SECONDS = 15.0
STOP_SECONDS = 30.0
SWITCH_SECONDS = 5.0  # a signal during a switch is lost: send it again after this time
# At every poll of a second, also of one that began a little early.
PING_SECONDS = CORES_SECONDS = 0.9
USAGE = 129  # perf's exit status for an unknown option


class PerfRecorder:
    """A `perf.Recorder` on the perf binary; `online` returns the online cores."""

    def __init__(
        self, identity: perf.Identity, *, frequency: int, online: Callable[[], tuple[int, ...]]
    ) -> None:
        self._identity = identity
        self._frequency = frequency
        self._online = online
        self._watch: hotplug.CoreWatch | None = None
        self._polled = 0.0
        self._away: dict[int, int] = {}
        self._gaps: list[perf.Gap] = []
        self._perf: subprocess.Popen[bytes] | None = None
        self._has_control = True
        self._control = self._answers = self._pidfd = -1
        self._stderr = -1
        self._poller = select.poll()
        self._spool = self._base = pathlib.Path()
        self._head = b""
        self._starts: list[perf.Clock] = []
        self._requested: float | None = None
        self._pinged = 0.0
        self._written = 0
        self._lost = 0
        self._finished: list[pathlib.Path] = []

    @property
    def alive(self) -> bool:
        return self._perf is not None and self._perf.poll() is None

    @property
    def lost(self) -> int:
        """Return the samples lost in the finished segments."""
        return self._lost

    @property
    def written(self) -> int:
        try:
            return self._written + self._base.stat().st_size
        except OSError:
            return self._written

    @property
    def processes(self) -> tuple[int, ...]:
        return (self._perf.pid,) if self._perf is not None else ()

    def start(self, spool: pathlib.Path) -> None:
        binary = command.find_perf()
        if binary is None:
            raise errors.MissingToolError(
                "perf is not on PATH",
                why="this recorder runs the perf binary",
                todo="install it (`overnight doctor` shows how), or: `overnight record --recorder native`",
            )
        self._spool = spool
        began = perf.read_clock()
        self._base = spool / (str(self._identity.name_segment(began)) + perf.WRITING)
        while True:
            # Before perf opens its events: a change meanwhile is seen at the first poll.
            self._watch = hotplug.CoreWatch(self._online)
            self._polled = time.monotonic()
            try:
                self._spawn(binary)
                self._wait_for_samples()
                break
            except errors.CannotError as error:
                if self._abandon() != USAGE or not self._has_control:
                    if (problem := files.find_disk_problem(spool)) is None:
                        raise
                    raise errors.own_error(problem, f"cannot record into {spool}") from error
                self._has_control = False  # before perf 5.9
        self._head = segmentfile.read_head(self._base)
        self._begin(began)
        self._close_away(self._online())

    def _abandon(self) -> int:
        """End a perf that never sampled; return its exit status."""
        self._signal(signal.SIGTERM)
        status = self._end_perf() if self._perf is not None else 0
        self._clean()
        with contextlib.suppress(OSError):
            self._base.unlink(missing_ok=True)
        return status

    def _spawn(self, binary: str) -> None:
        ours: tuple[int, ...] = ()
        theirs: tuple[int, ...] = ()
        arguments = [
            *command.record_arguments(binary, self._base, self._frequency),
            "--switch-output=signal",
        ]
        try:
            if self._has_control:
                hear, control = os.pipe()
                ours, theirs = (control,), (hear,)
                answers, answer = os.pipe()
                ours, theirs = (control, answers), (hear, answer)
                arguments.append(f"--control=fd:{hear},{answer}")
            if self._stderr < 0:
                # In memory: perf's message about a full disk must not need space on it.
                self._stderr = os.memfd_create("perf-stderr")
            os.ftruncate(self._stderr, 0)
            self._perf = subprocess.Popen(
                arguments,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=self._stderr,
                # perf holds both ends: when this process dies, a closed pipe would make it exit through
                # its error path, which does not finish the file (perf 6.1, measured).
                pass_fds=theirs + ours,
                start_new_session=True,
                preexec_fn=process_identity.die_with(os.getpid(), signal.SIGTERM),  # noqa: PLW1509 - two system calls
            )
        except OSError as error:
            for descriptor in ours:
                os.close(descriptor)
            if errors.is_own(error):
                raise errors.own_error(error, "perf could not be started") from error
            raise errors.RecordingError(
                "perf could not be started", why=str(error), todo="overnight doctor"
            ) from error
        finally:
            for descriptor in theirs:
                os.close(descriptor)
        self._poller = select.poll()
        with contextlib.suppress(OSError):  # before Linux 5.3 its exit is seen at the next poll
            self._pidfd = os.pidfd_open(self._perf.pid)
            self._poller.register(self._pidfd, select.POLLIN)
        if ours:
            self._control, self._answers = ours
            os.set_blocking(self._control, False)
            os.set_blocking(self._answers, False)
            self._poller.register(self._answers, select.POLLIN)

    def _wait_for_samples(self) -> None:
        """Wait for perf's first answer: its main loop answers only once the events are enabled."""
        self._ping()
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline and self.alive:
            if self._has_control:
                self._poller.poll(200)
                if self._read_answer():
                    return
            elif self._base.exists() and self._base.stat().st_size > segmentfile.HEADER.size:
                return
            else:
                time.sleep(0.02)
        raise errors.RecordingError(
            "perf did not start recording",
            why=self._read_stderr() or "it exited or did not answer",
            todo="`overnight doctor` shows what is missing; or: `overnight record --recorder native`",
        )

    def _ping(self) -> None:
        self._pinged = time.monotonic()
        if self._control >= 0:
            with contextlib.suppress(OSError):  # full or closed: perf is busy or gone
                os.write(self._control, b"ping\n")

    def _read_answer(self) -> bool:
        try:
            return bool(self._answers >= 0 and os.read(self._answers, 4096))
        except OSError:
            return False

    def poll(self, timeout: float) -> perf.Progress:
        """Ping, wait, publish what perf finished, and notice at once when it exits."""
        if self._perf is None:
            return self._progress()
        deadline = time.monotonic() + timeout
        while True:
            now = time.monotonic()
            if now - self._pinged >= PING_SECONDS:
                self._ping()
            if self._requested is not None and now - self._requested > SWITCH_SECONDS:
                self._signal(signal.SIGUSR2)
                self._requested = now
            # perf does not report a switch: poll often after requesting one.
            until = deadline if self._requested is None else min(deadline, now + 0.1)
            self._poller.poll(max(0, round(1000 * (until - now))))
            self._read_answer()
            if not self.alive:
                return self._fail()
            self._collect()
            now = time.monotonic()
            if now - self._polled >= CORES_SECONDS and (failed := self.follow_cores()):
                return self._progress(failed)
            if now >= deadline:
                return self._progress()

    def follow_cores(self) -> str:
        """Restart perf when a core came back; return why that failed, or ""."""
        self._polled = time.monotonic()
        if self._watch is None:
            return ""
        change = self._watch.poll()
        before = perf.read_clock().wall_ns
        for core in change.gone:
            self._away.setdefault(core, before)
        if not change.back:
            return ""
        self._finish()
        try:
            self.start(self._spool)
        except errors.OvernightError as error:
            return f"{error.what}: {error.why}"
        cores = ", ".join(map(str, change.back))
        why = f"perf was restarted to sample core {cores}"
        self._gaps.append(perf.Gap(before, perf.read_clock().wall_ns, why))
        return ""

    def _close_away(self, present: tuple[int, ...]) -> None:
        """End the gaps of cores that are sampled again, or never will be."""
        now = perf.read_clock().wall_ns
        for core in sorted(set(present) & set(self._away)):
            self._gaps.append(perf.Gap(self._away.pop(core), now, f"core {core} was off-line"))

    def switch(self) -> None:
        if self.alive and self._requested is None:
            self._requested = time.monotonic()
            self._begin(perf.read_clock())
            self._signal(signal.SIGUSR2)

    def stop(self) -> perf.Progress:
        if self._perf is not None:
            self._finish()
        self._close_away(tuple(self._away))
        return self._progress()

    def _finish(self) -> None:
        self._signal(signal.SIGTERM)
        self._end_perf()
        self._collect()
        self._rescue()
        self._clean()

    def _begin(self, began: perf.Clock) -> None:
        self._starts.append(began)
        assert self._perf is not None
        process = self._perf.pid
        with contextlib.suppress(OSError):  # on a full disk perf fails too, and exits
            born = recovery.read_start_ticks(process)
            current = recovery.Current(self._base.name, began, self._head, process, born)
            recovery.write_current(self._spool, current)

    def _signal(self, number: signal.Signals) -> None:
        if self._perf is not None:
            self._perf.send_signal(number)

    def _end_perf(self) -> int:
        """Wait for perf to exit; return its status."""
        assert self._perf is not None
        try:
            return self._perf.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._perf.kill()
            return self._perf.wait()

    def _read_stderr(self) -> str:
        return os.pread(self._stderr, 65536, 0).decode("utf-8", "replace").strip()[-300:]

    def _fail(self) -> perf.Progress:
        """Keep the files of a perf that exited unexpectedly, and report why."""
        problem = files.find_disk_problem(self._spool)
        status = self._end_perf()
        how = signal.Signals(-status).name if status < 0 else f"status {status}"
        self._collect(distrust=True)
        self._rescue()
        why = f"perf ended ({how}) {self._read_stderr()}".strip()
        if problem is not None:
            why = f"the disk failed: {problem.strerror}"
        self._clean()
        return self._progress(why)

    def _collect(self, *, distrust: bool = False) -> None:
        """Publish the files that perf has finished: it appends the time to their names."""
        finished = self._base.name + "."
        for name in sources.list_folder(os.fspath(self._spool)):
            if not name.startswith(finished):
                continue
            path = self._spool / name
            began = self._starts[0]
            if len(self._starts) > 1:
                del self._starts[0]
            else:  # the last file, or an extra one
                self._starts = [perf.read_clock()]
            self._requested = None
            if distrust:
                self._complete(path, began, distrust=True)
            with contextlib.suppress(OSError):
                segmentfile.set_clock(path, began)
                self._publish(path, began)

    def _rescue(self) -> None:
        """Finish the file that perf could not finish."""
        if self._base.exists():
            self._complete(self._base, self._starts[0])
            with contextlib.suppress(OSError):
                self._publish(self._base, self._starts[0])

    def _complete(self, path: pathlib.Path, began: perf.Clock, *, distrust: bool = False) -> None:
        host, cores, span = self._identity.host, len(self._online()), (began, perf.read_clock())
        parts = segmentfile.features(host, ["perf", "record"], cores, span)
        with contextlib.suppress(OSError):  # on a full disk it stays as it is, and readable
            segmentfile.complete(path, parts, self._head, distrust=distrust)

    def _publish(self, path: pathlib.Path, began: perf.Clock) -> None:
        self._written += path.stat().st_size
        self._lost += segmentfile.count_lost(path)
        self._finished.append(perf.publish(path, self._identity.name_segment(began)))

    def _clean(self) -> None:
        for descriptor in (self._control, self._answers, self._pidfd, self._stderr):
            if descriptor >= 0:
                os.close(descriptor)
        self._control = self._answers = self._pidfd = self._stderr = -1
        if self._watch is not None:
            self._watch.close()
        self._watch = self._perf = None
        self._requested = None
        self._starts.clear()

    def _progress(self, failed: str = "") -> perf.Progress:
        progress = perf.Progress(tuple(self._finished), tuple(self._gaps), failed)
        self._finished.clear()
        self._gaps.clear()
        return progress
