"""Options that every question about profiles shares: which hosts, which time, which samples."""

from __future__ import annotations

import dataclasses
import time
from typing import TYPE_CHECKING, Annotated

import typer

from overnight import errors

if TYPE_CHECKING:
    from overnight.interfaces.cli import session
    from overnight.model import selection
    from overnight.queries import reader

__all__ = [
    "BeginOption",
    "Chosen",
    "CoreOption",
    "EndOption",
    "FunctionOption",
    "HostOption",
    "IdleOption",
    "ProcessOption",
    "SideOption",
    "ThreadOption",
    "UnitOption",
    "choose",
    "open_reader",
    "window_between",
]

PANEL = "Which samples"

BeginOption = Annotated[
    str,
    typer.Option(
        "-b", "--begin", metavar="TIME", rich_help_panel=PANEL,
        help="From when: ISO (UTC), epoch, '3m ago', or 10m20s into the recording.",
    ),
]  # fmt: skip
EndOption = Annotated[
    str, typer.Option("-e", "--end", metavar="TIME", rich_help_panel=PANEL, help="Until when; +30s: after -b.")
]  # fmt: skip
HostOption = Annotated[
    list[str] | None,
    typer.Option("--host", metavar="NAME", rich_help_panel=PANEL, help="One host; again for more. Default: all."),
]  # fmt: skip
CoreOption = Annotated[
    str, typer.Option("--core", metavar="LIST", rich_help_panel=PANEL, help="Cores: 39 or 0-3,8.")
]
ProcessOption = Annotated[
    str, typer.Option("--process", metavar="REGEX", rich_help_panel=PANEL, help="Process name.")
]
ThreadOption = Annotated[
    str, typer.Option("--thread", metavar="REGEX", rich_help_panel=PANEL, help="Thread name.")
]
FunctionOption = Annotated[
    str,
    typer.Option("--function", metavar="REGEX", rich_help_panel=PANEL, help="A function anywhere on the stack."),
]  # fmt: skip
UnitOption = Annotated[
    str,
    typer.Option("--unit", metavar="REGEX", rich_help_panel=PANEL, help="systemd unit or cgroup."),
]
SideOption = Annotated[
    str,
    typer.Option("--side", metavar="SIDE", rich_help_panel=PANEL, help="kernel or user: where it was running."),
]  # fmt: skip
IdleOption = Annotated[
    bool, typer.Option("--idle", rich_help_panel=PANEL, help="Count idle samples too.")
]


@dataclasses.dataclass(frozen=True)
class Chosen:
    """The samples that a command is about."""

    reader: reader.Reader
    hosts: tuple[str, ...]
    window: selection.Window
    selection: selection.Selection


def open_reader(current: session.Session) -> reader.Reader:
    """The profiles of this data home."""
    from overnight.queries import reader
    from overnight.store import segments

    return reader.Reader(segments.Catalogue(current.home))


def window_between(
    source: reader.Reader, hosts: tuple[str, ...], begin: str, end: str
) -> selection.Window:
    """The window that two texts name; what is left out is where the recording begins or ends."""
    from overnight.model import selection, times

    extent = source.extent(hosts)
    now = time.time_ns() // 1000
    first = (
        times.parse_instant(begin, now_us=now, origin_us=extent.begin_us)
        if begin
        else extent.begin_us
    )
    origin = first if end.startswith("+") else extent.begin_us
    last = times.parse_instant(end, now_us=now, origin_us=origin) if end else extent.end_us
    window = selection.Window(first, last)
    if window.end_us <= extent.begin_us or window.begin_us >= extent.end_us:
        raise errors.CannotError(
            f"nothing is recorded from {times.format_instant(first)} to {times.format_instant(last)}",
            why=f"there is {times.format_instant(extent.begin_us)} to {times.format_instant(extent.end_us)}",
            todo="choose -b and -e in there",
        )
    return window


def choose(
    current: session.Session,
    *,
    hosts: list[str] | None,
    begin: str,
    end: str,
    core: str = "",
    process: str = "",
    thread: str = "",
    function: str = "",
    unit: str = "",
    side: str = "",
    idle: bool = False,
) -> Chosen:
    """What the options say."""
    from overnight.model import selection
    from overnight.sources import cpu

    try:
        cores = cpu.parse_cpu_list(core)
    except ValueError as error:
        raise errors.UsageError(
            f"{core!r} is not a list of cores", why=str(error), todo="write it like 39 or 0-3,8"
        ) from error
    wanted = selection.Selection(
        cores=cores, process=process, thread=thread, function=function, unit=unit, side=side, idle=idle
    )  # fmt: skip
    source = open_reader(current)
    names = source.hosts(hosts or ())
    return Chosen(source, names, window_between(source, names, begin, end), wanted)
