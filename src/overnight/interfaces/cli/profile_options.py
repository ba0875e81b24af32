"""Options that all commands about profiles share: hosts, window, filters, marks."""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Callable
from typing import Annotated, Any

import typer

from overnight.app import windows
from overnight.interfaces.cli import local_time, session

Query = windows.Query

PANEL = "Selection"


def _option(metavar: str | None, text: str, *names: str) -> Any:
    read = local_time.read if metavar == "TIME" else None
    return typer.Option(*names, metavar=metavar, rich_help_panel=PANEL, help=text, callback=read)


BEGIN = (
    "Begin: 22:41, 'yesterday 03:00', ISO, epoch, '3m ago', or 10m20s into the recording; UTC "
    "unless a zone follows."
)
BeginOption = Annotated[str, _option("TIME", BEGIN, "-b", "--begin")]
EndOption = Annotated[str, _option("TIME", "End; +30s counts from -b.", "-e", "--end")]
HostOption = Annotated[list[str] | None, _option("NAME", "Host; default: all (repeatable).")]
CoreOption = Annotated[str, _option("LIST", "Cores: 39 or 0-3,8.")]
LimitOption = Annotated[int, typer.Option(min=1, max=100_000, help="Number of rows.")]
MarkOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="TIME[=TEXT]", help="Instant to mark (repeatable).", callback=local_time.read
    ),
]

# A field of windows.Query each, in the order of --help.
OPTIONS = {
    "begin": BeginOption,
    "end": EndOption,
    "host": HostOption,
    "core": CoreOption,
    "process": Annotated[str, _option("REGEX", "Process name.")],
    "thread": Annotated[str, _option("REGEX", "Thread name.")],
    "function": Annotated[str, _option("REGEX", "Function anywhere on the stack.")],
    "unit": Annotated[str, _option("REGEX", "systemd unit or cgroup.")],
    "side": Annotated[str, _option("SIDE", "Mode the code ran in: kernel or user.")],
    "idle": Annotated[bool, _option(None, "Include idle samples.", "--idle")],
    "perf_event": Annotated[str, _option("NAME", "Sampled event, if a capture has several.")],
}


def takes_query(*, without: tuple[str, ...] = ()) -> Callable[[session.Command], session.Command]:
    """Replace a command's parameter `query: Query` by one option for each of its fields."""
    fields = [name for name in OPTIONS if name not in without]
    defaults = {field: getattr(windows.Query, field) for field in fields} | {"host": None}
    options = [session.parameter(field, OPTIONS[field], defaults[field]) for field in fields]

    def extend(command: session.Command) -> session.Command:
        def run(**values: Any) -> int | None:
            chosen = {field: values.pop(field) for field in fields}
            chosen["host"] = tuple(chosen["host"] or ())
            return command(query=windows.Query(**chosen), **values)

        return session.with_parameters(run, command, {"query": options})

    return extend


def find_samples(current: session.Session, query: Query) -> tuple[pathlib.Path, Query]:
    """Return the data home with the samples of a query, and the query with its window there."""
    found = current.evidence(hosts=query.host, begin=query.begin, end=query.end)
    return found.home, dataclasses.replace(query, begin=found.begin, end=found.end)
