"""Records by driving one `perf record` for the whole night.

perf changes files when we tell it to (SIGUSR2), which loses nothing between two of them, where a
loop of `perf record` loses seconds. Every second it is pinged over its control pipe: it drains its
buffers only when one is half full, and would lose up to half a minute when killed; a ping makes
it drain now. It is told to stop when this process dies, whatever way, and finishes its file.
perf opens its events once: for a core that comes back on-line it is started again.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import pathlib
import select
import signal
import subprocess
import time
from collections.abc import Callable

from overnight import errors
from overnight.sources import perf
from overnight.sources.perf import command, hotplug, recovery, segmentfile

__all__ = ["PerfRecorder"]

START_SECONDS = 15.0
STOP_SECONDS = 30.0
SWITCH_SECONDS = 5.0  # a signal that met perf in the middle of a switch is lost: send it again
PING_SECONDS = 1.0
LOOK_SECONDS = 1.0
USAGE = 129  # how perf leaves when it does not know an option
PR_SET_PDEATHSIG = 1


def _die_with(parent: int) -> Callable[[], None]:
    """What the child does between fork and exec.

    Everything is looked up before the fork, and the child only makes two system calls: safe also
    when other threads hold locks. The kernel sends the signal when the *thread* that forked ends,
    so the recorder must be started by the thread that keeps it.
    """
    prctl = ctypes.PyDLL(None).prctl
    quit_now, parent_of_me = os._exit, os.getppid

    def prepare() -> None:
        prctl(PR_SET_PDEATHSIG, int(signal.SIGTERM), 0, 0, 0)
        if parent_of_me() != parent:  # died before the prctl took effect
            quit_now(1)

    return prepare


class PerfRecorder:
    """A `perf.Recorder` on the perf binary; `online` tells the cores that are switched on."""

    def __init__(
        self,
        identity: perf.Identity,
        *,
        frequency: int,
        online: Callable[[], tuple[int, ...]],
    ) -> None:
        self._identity = identity
        self._frequency = frequency
        self._online = online
        self._watch: hotplug.CoreWatch | None = None
        self._looked = 0.0
        self._away: dict[int, int] = {}
        self._gaps: list[perf.Gap] = []
        self._perf: subprocess.Popen[bytes] | None = None
        self._has_control = True
        self._control = self._answers = self._pidfd = -1
        self._said = -1
        self._poller = select.poll()
        self._spool = self._base = pathlib.Path()
        self._head = b""
        self._starts: list[perf.Clock] = []
        self._asked: float | None = None
        self._pinged = 0.0
        self._written = 0
        self._lost = 0
        self._finished: list[pathlib.Path] = []

    @property
    def alive(self) -> bool:
        """Whether perf runs."""
        return self._perf is not None and self._perf.poll() is None

    @property
    def lost(self) -> int:
        """Samples lost in the segments finished so far."""
        return self._lost

    @property
    def written(self) -> int:
        """Bytes in segments, finished or not."""
        try:
            return self._written + self._base.stat().st_size
        except OSError:
            return self._written

    @property
    def processes(self) -> tuple[int, ...]:
        """The perf that records for us."""
        return (self._perf.pid,) if self._perf is not None else ()

    def start(self, spool: pathlib.Path) -> None:
        """Start perf and wait until it samples."""
        binary = command.find_perf()
        if binary is None:
            raise errors.MissingToolError(
                "there is no perf on PATH",
                why="this recorder drives the perf binary",
                todo="install it (overnight doctor says how), or: overnight record --recorder native",
            )
        self._spool = spool
        # Before perf opens its events: a change while it does is seen at the first look.
        self._watch = hotplug.CoreWatch(self._online)
        self._looked = time.monotonic()
        began = perf.read_clock()
        name = perf.SegmentName(self._identity.host, began.wall_ns, self._identity.boot)
        self._base = spool / (str(name) + perf.WRITING)
        try:
            self._spawn(binary)
            self._await_samples()
        except errors.RecordingError:
            if self._abandon() != USAGE or not self._has_control:
                raise
            self._has_control = False  # before perf 5.9
            try:
                self._spawn(binary)
                self._await_samples()
            except errors.RecordingError:
                self._abandon()
                raise
        self._head = segmentfile.read_head(self._base)
        self._begin(began)
        self._close_away(self._online())

    def _abandon(self) -> int:
        """End a perf that never sampled; how it left."""
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
        if self._has_control:
            hear, control = os.pipe()
            answers, answer = os.pipe()
            ours, theirs = (control, answers), (hear, answer)
            arguments.append(f"--control=fd:{hear},{answer}")
        if self._said < 0:
            # In memory: what perf says of a full disk must not need room on it.
            self._said = os.memfd_create("perf-stderr")
        os.ftruncate(self._said, 0)
        try:
            self._perf = subprocess.Popen(
                arguments,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=self._said,
                # It holds our ends too: when we die, a closed pipe must not make it leave by its
                # error path, which finishes no file (perf 6.1, measured).
                pass_fds=theirs + ours,
                start_new_session=True,
                preexec_fn=_die_with(os.getpid()),  # noqa: PLW1509  see _die_with
            )
        except OSError as error:
            for descriptor in ours:
                os.close(descriptor)
            raise errors.RecordingError(
                "perf could not be started", why=str(error), todo="overnight doctor"
            ) from error
        finally:
            for descriptor in theirs:
                os.close(descriptor)
        self._poller = select.poll()
        with contextlib.suppress(OSError):  # before Linux 5.3 its end is seen at the next poll
            self._pidfd = os.pidfd_open(self._perf.pid)
            self._poller.register(self._pidfd, select.POLLIN)
        if ours:
            self._control, self._answers = ours
            os.set_blocking(self._control, False)
            os.set_blocking(self._answers, False)
            self._poller.register(self._answers, select.POLLIN)

    def _await_samples(self) -> None:
        """The first answer comes from perf's main loop, which it enters once events are on."""
        self._ping()
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline and self.alive:
            if self._has_control:
                self._poller.poll(200)
                if self._heard():
                    return
            elif self._base.exists() and self._base.stat().st_size > segmentfile.HEADER.size:
                return
            else:
                time.sleep(0.02)
        raise errors.RecordingError(
            "perf does not record",
            why=self._last_words() or "it ended or gave no sign of life",
            todo="overnight doctor says what is missing; overnight record --recorder native",
        )

    def _ping(self) -> None:
        self._pinged = time.monotonic()
        if self._control >= 0:
            with contextlib.suppress(OSError):  # full or closed: perf is busy or gone
                os.write(self._control, b"ping\n")

    def _heard(self) -> bool:
        try:
            return bool(self._answers >= 0 and os.read(self._answers, 4096))
        except OSError:
            return False

    def poll(self, timeout: float) -> perf.Progress:
        """Ping, wait, name what perf finished, and notice at once when it ended."""
        if self._perf is None:
            return self._progress()
        deadline = time.monotonic() + timeout
        while True:
            now = time.monotonic()
            if now - self._pinged >= PING_SECONDS:
                self._ping()
            if self._asked is not None and now - self._asked > SWITCH_SECONDS:
                self._signal(signal.SIGUSR2)
                self._asked = now
            # perf does not say when it has switched: look often while it is asked to.
            until = deadline if self._asked is None else min(deadline, now + 0.1)
            self._poller.poll(max(0, round(1000 * (until - now))))
            self._heard()
            if not self.alive:
                return self._fail()
            self._collect()
            if now - self._looked >= LOOK_SECONDS and (failed := self.follow_cores()):
                progress = self._progress()
                return perf.Progress(progress.finished, progress.gaps, failed)
            if time.monotonic() >= deadline:
                return self._progress()

    def follow_cores(self) -> str:
        """Start perf again when a core came back; why it could not be, if it could not."""
        self._looked = time.monotonic()
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
        why = f"perf was started again, to sample core {cores} too"
        self._gaps.append(perf.Gap(before, perf.read_clock().wall_ns, why))
        return ""

    def _close_away(self, present: tuple[int, ...]) -> None:
        """The gaps of those cores that are sampled again, or never will be, end now."""
        now = perf.read_clock().wall_ns
        for core in sorted(set(present) & set(self._away)):
            self._gaps.append(perf.Gap(self._away.pop(core), now, f"core {core} was off-line"))

    def switch(self) -> None:
        """Ask perf for a new file."""
        if self.alive and self._asked is None:
            self._asked = time.monotonic()
            self._begin(perf.read_clock())
            self._signal(signal.SIGUSR2)

    def stop(self) -> perf.Progress:
        """Tell perf to finish, and name its last file."""
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
        current = recovery.Current(
            self._base.name, began, self._head, self._perf.pid, recovery.birth(self._perf.pid)
        )
        with contextlib.suppress(OSError):  # no room: perf meets it too, and ends
            recovery.mark(self._spool, current)

    def _signal(self, number: signal.Signals) -> None:
        if self._perf is not None:
            self._perf.send_signal(number)

    def _end_perf(self) -> int:
        """Wait for perf to end; how it left."""
        assert self._perf is not None
        try:
            return self._perf.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._perf.kill()
            return self._perf.wait()

    def _last_words(self) -> str:
        return os.pread(self._said, 65536, 0).decode("utf-8", "replace").strip()[-300:]

    def _fail(self) -> perf.Progress:
        """Perf ended unasked: keep what it left, say why."""
        status = self._end_perf()
        how = signal.Signals(-status).name if status < 0 else f"status {status}"
        self._collect(distrust=True)
        self._rescue()
        why = f"perf ended ({how}) {self._last_words()}".strip()
        self._clean()
        progress = self._progress()
        return perf.Progress(progress.finished, progress.gaps, why)

    def _collect(self, *, distrust: bool = False) -> None:
        """Name the files that perf has finished: it appends the time to their name."""
        for path in sorted(self._spool.glob(self._base.name + ".*")):
            began = self._starts[0]
            if len(self._starts) > 1:
                del self._starts[0]
            else:  # the last file, or one more than asked for
                self._starts = [perf.read_clock()]
            self._asked = None
            if distrust:
                self._complete(path, began, distrust=True)
            with contextlib.suppress(OSError):
                segmentfile.set_clock(path, began)
                self._publish(path, began)

    def _rescue(self) -> None:
        """Finish the file of a perf that could not."""
        if self._base.exists():
            self._complete(self._base, self._starts[0])
            with contextlib.suppress(OSError):
                self._publish(self._base, self._starts[0])

    def _complete(self, path: pathlib.Path, began: perf.Clock, *, distrust: bool = False) -> None:
        span = (began, perf.read_clock())
        parts = segmentfile.features(
            self._identity.host, ["perf", "record"], len(self._online()), span
        )
        with contextlib.suppress(OSError):  # without room it stays as it is, and readable
            segmentfile.complete(path, parts, self._head, distrust=distrust)

    def _publish(self, path: pathlib.Path, began: perf.Clock) -> None:
        self._written += path.stat().st_size
        self._lost += segmentfile.count_lost(path)
        name = perf.SegmentName(self._identity.host, began.wall_ns, self._identity.boot)
        self._finished.append(perf.publish(path, name))

    def _clean(self) -> None:
        for descriptor in (self._control, self._answers, self._pidfd, self._said):
            if descriptor >= 0:
                os.close(descriptor)
        self._control = self._answers = self._pidfd = self._said = -1
        if self._watch is not None:
            self._watch.close()
        self._watch = self._perf = None
        self._asked = None
        self._starts.clear()

    def _progress(self) -> perf.Progress:
        finished, self._finished = tuple(self._finished), []
        gaps, self._gaps = tuple(self._gaps), []
        return perf.Progress(finished, gaps)
