from __future__ import annotations

import functools
import pathlib
from typing import TYPE_CHECKING

from overnight import errors
from overnight.interfaces.cli import session, terminal
from overnight.model.text import plural

if TYPE_CHECKING:
    import rich.console

    from overnight.app.audit import fixes
    from overnight.model.audit import Report

ORDER = 15
COLOURS = {"high": "red", "medium": "yellow", "low": "dim"}
MAX_GAPS = 20
REFUSAL = "refusing to change the host"


def register(cli: session.CommandLine) -> None:
    session.add_command(cli, audit, "Before the night", "audit --root /mnt/image --fix packer")


def audit(
    current: session.Session,
    root: pathlib.Path = session.option(
        pathlib.Path("/"), "Root of an unpacked image; links never lead out of it.", "DIR"
    ),
    orchestrator: str | None = session.option(
        None, "Orchestrator: kubernetes, ecs, nomad, slurm.", "NAME"
    ),
    cloud: str | None = session.option(None, "Cloud: aws, gcp, azure, oracle.", "NAME"),
    fix: str | None = session.option(
        None, "Print the fix as preset, shell, packer or cloud-init.", "FORM"
    ),
    apply: bool = session.flag("Disable and mask units, after confirmation."),
    undo: bool = session.flag("Undo --apply."),
    yes: bool = session.flag("Skip the confirmation."),
) -> int:
    """Find units that do not belong here, loop, or cannot start.

    Changes nothing without --apply. Exits with 1 when a finding needs action.
    """
    from overnight.app import audit as auditing
    from overnight.app.audit import fixes

    if (fix is not None) + apply + undo > 1:
        raise errors.UsageError(
            "--fix, --apply and --undo are mutually exclusive",
            why="one prints the fix, one applies it, one reverts it",
            todo="give one of them",
        )
    form = None if fix is None else _form(fix)
    if undo:
        return _undo(current, root, yes)
    report = auditing.examine(root, orchestrator=orchestrator, cloud=cloud)
    if apply:
        return _apply(current, report, root, yes)
    if form is not None:
        terminal.echo(fixes.write_fix(report, form), nl=False, keep="\n\t")
    elif not current.printed_json(report):
        _show(report, current.console())
    return errors.ExitCode.FOUND if report.bad else errors.ExitCode.DONE


def _form(text: str) -> fixes.Form:
    from overnight.app.audit import fixes

    try:
        return fixes.Form(text)
    except ValueError:
        raise errors.UsageError(
            f"--fix {text} is not supported",
            why="the fix can be printed for some tools only",
            todo=f"one of: {', '.join(fixes.Form)}",
        ) from None


def _apply(current: session.Session, report: Report, root: pathlib.Path, yes: bool) -> int:
    from overnight.app.audit import changes

    steps, cannot = changes.plan(report, root)
    terminal.echo("changes:" if steps else "nothing to change", err=True)
    for line in (*map(str, steps), *cannot):
        terminal.echo(f"  {line}", err=True)
    if steps:
        session.confirm(yes, REFUSAL, why="the change needs confirmation")
        record = changes.apply(steps, root, current.home)
        terminal.echo(f"done; revert with: overnight audit --undo ({record})", err=True)
        if report.live:
            terminal.echo("units that are running keep running until stopped or rebooted", err=True)
    current.printed_json(changes.Change(root, "applied", steps, cannot))
    return errors.ExitCode.DONE


def _undo(current: session.Session, root: pathlib.Path, yes: bool) -> int:
    from overnight.app.audit import changes

    session.confirm(yes, REFUSAL, why="the change needs confirmation")
    undone, left = changes.undo(root, current.home)
    for line in (*(f"undone: {step}" for step in undone), *left):
        terminal.echo(line, err=True)
    current.printed_json(changes.Change(root, "undone", undone, left))
    return errors.ExitCode.DONE


def _show(report: Report, console: rich.console.Console) -> None:
    show = functools.partial(terminal.print_line, console)
    show(f"{plural(report.units, 'unit')}, {report.enabled} enabled, in {report.root}")
    for kind, owner in (("orchestrator", report.orchestrator), ("cloud", report.cloud)):
        if owner.name:
            show(f"{kind}: {owner.title}" + (f" (--{kind})" if owner.said else ""))
            for evidence in owner.evidence[:3]:
                show(f"    {evidence.place}: {evidence.says}", "dim")
        else:
            signs = f"; signs of {', '.join(owner.others)}" if owner.others else ""
            show(f"{kind}: unknown{signs}")
    for finding in report.findings:
        console.print()
        show(f"{finding.risk}: {finding.unit}: {finding.what}", f"bold {COLOURS[finding.risk]}")
        show(f"  why: {finding.why}")
        for evidence in finding.evidence:
            show(f"  {evidence.place}: {evidence.says}", "dim")
        show(f"  fix: {finding.fix}", "cyan")
    console.print()
    for what, why in report.gaps[:MAX_GAPS]:
        show(f"not examined: {what}: {why}", "yellow")
    if len(report.gaps) > MAX_GAPS:
        show(f"not examined: {len(report.gaps) - MAX_GAPS} more, in -O json", "yellow")
    bad = sum(finding.risk != "low" for finding in report.findings)
    count = f"{plural(len(report.findings), 'finding')}, {bad} of medium or high risk"
    show(count if report.findings else "no findings", "bold")
