"""Options that every question about profiles shares: which hosts, which time, which samples."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import time
import typing
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from overnight import errors

if TYPE_CHECKING:
    from overnight.interfaces.cli import session
    from overnight.model.selection import Selection, Window
    from overnight.queries import reader

__all__ = [
    "Asked",
    "BeginOption",
    "Chosen",
    "EndOption",
    "asks",
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


def _option(name: str, metavar: str | None, text: str) -> Any:
    return typer.Option(name, metavar=metavar, rich_help_panel=PANEL, help=text)


@dataclasses.dataclass(frozen=True)
class Asked:
    """What the reader of a night typed: an option a field, in the order of `--help`.

    A new filter is a field here and one of the same name in `selection.Selection`.
    """

    begin: BeginOption = ""
    end: EndOption = ""
    host: Annotated[
        list[str] | None, _option("--host", "NAME", "One host; again for more. Default: all.")
    ] = None
    core: Annotated[str, _option("--core", "LIST", "Cores: 39 or 0-3,8.")] = ""
    process: Annotated[str, _option("--process", "REGEX", "Process name.")] = ""
    thread: Annotated[str, _option("--thread", "REGEX", "Thread name.")] = ""
    function: Annotated[
        str, _option("--function", "REGEX", "A function anywhere on the stack.")
    ] = ""
    unit: Annotated[str, _option("--unit", "REGEX", "systemd unit or cgroup.")] = ""
    side: Annotated[str, _option("--side", "SIDE", "kernel or user: where it was running.")] = ""
    idle: Annotated[bool, _option("--idle", None, "Count idle samples too.")] = False
    perf_event: Annotated[
        str, _option("--perf-event", "NAME", "What was sampled, where a capture has several.")
    ] = ""

    def filters(self) -> dict[str, str | bool]:
        """Those that leave samples out or let them in, by name; the ones not given are not there."""
        given = ((f.name, getattr(self, f.name)) for f in dataclasses.fields(self))
        return {name: value for name, value in given if value and name not in PLACE}

    def spelled(self) -> str:
        """The filters as they are typed: `--core 39 --process dd`."""
        parts = self.filters().items()
        return " ".join(
            (f"--{name}" if value is True else f"--{name} {value}").replace("_", "-", 1)
            for name, value in parts
        )


PLACE = ("begin", "end", "host")


def asks(*, without: tuple[str, ...] = ()) -> Callable[[Callable[..., int]], Callable[..., int]]:
    """For a command with a parameter `asked: Asked`: an option for each of its fields instead."""

    def extend(command: Callable[..., int]) -> Callable[..., int]:
        hints = typing.get_type_hints(command, include_extras=True)
        fields = typing.get_type_hints(Asked, include_extras=True)
        names = [f.name for f in dataclasses.fields(Asked) if f.name not in without]
        parameters: list[inspect.Parameter] = []
        for name, parameter in inspect.signature(command).parameters.items():
            if name == "asked":
                parameters += [
                    inspect.Parameter(
                        one, parameter.kind, default=getattr(Asked, one), annotation=fields[one]
                    )
                    for one in names
                ]
            else:
                parameters.append(parameter.replace(annotation=hints[name]))

        @functools.wraps(command)
        def run(**given: object) -> int:
            asked = Asked(**{name: given.pop(name) for name in names})  # type: ignore[arg-type]  # Typer made them fit
            return command(asked=asked, **given)

        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # what Typer reads
        run.__annotations__ = {one.name: one.annotation for one in parameters}
        return run

    return extend


@dataclasses.dataclass(frozen=True)
class Chosen:
    """The samples that a command is about."""

    reader: reader.Reader
    hosts: tuple[str, ...]
    window: Window
    selection: Selection
    asked: Asked

    @property
    def title(self) -> str:
        """For a page or a picture: which hosts, from when."""
        from overnight.model import times

        return f"{', '.join(self.hosts)}, {times.format_instant(self.window.begin_us)}"


def open_reader(current: session.Session) -> reader.Reader:
    """The profiles of this data home."""
    from overnight.queries import reader
    from overnight.store import segments

    return reader.Reader(segments.Catalogue(current.home))


def window_between(extent: Window, begin: str, end: str) -> Window:
    """Return the window that two texts name; an empty one means the begin or end of `extent`."""
    from overnight.model import times
    from overnight.model.selection import Window

    now = time.time_ns() // 1000
    first = (
        times.parse_instant(begin, now_us=now, origin_us=extent.begin_us)
        if begin
        else extent.begin_us
    )
    origin = first if end.startswith("+") else extent.begin_us
    last = times.parse_instant(end, now_us=now, origin_us=origin) if end else extent.end_us
    window = Window(first, last)
    if window.end_us <= extent.begin_us or window.begin_us >= extent.end_us:
        raise errors.CannotError(
            f"nothing is recorded from {times.format_instant(first)} to {times.format_instant(last)}",
            why=f"there is {times.format_instant(extent.begin_us)} to {times.format_instant(extent.end_us)}",
            todo="choose -b and -e in there",
        )
    return window


def choose(current: session.Session, asked: Asked) -> Chosen:
    """What the options say."""
    from overnight.model.selection import Selection, parse_event
    from overnight.sources import cpu

    filters: dict[str, Any] = asked.filters()
    core = filters.pop("core", "")
    try:
        cores = cpu.parse_cpu_list(core)
    except ValueError as error:
        raise errors.UsageError(
            f"{core!r} is not a list of cores", why=str(error), todo="write it like 39 or 0-3,8"
        ) from error
    sampled = parse_event(filters.pop("perf_event", "0"))
    wanted = Selection(cores=cores, event=sampled, **filters)
    source = open_reader(current)
    names = source.hosts(asked.host or ())
    window = window_between(source.extent(names), asked.begin, asked.end)
    return Chosen(source, names, window, wanted, asked)
