from __future__ import annotations

import functools
import pathlib
from typing import TYPE_CHECKING

from overnight import errors
from overnight.interfaces.cli import local_time, session, terminal
from overnight.model import times
from overnight.model.text import plural

if TYPE_CHECKING:
    import rich.console

    from overnight.app.audit import fixes
    from overnight.model.audit import Report

ORDER = 15
COLOURS = {"high": "red", "medium": "yellow", "low": "dim"}
MAX_GAPS = 20
REFUSAL = "refusing to change the host"


def audit(
    current: session.Session,
    root: pathlib.Path = session.option(
        pathlib.Path("/"), "Root of an unpacked image; links never lead out of it.", "DIR"
    ),
    host: str = session.option("", "Host of the server, instead of this one.", "NAME"),
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

    Changes nothing without --apply. With --host, shows the last audit that the host reported to the server. Exits
    with 1 when a finding needs action.
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
    is_reported = bool(host or current.chosen_server)  # OVERNIGHT_SERVER alone: this machine
    if is_reported:
        report = _ask_server(current, host)
    elif undo:
        return _undo(current, root, yes)
    else:
        report = auditing.examine(root, orchestrator=orchestrator, cloud=cloud)
    if apply:
        return _apply(current, report, root, yes)
    if form is not None:
        terminal.echo(fixes.write_fix(report, form), nl=False, keep="\n\t")
    elif not current.printed_json(report):
        _show(report, current.console(), is_reported=is_reported)
    return errors.ExitCode.FOUND if report.bad else errors.ExitCode.DONE


def _ask_server(current: session.Session, host: str) -> Report:
    if current.server is None:
        raise errors.UsageError(
            f"--host {host} needs a server",
            why="without one, only this machine is examined",
            todo="add --server URL, or set OVERNIGHT_SERVER",
        )
    others = [name for name, *_ in current.given_options() if name not in ("--host", "--output")]
    if others:
        raise errors.UsageError(
            f"{others[0]} cannot be combined with --server or --host",
            why="a server has the last audit of a host, not its files",
            todo="repeat it on the host, without --host",
        )
    return current.server.read_audit(host)


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
        terminal.echo(f"done; revert with: `overnight audit --undo` ({record})", err=True)
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


def _show(report: Report, console: rich.console.Console, *, is_reported: bool) -> None:
    show = functools.partial(terminal.print_line, console)
    where = f"on {report.host}" if is_reported else f"in {report.root}"
    show(f"{plural(report.units, 'unit')}, {report.enabled} enabled, {where}")
    if is_reported:
        age_us = max(0, times.now_us() - report.examined_us)
        age = times.format_duration(age_us // times.SECOND_US)
        show(f"examined {local_time.format_instant(report.examined_us)}, {age} ago")
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
    for gap in report.gaps[:MAX_GAPS]:
        show(f"not examined: {gap.what}: {gap.why}", "yellow")
    if len(report.gaps) > MAX_GAPS:
        show(f"not examined: {len(report.gaps) - MAX_GAPS} more, in -O json", "yellow")
    bad = sum(finding.risk != "low" for finding in report.findings)
    count = f"{plural(len(report.findings), 'finding')}, {bad} of medium or high risk"
    show(count if report.findings else "no findings", "bold")


register = session.command(
    audit, "Before the night", "audit --root /mnt/image --fix packer", scope=session.Scope.SERVER
)
