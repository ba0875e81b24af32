"""What a run changes on this host, written down before it is changed, so that it is always undone.

A ledger is a file of JSON lines, one a change, each on disk before the change is made. The run undoes
them in reverse; after a kill -9 the next run does. Processes need no line: all that a run starts carry
its name in their environment, and so do their children.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import json
import os
import pathlib
import secrets
import signal
import stat
import tempfile
import time
from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import Self

from overnight import errors
from overnight.undo import operations

__all__ = [
    "MARK",
    "Journal",
    "Left",
    "clean",
    "journal_folder",
    "leftovers",
    "own_folder",
    "processes_of",
    "runs",
]

MARK = "OVERNIGHT_RUN"
SCHEMA = "overnight.undo/1"
ENDING = ".undo"
GONE_SECONDS = 5.0


def journal_folder() -> pathlib.Path:
    """One place for the whole machine, whatever the data home: the next run must find it."""
    said = os.environ.get("OVERNIGHT_UNDO")
    if said:
        return pathlib.Path(said)
    return pathlib.Path(tempfile.gettempdir()) / f"overnight-undo-{os.getuid()}"


@dataclasses.dataclass(frozen=True)
class Left:
    """A run whose changes are on this host still.

    `state` is "running" while its process is, "kept" when it left them on purpose, else "left".
    """

    run: str
    what: str
    path: pathlib.Path
    changes: tuple[Mapping[str, str], ...]
    state: str = "left"


class Journal:
    """The changes of one run; leaving the block undoes them."""

    def __init__(self, what: str, folder: pathlib.Path | None = None) -> None:
        self.what = what
        self.run = f"overnight-{secrets.token_hex(4)}"
        self.problems: list[str] = []
        self._changes: list[dict[str, str]] = []
        folder = own_folder(folder or journal_folder())
        self.path = folder / f"{self.run}{ENDING}"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC
        self._file = os.open(self.path, flags, 0o600)
        pid = os.getpid()
        head = {"schema": SCHEMA, "run": self.run, "what": what, "pid": str(pid)}
        self._append({**head, "started": _started(pid), "boot": _boot()})
        _sync_folder(folder)

    def write(self, kind: str, target: str | os.PathLike[str]) -> None:
        """Note a change that is about to be made; `kind` is one of `undoing.UNDO`."""
        if kind not in operations.UNDO:
            raise ValueError(f"nobody knows how to undo {kind!r}")
        change = {"kind": kind, "target": os.fspath(target)}
        operations.check(change)
        self._append(change)
        self._changes.append(change)

    def environment(self) -> dict[str, str]:
        """Ours with the mark: start processes with it, and they are found again."""
        return {**os.environ, MARK: self.run}

    def targets(self) -> list[str]:
        """What was written down, in the order in which it was made."""
        return [change["target"] for change in self._changes]

    def processes(self) -> tuple[int, ...]:
        """Those that carry the mark."""
        return processes_of(self.run)

    def undo(self) -> list[str]:
        """Everything, the latest first; what could not be undone stays written, and is told."""
        self.problems = _undo(self.run, self._changes)
        if not self.problems:
            self.path.unlink(missing_ok=True)
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
        return self.problems

    def keep(self) -> None:
        """Leave the changes as they are: `age --undo` and the like find them by the file."""
        self._append({"kept": "yes"})
        os.close(self._file)
        self._file = -1

    def _append(self, line: Mapping[str, str]) -> None:
        os.write(self._file, (json.dumps(line) + "\n").encode())
        os.fsync(self._file)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._file < 0:
            return
        with _undisturbed():
            self.undo()
        if self.problems and error is not None:
            # Nobody comes back to look at `problems` then.
            raise errors.CannotError(
                f"{self.what} was ended, and not all of it is undone: {self.problems[0]}",
                why=f"it was ended by: {str(error) or type(error).__name__}",
                todo="overnight rehearse --clean   tries again, and so does the next run",
            ) from error


def runs(folder: pathlib.Path | None = None, *, what: str = "") -> tuple[Left, ...]:
    """Every run that has changes here, whatever its state; those whose `what` begins so."""
    folder = folder or journal_folder()
    if not folder.is_dir():
        return ()
    own_folder(folder)
    found = []
    for path in sorted(folder.glob(f"*{ENDING}")):
        try:
            head, changes, is_kept = _read(path)
        except FileNotFoundError:
            continue  # it was undone meanwhile
        # What was kept is nobody's any more, even while the process that made it lives.
        state = "kept" if is_kept else "running" if _is_alive(head) else "left"
        if head.get("what", "").startswith(what):
            found.append(Left(path.stem, head.get("what", ""), path, tuple(changes), state))
    return tuple(found)


def leftovers(
    folder: pathlib.Path | None = None, *, kept: bool = False, what: str = ""
) -> tuple[Left, ...]:
    """Runs whose process is gone; those that were kept on purpose only where asked."""
    states = ("left", "kept") if kept else ("left",)
    return tuple(left for left in runs(folder, what=what) if left.state in states)


def clean(
    folder: pathlib.Path | None = None, *, kept: bool = False, what: str = ""
) -> tuple[list[str], list[str]]:
    """Undo what dead runs left: what they were, and what could not be undone."""
    done: list[str] = []
    problems: list[str] = []
    for left in leftovers(folder, kept=kept, what=what):
        with _undisturbed(), _alone(left.path) as there:
            if not there:
                continue
            wrong = _undo(left.run, left.changes)
            problems += wrong
            if not wrong:
                left.path.unlink(missing_ok=True)
                done.append(f"{left.what or left.run} ({left.run})")
    return done, problems


@contextlib.contextmanager
def _alone(path: pathlib.Path) -> Iterator[bool]:
    """One that undoes at a time; False where another has done it meanwhile."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        yield False
        return
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield path.exists()
    finally:
        os.close(handle)


def processes_of(run: str) -> tuple[int, ...]:
    """Every process but this one that carries the mark of a run."""
    wanted = f"{MARK}={run}".encode()
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        with contextlib.suppress(OSError):
            if wanted in (entry / "environ").read_bytes().split(b"\0"):
                found.append(int(entry.name))
    return tuple(found)


def _undo(run: str, changes: list[dict[str, str]] | tuple[Mapping[str, str], ...]) -> list[str]:
    problems = []
    deadline = time.monotonic() + GONE_SECONDS
    # Those that are forked meanwhile are met by the next look.
    while there := processes_of(run):
        for pid in there:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if time.monotonic() > deadline:
            problems.append(f"processes {', '.join(map(str, there))} of {run} do not end")
            break
        time.sleep(0.02)
    for change in reversed(changes):
        try:
            operations.check(change)
            operations.UNDO[change["kind"]](change["target"])
        except (OSError, ValueError, KeyError) as error:
            problems.append(f"{change.get('kind')} {change.get('target')} of {run}: {error}")
    return problems


@contextlib.contextmanager
def _undisturbed() -> Iterator[None]:
    """A second Ctrl-C must not stop the undoing half-way."""
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    try:
        before = {number: signal.signal(number, signal.SIG_IGN) for number in numbers}
    except ValueError:  # not the main thread: signals do not come here
        yield
        return
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def own_folder(folder: pathlib.Path) -> pathlib.Path:
    """Made for us alone: whoever can write here can have root remove what he likes."""
    try:
        folder.mkdir(mode=0o700, parents=True)
    except FileExistsError:
        pass
    except OSError as error:
        raise errors.CannotError(
            f"{folder} cannot be made",
            why=f"what is to be undone is written there first: {error}",
            todo="set OVERNIGHT_UNDO to a folder that can be made",
        ) from error
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o022:
        raise errors.CannotError(
            f"{folder} is not ours alone",
            why="what is to be undone is written there, and others could write to it",
            todo=f"look at it, remove it, and try again, or set OVERNIGHT_UNDO to another folder; ls -ld {folder}",
        )
    return folder


def _sync_folder(folder: pathlib.Path) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _read(path: pathlib.Path) -> tuple[dict[str, str], list[dict[str, str]], bool]:
    """Head and changes; a last line that was cut off was never acted upon."""
    lines = []
    for text in path.read_text(errors="replace").splitlines():
        try:
            line = json.loads(text)
        except ValueError:
            continue
        if isinstance(line, dict):
            lines.append({str(key): str(value) for key, value in line.items()})
    head = lines[0] if lines and lines[0].get("schema") == SCHEMA else {}
    changes = [line for line in lines if "kind" in line]
    return head, changes, any("kept" in line for line in lines)


def _is_alive(head: Mapping[str, str]) -> bool:
    pid = head.get("pid", "")
    return head.get("boot") == _boot() and pid.isdigit() and _started(int(pid)) == head["started"]


def _started(pid: int) -> str:
    """When a process began, in ticks since boot: a number that was given again is another process."""
    try:
        text = pathlib.Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return ""
    return text.rpartition(")")[2].split()[19]


def _boot() -> str:
    return pathlib.Path("/proc/sys/kernel/random/boot_id").read_text().strip()
