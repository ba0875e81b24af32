"""`overnight drift`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from overnight import errors
from overnight.interfaces.cli import session

if TYPE_CHECKING:
    import rich.console

    from overnight.detectors.fleet import drift as model

__all__ = ["ORDER", "register"]

ORDER = 36
MOST_ITEMS = 5


def register(cli: typer.Typer) -> None:
    """Add the command."""
    cli.command(
        rich_help_panel="In the morning",
        epilog="Example: overnight drift --kind net.driver_reset",
    )(drift)


def drift(
    context: typer.Context,
    sick: Annotated[
        list[str] | None,
        typer.Option("--sick", metavar="HOST", help="A sick host; again for more."),
    ] = None,
    kind: Annotated[
        str,
        typer.Option(
            "--kind",
            metavar="KIND",
            help="Sick is who had such an event: net.driver_reset, or net. for all of net.",
        ),
    ] = "",
    check: Annotated[
        bool, typer.Option("--check", help="End with 1 when something tells them apart.")
    ] = False,
    limit: Annotated[int, typer.Option("--limit", min=1, help="How many rows.")] = 20,
    output: session.OutputOption = session.Output.TEXT,
) -> int:
    """What sick hosts have and healthy ones do not, or the other way round.

    Compares the snapshots of a data home with many hosts. Without --sick and --kind: sick is who had
    a critical event.
    """
    from overnight.app import drift as drifting

    current: session.Session = context.obj
    if sick and kind:
        raise errors.UsageError(
            "--sick and --kind at once",
            why="each says which hosts are sick",
            todo="say one of them",
        )
    made, problems = drifting.compare(current.home, sick or (), kind)
    if output is session.Output.JSON:
        current.print_json(drifting.as_json(made, problems, limit))
    else:
        _show(made, problems, limit, current.console())
    return errors.ExitCode.FOUND if check and made.standing else errors.ExitCode.DONE


def _show(
    made: model.Comparison, problems: tuple[str, ...], limit: int, console: rich.console.Console
) -> None:
    def say(text: str, style: str = "") -> None:
        line = session.printable(text).replace("\n", " ")
        console.print(line, style=style or None, markup=False, soft_wrap=True)

    say(f"{len(made.sick)} sick hosts: {_names(made.sick)}")
    say(f"{len(made.healthy)} healthy hosts: {_names(made.healthy)}")
    if made.without:
        say(f"without a snapshot: {_names(made.without)}", "yellow")
    for one in made.differences[:limit]:
        column = one.column
        say(
            f"{column.sick_with}/{column.sick} against {column.healthy_with}/{column.healthy}  {one.name}",
            "bold red" if one.stands else "",
        )
        say(
            f"    log-odds at least {column.low:.2f}, lift {column.lift:.1f}, p {column.p:.2g}, q {column.q:.2g}, "
            f"p among all {column.p_max:.2g}",
            "dim",
        )
        for item, present in one.items[1 : MOST_ITEMS + 1]:
            say(f"    goes with it: {'' if present else 'no '}{item}", "dim")
        if len(one.items) > MOST_ITEMS + 1:
            say(f"    and {len(one.items) - MOST_ITEMS - 1} more, in -O json", "dim")
    if len(made.differences) > limit:
        say(f"{len(made.differences) - limit} more differ; --limit shows them")
    for problem in problems:
        say(f"not read: {problem}", "yellow")
    if made.why_not:
        say(made.why_not, "bold")
    elif made.standing:
        say(f"{len(made.standing)} of {made.columns} differences are no chance", "bold")
    else:
        say(
            f"nothing tells them apart: {made.columns} differences, each as likely by chance (the smallest "
            f"p attainable here: {made.smallest_p:.2g})",
            "bold",
        )


def _names(hosts: tuple[str, ...]) -> str:
    return ", ".join(hosts[:10]) + (f" and {len(hosts) - 10} more" if len(hosts) > 10 else "")
