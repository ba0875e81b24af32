from __future__ import annotations

import functools
import pathlib
from typing import TYPE_CHECKING, Literal

from overnight import errors
from overnight.interfaces.cli import session, terminal
from overnight.model import sizes

if TYPE_CHECKING:
    from collections.abc import Iterator

    import rich.console

    from overnight.app import age

ORDER = 18
COUNTED = {
    "tracked": "memory cgroups tracked",
    "in_use": "in use",
    "dying": "dying",
    "dentries": "dentries",
    "negative_dentries": "of them negative",
}
STATES = {"kept": "present", "left": "incomplete: the run was killed", "running": "in progress"}


def run_age(
    current: session.Session,
    state: str = session.argument(
        "", "State from --list; uptime: note the uptime; purge: undo, then drop caches.", "STATE"
    ),
    number: int = session.argument(0, "Number to create.", "N", min=0),
    under: str | None = session.option(
        None, "Existing cgroup below which the cgroups are created.", "PATH"
    ),
    limit: str | None = session.option(
        None, "Memory limit of their parent, in addition to their own.", "SIZE"
    ),
    rate: float | None = session.option(None, "Maximum number created per second.", min=0.01),
    positive: bool = session.flag("Dentries of real, empty files."),
    folder: pathlib.Path | None = session.option(
        None, "Folder in which the dentries are created.", "DIR"
    ),
    arm: Literal["hot", "cold", "purged", "fixed"] | None = session.option(
        None, "Experiment arm to note for this host."
    ),
    note: str = session.option("", "Text to note with the arm.", "TEXT"),
    undo: bool = session.flag("Undo all changes of age on this host."),
    lists: bool = session.flag("List states, and the changes of age on this host.", "--list"),
    dry_run: bool = session.flag("Show what would be created or undone; change nothing."),
    yes: bool = session.flag("Purge without confirmation."),
) -> int:
    """Give this host the state of a long-running one.

    Every change is recorded first: --undo removes it completely, also after kill -9. Exits with 1 if the
    host does not count what was created, or if an undo is incomplete.
    """
    from overnight.app import age

    given = {"under": under, "limit": limit, "rate": rate, "folder": folder}
    options = {name: str(value) for name, value in given.items() if value is not None}
    options |= {"positive": "yes"} if positive else {}
    action = _action(state, number, options, undo=undo, lists=lists)
    if dry_run and action in ("list", "uptime"):
        raise errors.UsageError(
            f"age {action} does not take --dry-run", why="it changes nothing", todo="omit --dry-run"
        )
    if dry_run and action in ("undo", "purge"):
        report = age.plan_undo(purge=action == "purge")
    elif dry_run:
        report = age.plan(age.Request(state, number, current.home, options))
    elif action == "list":
        report = age.list_states()
    elif action == "undo":
        with current.notes().status("Undoing…"):
            report = age.undo(current.home, arm=arm, text=note)
    elif action == "uptime":
        report = age.note_uptime(current.home, arm=arm, text=note)
    elif action == "purge":
        if not yes:
            terminal.echo(
                "This drops the page, dentry and inode caches of the whole host.", err=True
            )
        session.confirm(
            yes,
            "refusing to purge",
            why="a purge drops the caches of the whole host, so everything is read from disk again",
        )
        with current.notes().status("Dropping caches…"):
            report = age.purge(current.home, arm=arm, text=note)
    else:
        request = age.Request(state, number, current.home, options, arm, note)
        with current.progress(state, number, counted=True) as on_progress:
            report = age.put_on_host(request, on_progress)
    if not current.printed_json(report):
        _show(report, current.console())
    return errors.ExitCode.DONE if report.verified else errors.ExitCode.FOUND


def _action(state: str, number: int, options: dict[str, str], *, undo: bool, lists: bool) -> str:
    """Return the action; raises UsageError for several, or for options that do not belong to it."""
    if undo + lists + bool(state) != 1:
        raise errors.UsageError(
            "STATE, --undo and --list are mutually exclusive"
            if undo or lists
            else "no state was given",
            why="one action is needed",
            todo="`overnight age memory-cgroups 15000`, `overnight age --undo`, or `overnight age --list`",
        )
    action = "undo" if undo else "list" if lists else state
    simple = action in ("undo", "list", "uptime", "purge")
    if simple and (number or options):
        extra = "a number" if number else f"--{next(iter(options))}"
        raise errors.UsageError(
            f"age {action} does not take {extra}", why="it creates nothing", todo=f"omit {extra}"
        )
    return action


def _show(report: age.Report, console: rich.console.Console) -> None:
    show = functools.partial(terminal.print_line, console)
    for line in _format_actions(report):
        show(line)
    changed = report.did not in ("list", "uptime") and not report.dry_run
    for name in sorted(report.after, key=[*COUNTED, *report.after].index):
        was = f"  (before: {report.before.get(name, 0):,})" if changed else ""
        show(f"  {report.after[name]:>10,}  {COUNTED.get(name, name.replace('_', ' '))}{was}")
    if report.dying_below:
        exact = all(parent.counted for parent in report.dying_below)
        show("dying memory cgroups below" + ("" if exact else " (estimated from their memory)"))
        for parent in report.dying_below[:5]:
            show(f"  {parent.dying:>10,}  {parent.path}")
    for remark in report.remarks:
        show(remark, "dim")
    for problem in report.problems:
        show(f"not undone: {problem}", "red")
    if report.arm is not None:
        show(f"arm: {report.arm}")
    if report.dry_run:
        show("dry run: nothing was changed", "cyan")
        return
    if report.aged is not None and not report.verified:
        show("the host does not count all of them: some were freed meanwhile", "red")
    if report.aged is not None:
        show("undo with: `overnight age --undo`", "cyan")


def _format_actions(report: age.Report) -> Iterator[str]:
    """Format what was created, undone or listed, one line each."""
    if report.aged is not None and report.dry_run:
        cost = report.aged.bytes_each
        yield (
            f"would create {report.asked:,} {report.did}, about {sizes.format_size(cost)} each, "
            f"{sizes.format_size(cost * report.asked)} in all, at {report.aged.where}"
        )
    elif report.aged is not None:
        each = sizes.format_size(report.aged.bytes_each)
        yield (
            f"created {report.aged.made:,} of {report.asked:,} {report.did} in "
            f"{report.seconds:.1f} s, about {each} each, at {report.aged.where}"
        )
    for what in report.undone:
        yield f"undone: {what}"
    for run in report.runs:
        yield f"{'would undo: ' * report.dry_run}{run.what} ({run.run}): {STATES[run.state]}"
    if report.did == "list" and not report.runs:
        yield "no aged state on this host"
    done = report.undone or report.problems or (report.dry_run and report.runs)
    if report.did == "undo" and not done:
        yield "nothing to undo"


register = session.command(run_age, "Before the night", "age memory-cgroups 15000")
