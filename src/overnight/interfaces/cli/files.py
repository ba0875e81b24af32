"""Results that are files: written to a path, or to standard output."""

from __future__ import annotations

import json
import pathlib
import sys
from collections.abc import Callable
from typing import Annotated, BinaryIO

import typer

from overnight import errors
from overnight.interfaces.cli import suggestions, terminal
from overnight.model import files

FileOption = Annotated[
    pathlib.Path | None,
    typer.Option("-o", "--file", metavar="FILE", help="File to write. Default: standard output."),
]


def check_text(file: pathlib.Path | None) -> None:
    """Refuse -o for text, which is laid out for a terminal."""
    if file is not None:
        raise errors.UsageError(
            f"text cannot be written to {file}",
            why="text is laid out for the width and colours of a terminal",
            todo=f"choose another format with -O, or redirect: > {file}",
        )


def deliver(
    write: Callable[[BinaryIO], None], file: pathlib.Path | None, *, binary: bool = False
) -> None:
    """Write a result atomically to a file that only its owner may read, or to standard output, but no binary data to a terminal."""
    if file is None:
        if binary and sys.stdout.isatty():
            raise errors.UsageError(
                "refusing to write binary data to a terminal",
                why="this format is compressed",
                todo="use -o FILE, or redirect standard output",
            )
        write(sys.stdout.buffer)
        sys.stdout.buffer.flush()
        return
    try:
        with files.replace(file) as out:
            write(out)
    except OSError as error:
        raise errors.unwritable(file, error, "choose another file with -o FILE") from error
    written = file.stat().st_size
    size = f"{written / 1e6:.1f} MB" if written >= 1e6 else f"{written / 1e3:.0f} kB"
    terminal.echo(f"wrote {file} ({size})", err=True)


def deliver_json(document: dict[str, object], file: pathlib.Path | None) -> None:
    text = json.dumps(suggestions.complete_values(document), indent=2) + "\n"

    def write(out: BinaryIO) -> None:
        out.write(text.encode())

    deliver(write, file)
