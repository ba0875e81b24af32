"""The one exception tree. Every error a user can meet says what happened, why, and what to do.

The edges translate: the command line prints the three lines and leaves with `exit_code`, the
other doors send `as_json()`. Anything that is not an `OvernightError` is a bug of ours.
"""

from __future__ import annotations

import enum

__all__ = [
    "CannotError",
    "DamagedFileError",
    "ExitCode",
    "MissingPermissionError",
    "MissingToolError",
    "OvernightError",
    "RecordingError",
    "UsageError",
]


class ExitCode(enum.IntEnum):
    """How a command ends. docs/commands.md lists the same; a test compares the two."""

    DONE = 0
    FOUND = 1
    USAGE = 2
    CANNOT = 3
    BUG = 70
    INTERRUPTED = 130  # as a shell shows SIGINT
    READER_GONE = 141  # as a shell shows SIGPIPE: `overnight … | head`


class OvernightError(Exception):
    """What happened, why, and what to do about it."""

    exit_code = ExitCode.CANNOT

    def __init__(self, what: str, *, why: str, todo: str) -> None:
        super().__init__(what)
        self.what = what
        self.why = why
        self.todo = todo

    @property
    def kind(self) -> str:
        """A stable name for programs: `MissingToolError` -> `missing-tool`."""
        name = type(self).__name__.removesuffix("Error")
        return "".join("-" + c.lower() if c.isupper() else c for c in name).lstrip("-")

    def as_json(self) -> dict[str, object]:
        """The same error for machines."""
        return {
            "error": {
                "kind": self.kind,
                "what": self.what,
                "why": self.why,
                "todo": self.todo,
                "exit_code": int(self.exit_code),
            }
        }


class UsageError(OvernightError):
    """The command was asked for in a way it does not understand."""

    exit_code = ExitCode.USAGE


class CannotError(OvernightError):
    """The command is right, but this host cannot carry it out."""


class MissingPermissionError(CannotError):
    """The kernel or the file system said no."""


class MissingToolError(CannotError):
    """A program that the command needs is not installed."""


class RecordingError(CannotError):
    """A recorder started and then failed."""


class DamagedFileError(CannotError):
    """A file is not what it claims to be; says which file and at which byte."""

    def __init__(self, path: str, offset: int, problem: str) -> None:
        super().__init__(
            f"{path} cannot be read: {problem} at byte {offset}",
            why="the file is damaged, cut short, or of another format",
            todo="record again, or take the file from its source once more; "
            "what stands before that byte was not touched",
        )
        self.path = path
        self.offset = offset
