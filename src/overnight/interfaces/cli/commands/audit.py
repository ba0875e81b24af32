"""`overnight audit`."""

from __future__ import annotations

import pathlib
from typing import TYPE_CHECKING, Annotated

import typer

from overnight import errors
from overnight.interfaces.cli import session

if TYPE_CHECKING:
    import rich.console

    from overnight.app.audit import fixes
    from overnight.model.audit import Report

__all__ = ["ORDER", "register"]

ORDER = 15
COLOURS = {"high": "red", "medium": "yellow", "low": "dim"}


def register(cli: typer.Typer) -> None:
    """Add the command."""
    cli.command(
        rich_help_panel="Before the night",
        epilog="Example: overnight audit --root /mnt/image --fix packer",
    )(audit)


def audit(
    context: typer.Context,
    root: Annotated[
        pathlib.Path,
        typer.Option(metavar="DIR", help="An unpacked image; its links never lead out of it."),
    ] = pathlib.Path("/"),
    orchestrator: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Whose host this is: kubernetes, ecs, nomad, slurm."),
    ] = None,
    cloud: Annotated[
        str | None, typer.Option(metavar="NAME", help="Where it runs: aws, gcp, azure, oracle.")
    ] = None,
    fix: Annotated[
        str | None,
        typer.Option(metavar="FORM", help="Print the fix: preset, shell, packer or cloud-init."),
    ] = None,
    apply: Annotated[
        bool, typer.Option("--apply", help="Disable and mask what should be off, after asking.")
    ] = False,
    undo: Annotated[bool, typer.Option("--undo", help="Take back what --apply did here.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    output: session.OutputOption = session.Output.TEXT,
) -> int:
    """Find units that do not belong on this host, loop for ever, or can never start.

    Changes nothing without --apply. Ends with 1 when something bad is found.
    """
    from overnight.app import audit as auditing
    from overnight.app.audit import fixes

    current: session.Session = context.obj
    if (fix is not None) + apply + undo > 1:
        raise errors.UsageError(
            "--fix, --apply and --undo do not go together",
            why="one prints, one changes, one takes back",
            todo="give one of them",
        )
    form = None if fix is None else _form(fix)
    if undo:
        return _undo(current, root, yes, output)
    report = auditing.examine(root, orchestrator=orchestrator, cloud=cloud)
    if form is not None:
        typer.echo(session.printable(fixes.write_fix(report, form)), nl=False)
    elif output is session.Output.JSON and not apply:
        current.print_json(report.as_json())
    elif not apply:
        _show(report, current.console())
    if apply:
        return _apply(current, report, root, yes, output)
    return errors.ExitCode.FOUND if report.bad else errors.ExitCode.DONE


def _form(text: str) -> fixes.Form:
    from overnight.app.audit import fixes

    try:
        return fixes.Form(text)
    except ValueError:
        raise errors.UsageError(
            f"{text!r} is not a form of a fix",
            why="the fix can be printed for some tools alone",
            todo=f"one of: {', '.join(fixes.Form)}",
        ) from None


def _apply(
    current: session.Session,
    report: Report,
    root: pathlib.Path,
    yes: bool,
    output: session.Output,
) -> int:
    from overnight.app.audit import changes

    steps, cannot = changes.plan(report, root)
    typer.echo("this will be changed:" if steps else "there is nothing to change", err=True)
    for line in (*map(str, steps), *cannot):
        typer.echo(f"  {session.printable(line)}", err=True)
    if steps:
        _confirm(yes)
        record = changes.apply(steps, root, current.home)
        typer.echo(f"done; overnight audit --undo takes it back ({record})", err=True)
        if report.live:
            typer.echo("what runs goes on until it is stopped, or the host reboots", err=True)
    _tell(current, "applied", root, [str(step) for step in steps], list(cannot), output)
    return errors.ExitCode.DONE


def _undo(current: session.Session, root: pathlib.Path, yes: bool, output: session.Output) -> int:
    from overnight.app.audit import changes

    _confirm(yes)
    taken, left = changes.undo(root, current.home)
    for line in (*(f"taken back: {step}" for step in taken), *left):
        typer.echo(session.printable(line), err=True)
    _tell(current, "undone", root, [str(step) for step in taken], list(left), output)
    return errors.ExitCode.DONE


def _tell(
    current: session.Session,
    done: str,
    root: pathlib.Path,
    steps: list[str],
    left: list[str],
    output: session.Output,
) -> None:
    if output is session.Output.JSON:
        current.print_json(
            {
                "schema": "overnight.audit-change/1",
                "root": str(root),
                "done": done,
                "steps": steps,
                "left": left,
            }
        )


def _confirm(yes: bool) -> None:
    import sys

    if yes:
        return
    if not sys.stdin.isatty():
        raise errors.UsageError(
            "this changes the host, and nobody is there to ask",
            why="standard input is no terminal",
            todo="add --yes",
        )
    typer.confirm("go on?", abort=True, err=True)


def _show(report: Report, console: rich.console.Console) -> None:
    from rich.markup import escape

    def say(text: str, style: str = "") -> None:
        safe = escape(session.printable(text).replace("\n", " "))
        console.print(f"[{style}]{safe}[/]" if style else safe, soft_wrap=True)

    say(f"{report.units} units, {report.enabled} enabled, in {report.root}")
    for kind, owner in (("orchestrator", report.orchestrator), ("cloud", report.cloud)):
        if owner.name:
            say(f"{kind}: {owner.title}" + (", as you say" if owner.said else ""))
            for evidence in owner.evidence[:3]:
                say(f"    {evidence.place}: {evidence.says}", "dim")
        else:
            say(
                f"{kind}: not known"
                + (f"; something of {', '.join(owner.others)} is here" if owner.others else "")
            )
    for one in report.findings:
        console.print()
        say(f"{one.risk}: {one.unit}: {one.what}", f"bold {COLOURS[one.risk]}")
        say(f"  why: {one.why}")
        for evidence in one.evidence:
            say(f"  {evidence.place}: {evidence.says}", "dim")
        say(f"  fix: {one.fix}", "cyan")
    console.print()
    for what, why in report.gaps[:20]:
        say(f"not looked at: {what}: {why}", "yellow")
    if len(report.gaps) > 20:
        say(f"not looked at: {len(report.gaps) - 20} more, in -O json", "yellow")
    bad = sum(one.risk != "low" for one in report.findings)
    say(
        f"{len(report.findings)} findings, {bad} of them to act on"
        if report.findings
        else "nothing found",
        "bold",
    )
