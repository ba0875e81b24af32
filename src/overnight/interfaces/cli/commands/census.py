"""`overnight census`."""

from __future__ import annotations

import pathlib
from typing import TYPE_CHECKING, Annotated

import typer

from overnight import errors
from overnight.interfaces.cli import session

if TYPE_CHECKING:
    import rich.console

    from overnight.app import census as counting

__all__ = ["ORDER", "register"]

ORDER = 12
COLOURS = {"ok": "green", "warning": "yellow", "critical": "red"}


def register(cli: typer.Typer) -> None:
    """Add the command."""
    cli.command(rich_help_panel="Before the night", epilog="Example: overnight census --for 30s")(
        census
    )


def census(
    context: typer.Context,
    duration: Annotated[
        str, typer.Option("--for", metavar="DURATION", help="How long to look for growth: 10s, 5m.")
    ] = "10s",
    watch: Annotated[
        bool, typer.Option("--watch", help="Again and again, a line each time, until Ctrl-C.")
    ] = False,
    root: Annotated[
        pathlib.Path,
        typer.Option(metavar="DIR", help="Look at the host mounted here, as in a container."),
    ] = pathlib.Path("/"),
    output: session.OutputOption = session.Output.TEXT,
) -> int:
    """Count the memory cgroups that the kernel keeps, against those in use.

    Says how fast they grow, below which cgroup they hang, who makes them, and when it will hurt.
    Leaves with 1 when there are too many.
    """
    from overnight.app import census as counting
    from overnight.model import times

    current: session.Session = context.obj
    seconds = times.parse_duration(duration)
    if watch and output is session.Output.JSON:
        raise errors.UsageError(
            "--watch has no JSON", why="one document is one census", todo="leave --watch out"
        )
    while True:
        with current.notes().status(f"looking on for {times.format_duration(seconds)} …"):
            found = counting.take(
                root, seconds=seconds, history=counting.read_history(current.home, root)
            )
        if output is session.Output.JSON:
            current.print_json(found.as_json())
        else:
            console = current.console()
            console.print(_line(found), soft_wrap=True)
            if not watch:
                _show(found, console)
        if not watch:
            return errors.ExitCode.DONE if found.severity == "ok" else errors.ExitCode.FOUND


def _line(found: counting.Report) -> str:
    from overnight.model import times

    growth = ""
    if found.growth_per_hour is not None:
        over = times.format_duration(found.measured_s)
        growth = f"; {round(found.growth_per_hour):+,} an hour, measured over {over}"
    return (
        f"[{COLOURS[found.severity]}]{found.severity}[/]: {found.tracked:,} tracked against "
        f"{found.in_use:,} in use ({found.ratio:.1f}x), {found.dying:,} dying{growth}"
    )


def _show(found: counting.Report, console: rich.console.Console) -> None:
    from rich.markup import escape

    from overnight.model import times

    def say(text: str) -> None:
        console.print(escape(session.printable(text)), soft_wrap=True)

    for reason in found.reasons:
        say(f"  {reason}")
    if found.parents:
        exact = all(one.counted for one in found.parents)
        say("\nWhere they hang" + ("" if exact else " (estimated from what they hold)"))
        for parent in found.parents:
            bounds = "" if parent.counted else f"  ({parent.at_least:,} to {parent.at_most:,})"
            say(f"  {parent.dying:>9,}  {parent.path}{bounds}")
    located = sum(one.dying for one in found.parents)
    if located < found.dying:
        say(f"  {found.dying - located:>9,}  not located")
    if found.creators:
        say("\nBorn and died while we looked")
        for creator in found.creators:
            share = "" if creator.explains is None else f"  {creator.explains:.0%} of the growth"
            unit = f"  {creator.unit}" if creator.unit != creator.cgroup else ""
            say(
                f"  {creator.births_per_hour:>9,.0f}/h born, {creator.deaths_per_hour:,.0f}/h died, "
                f"{creator.short_lived} short-lived  {creator.cgroup}{unit}{share}"
            )
    say(f"\nA read of the root's statistics takes {found.stat_read_us / 1000:.1f} ms")
    for hours, what in (
        (found.hours_to_critical, "10,000 dying"),
        (found.hours_to_watchdog, "the 5 s of a network driver's watchdog"),
    ):
        if hours:
            say(f"At this rate {what} in {times.format_duration(hours * 3600)}")
