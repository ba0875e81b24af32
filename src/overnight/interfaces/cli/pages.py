"""The viewer page from the command line, with the events to mark on it."""

from __future__ import annotations

import pathlib
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, BinaryIO, TypeAlias

import typer

from overnight import errors
from overnight.interfaces.cli import files

if TYPE_CHECKING:
    from overnight.interfaces.cli import choosing
    from overnight.model import event

__all__ = ["MarkOption", "Write", "deliver_page", "parse_marks"]

Write: TypeAlias = Callable[[BinaryIO], None]

MarkOption = Annotated[
    list[str] | None,
    typer.Option("--mark", metavar="TIME[=TEXT]", help="Mark an instant; again for more."),
]


def parse_marks(chosen: choosing.Chosen, marks: list[str] | None) -> tuple[event.Event, ...]:
    """The instants that --mark names."""
    from overnight.model import event, times

    found = []
    for mark in marks or []:
        when, _, text = mark.partition("=")
        instant = times.parse_instant(
            when,
            now_us=time.time_ns() // 1000,
            origin_us=chosen.reader.extent(chosen.hosts).begin_us,
        )
        found.append(event.Event(instant, "mark", text))
    return tuple(sorted(found, key=lambda one: one.time_us))


def deliver_page(
    chosen: choosing.Chosen, marks: tuple[event.Event, ...], file: pathlib.Path | None
) -> None:
    """The viewer page for one host."""
    from overnight.model import times
    from overnight.queries import view
    from overnight.reports import html

    if len(chosen.hosts) != 1:
        raise errors.UsageError(
            f"a page of {len(chosen.hosts)} hosts",
            why="a page shows the cores of one",
            todo=f"choose one: --host {chosen.hosts[0]}",
        )
    title = f"{chosen.hosts[0]}, {times.format_instant(chosen.window.begin_us)}"
    shown = view.view(chosen.reader, chosen.window, chosen.hosts[0], marks, title=title)
    files.deliver(lambda out: html.write_view(shown, out), file, binary=False)
