"""`overnight age`."""

from __future__ import annotations

import contextlib
import enum
import pathlib
import signal
from typing import TYPE_CHECKING, Annotated

import typer

from overnight import errors
from overnight.interfaces.cli import session

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import rich.console

    from overnight.app import age

__all__ = ["ORDER", "register"]

ORDER = 18
COUNTED = {
    "tracked": "memory cgroups tracked",
    "in_use": "in use",
    "dying": "dying",
    "dentries": "dentries",
    "negative_dentries": "of them negative",
}
STATES = {"kept": "there", "left": "cut off half-way", "running": "being made now; left alone"}


class ArmName(enum.StrEnum):
    """In which arm of an experiment the host is."""

    HOT = "hot"
    COLD = "cold"
    PURGED = "purged"


def register(cli: typer.Typer) -> None:
    """Add the command."""
    cli.command(
        "age",
        rich_help_panel="Before the night",
        epilog="Example: overnight age memory-cgroups 15000",
    )(run_age)


def run_age(
    context: typer.Context,
    state: Annotated[
        str,
        typer.Argument(
            metavar="STATE",
            help="As --list shows them; or uptime, to note it; or purge, to drop what can be.",
        ),
    ] = "",
    number: Annotated[int, typer.Argument(metavar="N", min=0, help="How many.")] = 0,
    under: Annotated[
        str | None,
        typer.Option(metavar="PATH", help="Hang the parent of the cgroups below this one."),
    ] = None,
    limit: Annotated[
        str | None,
        typer.Option(metavar="SIZE", help="Limit their parent to what they hold and so much more."),
    ] = None,
    rate: Annotated[
        float | None, typer.Option(min=0.01, help="So many a second at most; else all at once.")
    ] = None,
    positive: Annotated[
        bool, typer.Option("--positive", help="Dentries of real, empty files.")
    ] = False,
    folder: Annotated[
        pathlib.Path | None,
        typer.Option(metavar="DIR", help="Where the folder of the dentries is made."),
    ] = None,
    arm: Annotated[
        ArmName | None, typer.Option(help="Note that the host is in this arm now.")
    ] = None,
    note: Annotated[str, typer.Option(metavar="TEXT", help="Noted with the arm.")] = "",
    undo: Annotated[bool, typer.Option("--undo", help="Take off all that age put here.")] = False,
    lists: Annotated[bool, typer.Option("--list", help="Show what age put here.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask before a purge.")] = False,
    output: session.OutputOption = session.Output.TEXT,
) -> int:
    """Put state on this host as a week of leaking would, and take it off again.

    Everything is written down before it is made: --undo takes it off completely, also after kill -9.
    Ends with 1 when the host does not count what was made, or something could not be taken off.
    """
    from overnight.app import age

    current: session.Session = context.obj
    said = {"under": under, "limit": limit, "rate": rate, "folder": folder}
    options = {name: str(value) for name, value in said.items() if value is not None}
    options |= {"positive": "yes"} if positive else {}
    action = _action(state, number, options, undo=undo, lists=lists)
    if action == "list":
        report = age.listing()
    elif action == "undo":
        with current.notes().status("taking it off …"):
            report = age.undo(current.home, arm=arm, text=note)
    elif action == "uptime":
        report = age.note(current.home, arm=arm, text=note)
    elif action == "purge":
        _confirm(yes)
        with current.notes().status("dropping caches …"):
            report = age.purge(current.home, arm=arm, text=note)
    else:
        report = _make(current, state, number, options, arm, note)
    if output is session.Output.JSON:
        current.print_json(report.as_json())
    else:
        _show(report, current.console())
    return errors.ExitCode.DONE if report.verified else errors.ExitCode.FOUND


def _action(state: str, number: int, options: dict[str, str], *, undo: bool, lists: bool) -> str:
    """What is asked for: one thing, with what belongs to it."""
    if undo + lists + bool(state) != 1:
        raise errors.UsageError(
            "one thing at a time" if undo or lists else "what is to be put on the host?",
            why="a state is put on, or all is taken off, or listed",
            todo="overnight age memory-cgroups 15000, or age --undo, or age --list",
        )
    action = "undo" if undo else "list" if lists else state
    simple = action in ("undo", "list", "uptime", "purge")
    if simple and (number or options):
        extra = "a number" if number else f"--{next(iter(options))}"
        raise errors.UsageError(
            f"age {action} does not take {extra}",
            why="nothing is made by it",
            todo="leave it out",
        )
    if not simple and not number:
        raise errors.UsageError(
            f"how many {action}?", why="no number was given", todo=f"overnight age {action} 15000"
        )
    return action


def _make(
    current: session.Session,
    state: str,
    number: int,
    options: dict[str, str],
    arm: str | None,
    note: str,
) -> age.Report:
    from overnight.app import age
    from overnight.load import host_state as load

    with _ended_by_signals(), _progress(current, state, number) as tell:
        request = load.Request(number, current.home, options, tell=tell)
        return age.put_on_host(state, request, arm=arm, text=note)


@contextlib.contextmanager
def _ended_by_signals() -> Iterator[None]:
    """SIGTERM and SIGHUP end it as Ctrl-C does: with everything undone."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    numbers = (signal.SIGTERM, signal.SIGHUP)
    before = [signal.signal(number, interrupt) for number in numbers]
    try:
        yield
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)


@contextlib.contextmanager
def _progress(
    current: session.Session, state: str, number: int
) -> Iterator[Callable[[int, str], None]]:
    """A bar on a terminal; nothing in a pipe."""
    import rich.progress

    with rich.progress.Progress(
        rich.progress.TextColumn(state, markup=False),
        rich.progress.BarColumn(bar_width=20),
        rich.progress.MofNCompleteColumn(),
        rich.progress.TextColumn("{task.description}"),
        console=current.notes(),
        transient=True,
        disable=not current.notes().is_terminal,
    ) as bar:
        task = bar.add_task("", total=number)
        yield lambda done, text: bar.update(task, completed=done, description=text)


def _confirm(yes: bool) -> None:
    import sys

    if yes:
        return
    if not sys.stdin.isatty():
        raise errors.UsageError(
            "a purge drops the caches of the whole host, and nobody is there to ask",
            why="everything that runs here reads from disk again; standard input is no terminal",
            todo="add --yes",
        )
    typer.echo("this drops the page, dentry and inode caches of the whole host", err=True)
    typer.confirm("go on?", abort=True, err=True)


def _show(report: age.Report, console: rich.console.Console) -> None:
    from rich.markup import escape

    def say(text: str, style: str = "") -> None:
        safe = escape(session.printable(text).replace("\n", " "))
        console.print(f"[{style}]{safe}[/]" if style else safe, soft_wrap=True)

    for line in _done(report):
        say(line)
    changed = report.did not in ("list", "uptime")
    for name in sorted(report.after, key=[*COUNTED, *report.after].index):
        was = f"  (before: {report.before.get(name, 0):,})" if changed else ""
        say(f"  {report.after[name]:>10,}  {COUNTED.get(name, name.replace('_', ' '))}{was}")
    if report.hang:
        exact = all(one.counted for one in report.hang)
        say("where they hang" + ("" if exact else " (estimated from what they hold)"))
        for parent in report.hang[:5]:
            say(f"  {parent.dying:>10,}  {parent.path}")
    for remark in report.remarks:
        say(remark, "dim")
    for problem in report.problems:
        say(f"could not be taken off: {problem}", "red")
    if report.arm is not None:
        say(f"arm: {report.arm}")
    if report.aged is not None and not report.verified:
        say("the host does not count what was made: it was freed meanwhile, or kept by nothing", "red")  # fmt: skip
    if report.aged is not None:
        say("overnight age --undo takes it off", "cyan")


def _done(report: age.Report) -> Iterator[str]:
    """What was made, taken off or found, a line each."""
    from overnight.model import sizes

    if report.aged is not None:
        each = sizes.format_size(report.aged.bytes_each)
        yield (
            f"{report.aged.made:,} of {report.asked:,} {report.did} made in "
            f"{report.seconds:.1f} s, about {each} each, at {report.aged.where}"
        )
    for what in report.undone:
        yield f"taken off: {what}"
    for one in report.runs:
        yield f"{one.what} ({one.run}): {STATES[one.state]}"
    if report.did == "list" and not report.runs:
        yield "age put nothing here"
    if report.did == "undo" and not report.undone and not report.problems:
        yield "there was nothing to take off"
