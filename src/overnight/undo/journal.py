"""The undo journal: changes to this host, recorded before they are made, so that they are always undone.

A journal is a file of JSON lines, one per change, each on disk before the change is made. The run undoes them in
reverse order; after a kill -9 the next run does. Processes need no line: every process of a run, and its
children, carry the run's name in their environment.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import itertools
import json
import os
import pathlib
import secrets
import stat
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Self, TypeVar

from overnight import errors
from overnight.model import data_home, files, process_identity, stop_signals
from overnight.undo import operations

MARK = "OVERNIGHT_RUN"
SCHEMA = "overnight.undo/1"
ENDING = ".undo"
GONE_SECONDS = 5.0
ATTEMPTS = 100
SYSTEM = pathlib.Path("/var/lib/overnight/undo")
Created = TypeVar("Created")


def journal_folder() -> pathlib.Path:
    """Return the folder of new journals: in it nobody else creates files, and a reboot does not remove them."""
    if folder := os.environ.get("OVERNIGHT_UNDO"):
        return pathlib.Path(folder)
    if folder := os.environ.get("STATE_DIRECTORY"):  # set by systemd, with StateDirectory=
        return pathlib.Path(folder.partition(":")[0]) / "undo"
    if os.getuid() == 0:
        return SYSTEM
    folder = os.environ.get("XDG_STATE_HOME", "")
    try:
        base = pathlib.Path(folder if folder.startswith("/") else "~/.local/state").expanduser()
    except RuntimeError as error:
        raise errors.CannotError(
            "this user has no home folder",
            why="the undo journal is written there before any change",
            todo="set OVERNIGHT_UNDO to a private folder",
        ) from error
    return base / "overnight/undo"


def _folders() -> tuple[pathlib.Path, ...]:
    """Return the folders that may hold journals; the last one is that of version 0.1."""
    folder = journal_folder()
    if os.environ.get("OVERNIGHT_UNDO"):
        return (folder,)
    others = [SYSTEM] * (os.getuid() == 0)
    others.append(pathlib.Path(tempfile.gettempdir()) / f"overnight-undo-{os.getuid()}")
    return (folder, *(other for other in others if other != folder and _is_private(other)))


@dataclasses.dataclass(frozen=True)
class Left:
    """A run whose changes are still on this host."""

    run: str
    what: str
    path: pathlib.Path
    changes: tuple[Mapping[str, str], ...]
    state: str = "left"  # or "running", or "kept" where it left them on purpose


class Journal:
    """The changes of one run; a context manager that undoes them."""

    def __init__(self, what: str, folder: pathlib.Path | None = None) -> None:
        self.what = what
        self.run = f"overnight-{secrets.token_hex(4)}"
        self.problems: list[str] = []
        self._changes: list[dict[str, str]] = []
        self._is_open = True
        self.path = (folder or journal_folder()) / f"{self.run}{ENDING}"
        pid = os.getpid()
        head = {"schema": SCHEMA, "run": self.run, "what": what, "pid": str(pid)}
        line = json.dumps({**head, **process_identity.read_identity(pid)}) + "\n"
        # At once with its head: a journal without one belongs to a killed run.
        _create(self.path.parent, lambda: files.write_atomically(self.path, line))

    def write(self, kind: str, target: str | os.PathLike[str]) -> None:
        """Record a change that is about to be made; `kind` is a key of `operations.UNDO`."""
        if kind not in operations.UNDO:
            raise ValueError(f"there is no undo operation for {kind!r}")
        self._write({"kind": kind, "target": os.fspath(target)})

    def write_value(self, path: pathlib.Path, before: str, after: str) -> None:
        """Record a value of the kernel that is about to be replaced; it lasts until the next boot."""
        boot = process_identity.read_boot()
        self._write({"kind": "value", "target": str(path), "before": before, "after": after, "boot": boot})  # fmt: skip

    def _write(self, change: dict[str, str]) -> None:
        operations.check(change, self.run)
        self._append(change)
        self._changes.append(change)

    def environment(self) -> dict[str, str]:
        """Return this environment with the run's mark, for the processes that the run starts."""
        return {**os.environ, MARK: self.run}

    def targets(self) -> list[str]:
        """Return the targets of all changes, in order."""
        return [change["target"] for change in self._changes]

    def undo(self) -> list[str]:
        """Undo all changes, the latest first; return the problems. What failed stays in the file."""
        with stop_signals.ignore_signals():
            self.problems = _undo(self.run, self._changes, self.path)
        self._is_open = False
        return self.problems

    def keep(self) -> None:
        """Leave the changes in place, for a later undo such as `age --undo`."""
        self._append({"kept": "yes"})
        self._is_open = False

    def _append(self, line: Mapping[str, str]) -> None:
        files.append_lines(self.path, [json.dumps(line).encode() + b"\n"])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if not self._is_open:
            return
        self.undo()
        if self.problems and error is not None:
            # The caller will not read `problems` then.
            raise errors.CannotError(
                f"{self.what} ended, but not everything was undone: {self.problems[0]}",
                why=f"it was ended by: {str(error) or type(error).__name__}",
                todo="`overnight rehearse --clean` retries, and so does the next run",
            ) from error


def runs(folder: pathlib.Path | None = None, *, what: str = "") -> tuple[Left, ...]:
    """Return all runs with changes on this host whose description starts with `what`."""
    left = []
    for path in itertools.chain(*map(_journals, [folder] if folder else _folders())):
        try:
            head, changes, is_kept = _read(path)
        except FileNotFoundError:
            continue  # undone meanwhile
        # A kept run counts as kept even while its process runs.
        state = "kept" if is_kept else "running" if _is_alive(head) else "left"
        if head.get("what", "").startswith(what):
            left.append(Left(path.stem, head.get("what", ""), path, tuple(changes), state))
    return tuple(left)


def _journals(folder: pathlib.Path) -> list[pathlib.Path]:
    try:
        _need_private(folder)
    except FileNotFoundError:
        return []
    return sorted(folder.glob(f"*{ENDING}"))


def clean(
    folder: pathlib.Path | None = None, *, kept: bool = False, what: str = ""
) -> tuple[list[str], list[str]]:
    """Undo what killed runs left, and with `kept` what others kept; return the undone runs and the problems."""
    done: list[str] = []
    problems: list[str] = []
    states = ("left", "kept") if kept else ("left",)
    for left in (left for left in runs(folder, what=what) if left.state in states):
        with stop_signals.ignore_signals(), contextlib.ExitStack() as lock:
            with contextlib.suppress(FileNotFoundError):
                lock.enter_context(files.locked(left.path))
            if not left.path.exists():
                continue  # another process has undone it meanwhile
            failed = _undo(left.run, left.changes, left.path)
            problems += failed
            if not failed:
                done.append(f"{left.what or left.run} ({left.run})")
    return done, problems


@contextlib.contextmanager
def lock(name: str) -> Iterator[bool]:
    """Hold a lock of this user on this host, and leave nothing of it; yield False where another has it."""
    path = journal_folder() / name
    handle = _create(path.parent, lambda: _try_lock(path))
    if handle is None:
        yield False
        return
    try:
        yield True
    finally:
        path.unlink(missing_ok=True)
        os.close(handle)
        _remove_empty(path.parent)


def _try_lock(path: pathlib.Path) -> int | None:
    """Return the locked file; raise FileNotFoundError where another process has just removed it."""
    with contextlib.ExitStack() as stack:
        handle = files.open_private(path, os.O_RDWR | os.O_CREAT)
        stack.callback(os.close, handle)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return None
        if not os.path.samestat(os.fstat(handle), path.lstat()):
            raise FileNotFoundError(path)
        stack.pop_all()
    return handle


def processes_of(run: str) -> tuple[int, ...]:
    """Return every process but this one with the mark of a run."""
    return tuple(_marked(run))


def _marked(run: str) -> dict[int, str]:
    """Return the start time of each process of a run."""
    wanted = f"{MARK}={run}".encode()
    pids = {}
    for entry in pathlib.Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            # Read before the mark: a PID that is reused meanwhile has another start time.
            started = process_identity.read_start(int(entry.name))
            if wanted in (entry / "environ").read_bytes().split(b"\0"):
                pids[int(entry.name)] = started
        except OSError as error:
            errors.raise_own(error)
    return pids


def _undo(run: str, changes: Sequence[Mapping[str, str]], path: pathlib.Path) -> list[str]:
    """Undo the changes of a run, and remove its journal once that is durable; return the problems."""
    problems = []
    deadline = time.monotonic() + GONE_SECONDS
    try:
        # Repeated, because processes may fork meanwhile.
        while alive := _marked(run):
            for pid in alive:
                process_identity.send_signal(pid, alive[pid])
            if time.monotonic() > deadline:
                problems.append(f"processes {', '.join(map(str, alive))} of {run} do not end")
                break
            time.sleep(0.02)
    except OSError as error:
        problems.append(f"processes of {run}: {error}")
    for change in reversed(changes):
        try:
            operations.check(change, run)
            operations.undo(change)
        except (OSError, ValueError, KeyError) as error:
            problems.append(f"{change.get('kind')} {change.get('target')} of {run}: {error}")
    if not problems:
        path.unlink(missing_ok=True)
        _remove_empty(path.parent)
    return problems


def _create(folder: pathlib.Path, create: Callable[[], Created]) -> Created:
    """Create something in a private folder; repeated where another run has just removed the empty folder."""
    attempts = ATTEMPTS
    while True:
        try:
            files.make_folder(folder)
            _need_private(folder)
            return create()
        except OSError as error:
            attempts -= 1
            if attempts and isinstance(error, FileNotFoundError | FileExistsError):
                continue
            raise errors.CannotError(
                f"cannot write to {folder}: {error}",
                why="the undo journal is written there before any change",
                todo="free disk space, or set OVERNIGHT_UNDO to a folder that can be created",
            ) from error


def _remove_empty(folder: pathlib.Path) -> None:
    """Remove a folder of journals, and the one above, if they are empty and overnight created them."""
    if os.environ.get("OVERNIGHT_UNDO"):
        return
    with contextlib.suppress(OSError):
        folder.rmdir()
        is_own = folder.parent.name == "overnight" and not os.environ.get("STATE_DIRECTORY")
        if is_own and stat.S_IMODE(folder.parent.stat().st_mode) == 0o700:
            folder.parent.rmdir()


def _need_private(folder: pathlib.Path) -> None:
    """Raise CannotError where others can write to it: they could make root remove files."""
    if not _is_private(folder):
        folder.lstat()  # FileNotFoundError: another run has just removed it
        raise errors.CannotError(
            f"{folder} is not private",
            why=f"other users could write to the undo journal: {data_home.find_unsafe_way(folder) or 'its owner or mode'}",
            todo=f"check it with ls -ld {folder} and remove it, or set OVERNIGHT_UNDO to another folder",
        )


def _is_private(folder: pathlib.Path) -> bool:
    try:
        status = folder.lstat()
    except OSError:
        return False
    is_own = stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid()
    return is_own and not status.st_mode & 0o022 and not data_home.find_unsafe_way(folder)


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
