"""The exceptions that users see. Each says what failed, why, and what to do.

The command line prints the three lines and exits with `exit_code`; other interfaces send `as_json()`.
Any exception that is not an `OvernightError` is a bug, except those of `is_own`.
"""

from __future__ import annotations

import contextlib
import enum
import errno
import os
import pathlib
from typing import TypeGuard


class ExitCode(enum.IntEnum):
    """Exit codes of commands; docs/commands.md lists them too, and a test compares the two."""

    DONE = 0
    FOUND = 1
    USAGE = 2
    CANNOT = 3
    BUG = 70
    INTERRUPTED = 130  # as a shell shows SIGINT
    READER_GONE = 141  # as a shell shows SIGPIPE: `overnight … | head`


class OvernightError(Exception):
    """What failed, why, and what to do about it."""

    exit_code = ExitCode.CANNOT

    def __init__(self, what: str, *, why: str, todo: str) -> None:
        super().__init__(what)
        self.what = what
        self.why = why
        self.todo = todo

    @property
    def kind(self) -> str:
        """Stable name for programs: `MissingToolError` -> `missing-tool`."""
        name = type(self).__name__.removesuffix("Error")
        return "".join("-" + c.lower() if c.isupper() else c for c in name).lstrip("-")

    def as_json(self, exit_code: ExitCode | None = None) -> dict[str, object]:
        return {
            "error": {
                "kind": self.kind,
                "what": self.what,
                "why": self.why,
                "todo": self.todo,
                "exit_code": int(exit_code or self.exit_code),
            }
        }


class UsageError(OvernightError):
    """The request is not valid."""

    exit_code = ExitCode.USAGE


class UnconfirmedError(UsageError):
    """The request affects others and must be confirmed first; nothing was changed."""


class CannotError(OvernightError):
    """The request is valid, but cannot be carried out here."""


class NotFoundError(CannotError):
    """There is no such thing: host, event, window, task or token."""


class ConflictError(CannotError):
    """The request contradicts what is stored: a name that is taken, another state, another offset."""


class UnauthenticatedError(CannotError):
    """The token or credential is not known, has expired or was revoked."""


class NotAllowedError(CannotError):
    """The token or credential is valid, but not for this."""


class QuotaError(CannotError):
    """Too much was sent; it may be sent again after `retry_seconds`."""

    retry_seconds = 3_600


class MissingPermissionError(CannotError):
    """The kernel or the file system refused access."""


class MissingToolError(CannotError):
    """A required program is not installed."""


class RecordingError(CannotError):
    """A recorder failed after it started."""


class DamagedFileError(CannotError):
    """A file is damaged; names the file and the byte."""

    def __init__(self, path: str, offset: int, problem: str) -> None:
        super().__init__(
            f"{path} cannot be read: {problem} at byte {offset}",
            why="the file is damaged, cut short, or of another format",
            todo="record again, or copy the file from its source again",
        )
        self.path = path
        self.offset = offset


def from_json(document: dict[str, dict[str, str]]) -> OvernightError:
    """Return the error that `as_json` described, of the same kind."""
    fields = document["error"]
    kinds: list[type[OvernightError]] = [UsageError, *CannotError.__subclasses__()]
    name = fields["kind"].title().replace("-", "") + "Error"
    kind = next((kind for kind in kinds if kind.__name__ == name), CannotError)
    error: OvernightError = kind.__new__(kind)
    OvernightError.__init__(error, fields["what"], why=fields["why"], todo=fields["todo"])
    return error


def unreadable(path: object, error: Exception, todo: str) -> CannotError:
    return CannotError(f"{path} cannot be read", why=reason(error), todo=todo)


def unwritable(path: object, error: Exception, todo: str) -> CannotError:
    return CannotError(f"{path} cannot be written", why=reason(error), todo=todo)


_OTHER_DISK = "choose another disk with --home DIR"
# Why, and what to do.
_OWN = {
    errno.EMFILE: ("this process has too many open files", "raise the limit: ulimit -n 65536"),
    errno.ENFILE: ("this host has too many open files", "raise the limit: sysctl fs.file-max"),
    errno.ENOMEM: ("not enough memory is free", "free memory, then try again"),
    errno.ENOSPC: ("the disk is full", f"free disk space, or {_OTHER_DISK}"),
    errno.EDQUOT: ("the disk quota is used up", f"free disk space, or {_OTHER_DISK}"),
    errno.EROFS: ("the file system is read-only", f"mount it read-write, or {_OTHER_DISK}"),
}


def is_own(error: BaseException | None) -> TypeGuard[OSError]:
    """Return whether this process or its disk is the reason, and not the file that it read."""
    return isinstance(error, OSError) and error.errno in _OWN


def raise_own(error: Exception) -> None:
    """Raise the error again if `is_own`: where any other means that a file is absent or damaged."""
    if is_own(error):
        raise error


def own_error(error: OSError, what: str = "") -> CannotError:
    """Return the error to report where `is_own`; `what` failed, by default the use of a file."""
    why, todo = _OWN[error.errno or 0]
    what = what or f"cannot use {error.filename or 'a file'}"
    return CannotError(what, why=f"{why} ({reason(error)})", todo=todo)


def from_memory(error: Exception) -> Exception:
    """Return a MemoryError as the OSError with which the kernel reports the same, any other as it is."""
    out = isinstance(error, MemoryError)
    return OSError(errno.ENOMEM, os.strerror(errno.ENOMEM)) if out else error


def reason(error: Exception) -> str:
    """Return what the kernel says, with the free space where a disk is full."""
    error = from_memory(error)
    text = getattr(error, "strerror", None) or str(error)
    if (
        isinstance(error, OSError)
        and error.errno in (errno.ENOSPC, errno.EDQUOT)
        and error.filename
    ):
        with contextlib.suppress(OSError):
            path = pathlib.Path(os.fsdecode(error.filename)).absolute()
            folder = path if path.is_dir() else path.parent
            disk = os.statvfs(folder)
            free, size = (blocks * disk.f_frsize / 1e6 for blocks in (disk.f_bavail, disk.f_blocks))
            text += f"; {free:,.1f} of {size:,.1f} MB are free in {folder}"
    return text
