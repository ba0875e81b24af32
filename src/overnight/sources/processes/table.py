"""Every process's CPU time, without reading every process every second.

From /proc/PID/stat: comm, state (3), major faults (12), utime and stime (14, 15), start time (22), resident
pages (24), the address of the stack (28), the core it last ran on (39), real-time priority (40) and scheduling
policy (41; 1 is FIFO, 2 round robin, 6 deadline). The last two are those of the main thread. Each exec places the
stack at another, random address (0 without the permission to trace the process)::

    1234 (tokio-rt (x)) S 1 1234 1234 0 -1 4194560 9 0 2 0 150 70 0 0 20 0 1 0 812 9900032 771 …

Opening and reading a file takes 7 us, reading an open one 3.3 us (10 us with cold caches, at one poll a second),
and most have not changed. So busy and new processes are read each second; the others in turn, a fifth at a time
and at most 100, and one that did not change in three of its turns only every fourth turn. The numbers are
counters: CPU time used before a process's turn is not lost.
"""

from __future__ import annotations

import collections
import dataclasses
import itertools
import os
import pathlib
from collections.abc import Iterator

from overnight import errors, sources
from overnight.model import programs
from overnight.sources.processes import identity

TOP = 20
HOT = 40  # twice the number of rows: any of them may become one of the busiest
BLOCKED = 5  # rows for processes in D state that are not busy
TURNS = 5
PATIENT = 3  # turns without a change, until a process is read less often:
SELDOM = 4  # in every fourth of its turns
MAX_A_TURN = 100
MAX_NEW = 500
MAX_TRIED = 48
MAX_PROCESSES = 20_000
MAX_OPEN = 400
MAX_NAME = 48
FIRST_PID = 258  # position of PID 0 in /proc, after its other entries (fs/proc/base.c, TGID_OFFSET)
COOLING = 0.7
WARM = 0.5
BUSY_TICKS = 50.0  # recent ticks: half a core for a second
D_STATE = ord("D")


def parse_stat(text: bytes) -> tuple[bytes, int, int, int, int, int, int, int, int, int, bytes]:
    """Parse comm, state, major faults, utime, stime, start time, pages, core, policy, rt priority, stack.

    >>> parse_stat(b"7 (a) b) D 1" + b" 0" * 7 + b" 5 0 11 22" + b" 0" * 6 + b" 99 0 44" + b" 0" * 3 + b" 88" + b" 0" * 10 + b" 3 50 1 0")
    (b'a) b', 68, 5, 11, 22, 99, 44, 3, 1, 50, b'88')
    """
    begin = text.index(b"(")
    end = text.rindex(b")")
    f = text[end + 2 :].split(None, 39)
    faults, utime, stime, started, pages = int(f[9]), int(f[11]), int(f[12]), int(f[19]), int(f[21])
    core, priority, policy = int(f[36]), int(f[37]), int(f[38])
    comm, state = text[begin + 1 : end], f[0][0]
    return comm, state, faults, utime, stime, started, pages, core, policy, priority, f[25]


def parse_parent(text: bytes) -> int:
    """Parse the parent's PID: field 4.

    >>> parse_parent(b"7 (a) b) D 12 0")
    12
    """
    return int(text[text.rindex(b")") + 2 :].split(None, 2)[1])


def parse_threads(text: bytes) -> int:
    """Parse the number of threads: field 20.

    >>> parse_threads(b"7 (a) b) D" + b" 0" * 16 + b" 12 0")
    12
    """
    return int(text[text.rindex(b")") + 2 :].split(None, 18)[17])


def is_thread(text: bytes) -> bool:
    """Return whether it is a thread: it has no exit signal, field 38.

    >>> is_thread(b"7 (a) b) D" + b" 0" * 34 + b" -1 0"), is_thread(b"7 (a) b) D" + b" 0" * 34 + b" 17 0")
    (True, False)
    """
    return text[text.rindex(b")") + 2 :].split(None, 36)[35] == b"-1"


def display_name(comm: bytes) -> str:
    r"""Format a name for a key. A kernel worker is named by its pool, not by its last work.

    >>> display_name(b"kworker/u8:1-ext4-rsv-conversion"), display_name(b"a\x1b[1m\nb\xff")
    ('kworker/u8:1', 'a\\x1b[1m\\x0ab\\xff')
    """
    if comm.startswith(b"kworker/"):
        comm = comm.split(b"-")[0].split(b"+")[0]
    return sources.clean(comm)[:MAX_NAME]


@dataclasses.dataclass(slots=True)
class Process:
    open: int = -1
    seen: int = 0  # hash of the text: most have not changed
    comm: bytes = b""
    stack: bytes = b""
    parent: int = 0
    program: programs.Program | None = None
    key: str = ""
    started: int = -1
    ticks: int = 0
    heat: float = 0.0  # recent ticks, decaying
    idle: int = 0  # turns without a change
    fresh: int = 0  # polls for which it is still read each time, because it is new
    state: int = 0
    threads: int = 0
    row: tuple[int, ...] = ()


class Table:
    """The processes of a host, in bounded time and memory."""

    def __init__(self, root: pathlib.Path = sources.ROOT) -> None:
        self._proc = str(root / "proc")
        try:
            self._folder = os.open(self._proc, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            errors.raise_own(error)
            raise sources.NoDataError(f"{self._proc}: {error}") from error
        self._known: dict[int, Process] = {}
        self._hot: set[int] = set()  # read at each poll: recently busy, or new
        self._blocked: set[int] = set()
        self._opened = 0
        self._turn: list[int] = []
        self._at = 0
        self._round = 0
        self._last = 0
        self._loadavg = sources.KeptFile(f"{self._proc}/loadavg", 128)
        self._full = True
        self._seeks = self._can_seek()

    def full_scan(self) -> None:
        self._full = True

    def close(self) -> None:
        for pid in list(self._known):
            self._forget(pid)
        self._loadavg.close()
        os.close(self._folder)

    def read(self) -> sources.Rows:
        """Return the busiest processes, and some that are blocked."""
        if self._full:
            self._read_all()
            self._full = False
        else:
            self._read_some()
        known = self._known
        shown = (*self._hottest(WARM)[:TOP], *sorted(self._blocked)[:BLOCKED])
        return {self.key_of(pid): known[pid].row for pid in shown}

    def key_of(self, pid: int) -> str:
        """Return PID and name of a known process. Only processes that are shown are named: it takes three more reads."""
        process = self._known[pid]
        if not process.key:
            name = programs.full_name(self._program(pid, process), self._ancestors(process.parent))
            process.key = f"{pid} {name}"
        return process.key

    def _program(self, pid: int, process: Process) -> programs.Program:
        if process.program is None:
            comm = display_name(process.comm)
            process.program = programs.identify(comm, *identity.read_command(f"{self._proc}/{pid}"))
        return process.program

    def _ancestors(self, pid: int) -> Iterator[programs.Program]:
        while (process := self._known.get(pid)) is not None:
            yield self._program(pid, process)
            pid = process.parent

    def busy(self, count: int) -> dict[int, tuple[int, int]]:
        """Return start time and number of threads of processes that use half a core, busiest first."""
        if not self._known:
            self.read()
        known = self._known
        hottest = self._hottest(BUSY_TICKS)[:count]
        return {pid: (known[pid].started, known[pid].threads) for pid in hottest}

    def _hottest(self, heat: float) -> list[int]:
        """List the processes of at least this heat, the hottest first."""
        hot = [pid for pid in self._hot if self._known[pid].heat >= heat]
        return sorted(hot, key=lambda pid: self._known[pid].heat, reverse=True)

    def states(self) -> sources.Rows:
        """Count the processes by state, as each was last seen."""
        if not self._known:
            self.read()
        tally = collections.Counter(process.state for process in self._known.values())
        return {"": (len(self._known), *(tally[ord(letter)] for letter in "RDZ"))}

    def _read_all(self) -> None:
        self._list_all()
        for pid in self._turn:
            self._read(pid)
        self._last = self._last_pid()

    def _list_all(self) -> None:
        self._turn, self._at = self._list()[:MAX_PROCESSES], 0
        for pid in self._known.keys() - set(self._turn):
            self._forget(pid)

    def _read_some(self) -> None:
        known = self._known
        due = set(self._hot)
        if len(due) > HOT:
            # The others keep their heat, and their turn.
            coldest = sorted(due, key=lambda pid: known[pid].heat + known[pid].fresh)
            due.difference_update(coldest[: len(due) - HOT])
        new = self._new()
        due.update(new)
        share = min(MAX_A_TURN, -(-len(self._turn) // TURNS))
        for pid in self._turn[self._at : self._at + share]:
            process = known.get(pid)
            if process is None or process.idle < PATIENT or (pid + self._round) % SELDOM == 0:
                due.add(pid)
        self._at += share
        for pid in due:
            self._read(pid)
        for pid in new:
            if (process := known.get(pid)) is not None:
                process.fresh = TURNS
                self._hot.add(pid)
        if self._at >= len(self._turn):
            self._list_all()
            self._round += 1

    def _read(self, pid: int) -> None:
        process = self._known.get(pid)
        if process is None:
            if len(self._known) >= MAX_PROCESSES:
                return
            process = self._known[pid] = Process()
        try:
            text = self._text(pid, process)
        except OSError as error:
            was_open = process.open >= 0
            self._forget(pid)  # it has ended; another may have its PID
            errors.raise_own(error)
            if was_open:
                self._read(pid)
            return
        seen = hash(text)
        if process.fresh:
            process.fresh -= 1
        if seen == process.seen:
            process.heat *= COOLING
            process.idle += 1
            if process.heat < WARM and not process.fresh:
                self._hot.discard(pid)
            return
        try:
            stat = parse_stat(text)
        except (ValueError, IndexError):
            return  # an unknown format
        comm, state, faults, utime, stime, started, pages, core, policy, priority, stack = stat
        ticks = utime + stime
        if started != process.started:
            if is_thread(text):
                self._forget(pid)
                return
            # The CPU time of a process that ran before the first poll says nothing about this second.
            process.started, process.heat, process.comm = started, 0.0, b""
            process.ticks = 0 if self._last else ticks
        process.heat = process.heat * COOLING + max(0, ticks - process.ticks)
        if process.heat >= BUSY_TICKS:
            process.threads = parse_threads(text)
        process.ticks, process.state, process.seen, process.idle = ticks, state, seen, 0
        (self._hot.add if process.heat >= WARM or process.fresh else self._hot.discard)(pid)
        (self._blocked.add if state == D_STATE else self._blocked.discard)(pid)
        if comm != process.comm or stack != process.stack:  # new, or it runs another program
            process.comm, process.stack, process.parent = comm, stack, parse_parent(text)
            process.key, process.program = "", None
        process.row = (utime, stime, pages, core, faults, state, policy, priority)

    def _text(self, pid: int, process: Process) -> bytes:
        if process.open >= 0:
            text = os.pread(process.open, 1024, 0)
            if not text:
                raise ProcessLookupError(pid)
            return text
        descriptor = os.open(f"{self._proc}/{pid}/stat", os.O_RDONLY | os.O_CLOEXEC)
        if self._opened < MAX_OPEN:
            self._opened += 1
            process.open = descriptor
            return os.pread(descriptor, 1024, 0)
        try:
            return os.read(descriptor, 1024)
        finally:
            os.close(descriptor)

    def _forget(self, pid: int) -> None:
        process = self._known.pop(pid, None)
        self._hot.discard(pid)
        self._blocked.discard(pid)
        if process is not None and process.open >= 0:
            os.close(process.open)
            self._opened -= 1

    def _can_seek(self) -> bool:
        """Return whether /proc can be listed from a PID on: true on every kernel, but not documented."""
        own_pid = os.getpid()
        try:
            return next(self._from(own_pid), 0) == own_pid
        except OSError:
            return False

    def _from(self, pid: int) -> Iterator[int]:
        os.lseek(self._folder, FIRST_PID + pid, os.SEEK_SET)
        with os.scandir(self._folder) as entries:
            for entry in entries:
                if entry.name.isdigit():
                    yield int(entry.name)

    def _list(self) -> list[int]:
        names = os.listdir(self._proc)  # noqa: PTH208 - polled: no Path per name
        return sorted(int(name) for name in names if name.isdigit())

    def _new(self) -> list[int]:
        """List the processes created since the last poll: those above the last PID at that time.

        Some are threads or have ended.
        """
        last = self._last_pid()
        before, self._last = self._last, last
        if last == before or not last:
            return []
        if not self._seeks:
            begin = before + 1 if last > before else 1
            later = (pid for pid in self._list() if pid >= begin and pid not in self._known)
            return list(itertools.islice(later, MAX_NEW))
        if 0 < last - before <= MAX_TRIED:
            # Cheaper than a listing, which after a wrap also returns all PIDs above.
            return list(range(before + 1, last + 1))
        new: list[int] = []
        for pid in self._from(before + 1 if last > before else 1):
            if pid > last or len(new) == MAX_NEW:
                break
            if pid not in self._known:
                new.append(pid)
        return new

    def _last_pid(self) -> int:
        """Read the last PID from /proc/loadavg; 0 where there is none."""
        try:
            return int(self._loadavg.read().split()[-1])
        except (OSError, ValueError, IndexError, sources.NoDataError):
            return 0
