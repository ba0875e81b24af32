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
SYSTEM = pathlib.Path("/var/lib/overnight/undo")


def journal_folder() -> pathlib.Path:
    """Return the folder of new journals: in it nobody else creates files, and a reboot does not remove them."""
    if folder := os.environ.get("OVERNIGHT_UNDO"):
        return pathlib.Path(folder)
    if folder := os.environ.get("STATE_DIRECTORY"):  # set by systemd, with StateDirectory=
        return pathlib.Path(folder.partition(":")[0]) / "undo"
    if os.getuid() == 0:
        return SYSTEM
    folder = os.environ.get("XDG_STATE_HOME", "")
    base = pathlib.Path(folder if folder.startswith("/") else "~/.local/state").expanduser()
    return base / "overnight/undo"


def _folders() -> tuple[pathlib.Path, ...]:
    """Return the folders that may hold journals; the last one is that of version 0.1."""
    folder = journal_folder()
    if "OVERNIGHT_UNDO" in os.environ:
        return (folder,)
    others = [SYSTEM] * (os.getuid() == 0)
    others.append(pathlib.Path(tempfile.gettempdir()) / f"overnight-undo-{os.getuid()}")
    return (folder, *(other for other in others if other != folder and _is_private(other)))


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
        self._is_open = True
        pid = os.getpid()
        head = {"schema": SCHEMA, "run": self.run, "what": what, "pid": str(pid)}
        try:
            self._append({**head, **process_identity.read_identity(pid)})
            files.sync_folder(folder)
        except OSError:
            self.path.unlink(missing_ok=True)
            raise

    def write(self, kind: str, target: str | os.PathLike[str]) -> None:
        """Record a change that is about to be made; `kind` is a key of `operations.UNDO`."""
        if kind not in operations.UNDO:
            raise ValueError(f"there is no undo operation for {kind!r}")
        change = {"kind": kind, "target": os.fspath(target)}
        operations.check(change, self.run)
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
        self._is_open = False
        return self.problems

    def keep(self) -> None:
        """Leave the changes in place, for a later undo such as `age --undo`."""
        self._append({"kept": "yes"})
        self._is_open = False

    def _append(self, line: Mapping[str, str]) -> None:
        files.append_lines(self.path, [(json.dumps(line) + "\n").encode()])

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if not self._is_open:
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
    if not folder.is_dir():
        return []
    return sorted(own_folder(folder).glob(f"*{ENDING}"))


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


def _undo(run: str, changes: list[dict[str, str]] | tuple[Mapping[str, str], ...]) -> list[str]:
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
        files.make_folder(folder)
    except OSError as error:
        raise errors.CannotError(
            f"cannot create {folder}: {error}",
            why="the undo journal is written there before any change",
            todo="set OVERNIGHT_UNDO to a folder that can be created",
        ) from error
    if not _is_private(folder):
        raise errors.CannotError(
            f"{folder} is not private",
            why="other users could write to the undo journal",
            todo=f"check it with ls -ld {folder} and remove it, or set OVERNIGHT_UNDO to another folder",
        )
    return folder


def _is_private(folder: pathlib.Path) -> bool:
    try:
        status = folder.lstat()
    except OSError:
        return False
    is_folder = stat.S_ISDIR(status.st_mode)
    return is_folder and status.st_uid == os.getuid() and not status.st_mode & 0o022


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
