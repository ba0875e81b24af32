"""Options that all commands about profiles share: hosts, window, filters, marks."""

from __future__ import annotations

import functools
import inspect
import typing
from collections.abc import Callable
from typing import Annotated, Any

import typer

from overnight.app import windows

__all__ = ["BeginOption", "EndOption", "MarkOption", "Query", "takes_query"]

Query = windows.Query

PANEL = "Which samples"


def _option(kind: Any, *names: str, metavar: str | None, text: str) -> Any:
    return Annotated[kind, typer.Option(*names, metavar=metavar, rich_help_panel=PANEL, help=text)]


BeginOption = Annotated[
    str,
    typer.Option(
        "-b", "--begin", metavar="TIME", rich_help_panel=PANEL,
        help="Begin: ISO (UTC), epoch, '3m ago', or 10m20s into the recording.",
    ),
]  # fmt: skip
EndOption = Annotated[
    str,
    typer.Option(
        "-e", "--end", metavar="TIME", rich_help_panel=PANEL, help="End; +30s counts from -b."
    ),
]
MarkOption = Annotated[
    list[str] | None,
    typer.Option("--mark", metavar="TIME[=TEXT]", help="Instant to mark (repeatable)."),
]

# A field of windows.Query each, in the order of --help.
OPTIONS = {
    "begin": BeginOption,
    "end": EndOption,
    "host": _option(
        list[str] | None, "--host", metavar="NAME", text="Host; default: all (repeatable)."
    ),
    "core": _option(str, "--core", metavar="LIST", text="Cores: 39 or 0-3,8."),
    "process": _option(str, "--process", metavar="REGEX", text="Process name."),
    "thread": _option(str, "--thread", metavar="REGEX", text="Thread name."),
    "function": _option(str, "--function", metavar="REGEX", text="Function anywhere on the stack."),
    "unit": _option(str, "--unit", metavar="REGEX", text="systemd unit or cgroup."),
    "side": _option(str, "--side", metavar="SIDE", text="Mode the code ran in: kernel or user."),
    "idle": _option(bool, "--idle", metavar=None, text="Include idle samples."),
    "perf_event": _option(
        str, "--perf-event", metavar="NAME", text="Sampled event, if a capture has several."
    ),
}


def takes_query(
    *, without: tuple[str, ...] = ()
) -> Callable[[Callable[..., int]], Callable[..., int]]:
    """Replace a command's parameter `query: Query` by one option for each of its fields."""
    fields = [name for name in OPTIONS if name not in without]

    def extend(command: Callable[..., int]) -> Callable[..., int]:
        hints = typing.get_type_hints(command, include_extras=True)
        parameters: list[inspect.Parameter] = []
        for name, parameter in inspect.signature(command).parameters.items():
            if name != "query":
                parameters.append(parameter.replace(annotation=hints[name]))
                continue
            for field in fields:
                default = None if field == "host" else getattr(windows.Query, field)
                parameters.append(
                    inspect.Parameter(
                        field, parameter.kind, default=default, annotation=OPTIONS[field]
                    )
                )

        @functools.wraps(command)
        def run(**values: Any) -> int:
            chosen = {field: values.pop(field) for field in fields}
            chosen["host"] = tuple(chosen["host"] or ())
            return command(query=windows.Query(**chosen), **values)

        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # what Typer reads
        run.__annotations__ = {each.name: each.annotation for each in parameters}
        return run

    return extend
