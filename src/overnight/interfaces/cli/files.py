"""Results that are files: to a path, or to standard output when it is not a terminal."""

from __future__ import annotations

import contextlib
import json
import pathlib
import sys
from collections.abc import Callable
from typing import Annotated, BinaryIO

import typer

from overnight import errors

__all__ = ["FileOption", "check_text", "deliver", "deliver_json"]

FileOption = Annotated[
    pathlib.Path | None,
    typer.Option("-o", "--file", metavar="FILE", help="Write there instead of to standard output."),
]


def check_text(file: pathlib.Path | None) -> None:
    """Text is for the terminal: a file that was named would stay unwritten."""
    if file is not None:
        raise errors.UsageError(
            f"text is not written to {file}",
            why="text is made for the width and the colours of a terminal",
            todo=f"choose a format with -O, or send it there: > {file}",
        )


def deliver(write: Callable[[BinaryIO], None], file: pathlib.Path | None, *, binary: bool) -> None:
    """Write a result; a binary one never reaches a terminal. A file appears when it is whole."""
    if file is None:
        if binary and sys.stdout.isatty():
            raise errors.UsageError(
                "this format is not for a terminal",
                why="it is compressed",
                todo="name a file with -o FILE, or send it into a pipe",
            )
        write(sys.stdout.buffer)
        sys.stdout.buffer.flush()
        return
    fresh = file.with_name(f".{file.name}.new")
    try:
        with fresh.open("wb") as out:
            write(out)
        fresh.replace(file)
    except OSError as error:
        raise errors.CannotError(
            f"{file} cannot be written",
            why=error.strerror or str(error),
            todo="choose another place with -o FILE",
        ) from error
    finally:
        with contextlib.suppress(OSError):
            fresh.unlink()
    typer.echo(f"written: {file} ({_size(file.stat().st_size)})", err=True)


def deliver_json(document: dict[str, object], file: pathlib.Path | None) -> None:
    """One JSON document, as every command prints it."""
    text = json.dumps(document, indent=2) + "\n"
    deliver(lambda out: _write(out, text), file, binary=False)


def _write(out: BinaryIO, text: str) -> None:
    out.write(text.encode())


def _size(count: int) -> str:
    return f"{count / 1e6:.1f} MB" if count >= 1e6 else f"{count / 1e3:.0f} kB"
