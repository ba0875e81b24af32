"""The undo journal: changes to this host, recorded before they are made, so that they are always undone.

A journal is a file of JSON lines, one per change, each on disk before the change is made. The run undoes them in
reverse order; after a kill -9 the next run does. Processes need no line: every process of a run, and its
children, carry the run's name in their environment.
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
from overnight.model import files, process_identity
from overnight.undo import operations

MARK = "OVERNIGHT_RUN"
SCHEMA = "overnight.undo/1"
ENDING = ".undo"
GONE_SECONDS = 5.0


def journal_folder() -> pathlib.Path:
    """Return the folder of all journals: one per machine, so that the next run finds them."""
    if folder := os.environ.get("OVERNIGHT_UNDO"):
        return pathlib.Path(folder)
    return pathlib.Path(tempfile.gettempdir()) / f"overnight-undo-{os.getuid()}"


@dataclasses.dataclass(frozen=True)
class Left:
    """A run whose changes are still on this host.

    `state` is "running" while its process runs, "kept" where it left them on purpose, else "left".
    """

    run: str
    what: str
    path: pathlib.Path
    changes: tuple[Mapping[str, str], ...]
    state: str = "left"


class Journal:
    """The changes of one run; a context manager that undoes them."""

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
        self._append({**head, **process_identity.read_identity(pid)})
        files.sync_folder(folder)

    def write(self, kind: str, target: str | os.PathLike[str]) -> None:
        """Record a change that is about to be made; `kind` is a key of `operations.UNDO`."""
        if kind not in operations.UNDO:
            raise ValueError(f"there is no undo operation for {kind!r}")
        change = {"kind": kind, "target": os.fspath(target)}
        operations.check(change)
        self._append(change)
        self._changes.append(change)

    def environment(self) -> dict[str, str]:
        """Return this environment with the run's mark, for the processes that the run starts."""
        return {**os.environ, MARK: self.run}

    def targets(self) -> list[str]:
        """Return the targets of all changes, in order."""
        return [change["target"] for change in self._changes]

    def processes(self) -> tuple[int, ...]:
        return processes_of(self.run)

    def undo(self) -> list[str]:
        """Undo all changes, the latest first; return the problems. What failed stays in the file."""
        self.problems = _undo(self.run, self._changes)
        if not self.problems:
            self.path.unlink(missing_ok=True)
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
        return self.problems

    def keep(self) -> None:
        """Leave the changes in place, for a later undo such as `age --undo`."""
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
            # The caller will not read `problems` then.
            raise errors.CannotError(
                f"{self.what} ended, but not everything was undone: {self.problems[0]}",
                why=f"it was ended by: {str(error) or type(error).__name__}",
                todo="overnight rehearse --clean   retries, and so does the next run",
            ) from error


def runs(folder: pathlib.Path | None = None, *, what: str = "") -> tuple[Left, ...]:
    """Return all runs with changes on this host whose description starts with `what`."""
    folder = folder or journal_folder()
    if not folder.is_dir():
        return ()
    own_folder(folder)
    left = []
    for path in sorted(folder.glob(f"*{ENDING}")):
        try:
            head, changes, is_kept = _read(path)
        except FileNotFoundError:
            continue  # undone meanwhile
        # A kept run counts as kept even while its process runs.
        state = "kept" if is_kept else "running" if _is_alive(head) else "left"
        if head.get("what", "").startswith(what):
            left.append(Left(path.stem, head.get("what", ""), path, tuple(changes), state))
    return tuple(left)


def leftovers(
    folder: pathlib.Path | None = None, *, kept: bool = False, what: str = ""
) -> tuple[Left, ...]:
    """Return runs whose process is gone, and with `kept` also those left on purpose."""
    states = ("left", "kept") if kept else ("left",)
    return tuple(left for left in runs(folder, what=what) if left.state in states)


def clean(
    folder: pathlib.Path | None = None, *, kept: bool = False, what: str = ""
) -> tuple[list[str], list[str]]:
    """Undo what killed runs left; return the undone runs and the problems."""
    done: list[str] = []
    problems: list[str] = []
    for left in leftovers(folder, kept=kept, what=what):
        with _undisturbed(), _alone(left.path) as exists:
            if not exists:
                continue
            failed = _undo(left.run, left.changes)
            problems += failed
            if not failed:
                left.path.unlink(missing_ok=True)
                done.append(f"{left.what or left.run} ({left.run})")
    return done, problems


@contextlib.contextmanager
def _alone(path: pathlib.Path) -> Iterator[bool]:
    """Lock a journal for undoing; yields False where another process has undone it meanwhile."""
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
    """Return every process but this one with the mark of a run."""
    wanted = f"{MARK}={run}".encode()
    pids = []
    for entry in pathlib.Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        with contextlib.suppress(OSError):
            if wanted in (entry / "environ").read_bytes().split(b"\0"):
                pids.append(int(entry.name))
    return tuple(pids)


def _undo(run: str, changes: list[dict[str, str]] | tuple[Mapping[str, str], ...]) -> list[str]:
    problems = []
    deadline = time.monotonic() + GONE_SECONDS
    # Repeated, because processes may fork meanwhile.
    while alive := processes_of(run):
        for pid in alive:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if time.monotonic() > deadline:
            problems.append(f"processes {', '.join(map(str, alive))} of {run} do not end")
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
    """Ignore signals: a second Ctrl-C must not interrupt the undo."""
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    try:
        before = {number: signal.signal(number, signal.SIG_IGN) for number in numbers}
    except ValueError:  # not the main thread, which gets the signals
        yield
        return
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def own_folder(folder: pathlib.Path) -> pathlib.Path:
    """Create or check a private folder: anyone who can write to it could make root remove files."""
    try:
        folder.mkdir(mode=0o700, parents=True)
    except FileExistsError:
        pass
    except OSError as error:
        raise errors.CannotError(
            f"cannot create {folder}: {error}",
            why="the undo journal is written there before any change",
            todo="set OVERNIGHT_UNDO to a folder that can be created",
        ) from error
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or status.st_mode & 0o022:
        raise errors.CannotError(
            f"{folder} is not private",
            why="other users could write to the undo journal",
            todo=f"check it with ls -ld {folder} and remove it, or set OVERNIGHT_UNDO to another folder",
        )
    return folder


def _read(path: pathlib.Path) -> tuple[dict[str, str], list[dict[str, str]], bool]:
    """Return head, changes and whether it was kept; a truncated last line was never acted upon."""
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
    return pid.isdigit() and process_identity.is_running(
        int(pid), head.get("started", ""), head.get("boot", "")
    )
