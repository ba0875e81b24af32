from __future__ import annotations

from typing import TYPE_CHECKING

from overnight import errors
from overnight.interfaces.cli import session, suggestions, terminal

if TYPE_CHECKING:
    import rich.console

    from overnight.model.checkup import Checkup

ORDER = 10
FIX_INDENT = 34  # the third column
MARKS = {
    "ok": "[green]✓ ok[/]",
    "degraded": "[yellow]! degraded[/]",
    "missing": "[red]✗ missing[/]",
}


OPTIONAL = "[dim]- optional[/]"


def doctor(
    current: session.Session,
    root: session.RootOption = session.ROOT,
) -> int:
    """Check what can be recorded here, and how to fix the rest.

    Exits with 3 when nothing can be recorded.
    """
    from overnight.app import doctor as checks

    checkup = checks.examine(checks.Surroundings(home=current.home, root=root))
    checkup = suggestions.complete_values(checkup)
    if not current.printed_json(checkup):
        _show(checkup, current.console())
    return errors.ExitCode.DONE if checkup.can_record else errors.ExitCode.CANNOT


def _show(checkup: Checkup, console: rich.console.Console) -> None:
    import rich.table

    console.print(f"[bold]{'check':20}  {'status':10}  found[/]")
    for group, checks in checkup.groups.items():
        console.print(f"\n[bold]{group}[/]")
        for check in checks:
            table = rich.table.Table.grid(padding=(0, 2))
            table.add_column(width=20, no_wrap=True)
            table.add_column(width=10, no_wrap=True)
            table.add_column(overflow="fold")
            mark = OPTIONAL if check.optional and check.fix else MARKS[check.status]
            table.add_row(check.title, mark, terminal.cell(check.found))
            if check.fix:
                table.add_row("", "", f"[dim]{terminal.cell(check.why)}[/]")
            console.print(table)
            if check.fix:
                terminal.print_line(console, f"{' ' * FIX_INDENT}→ {check.fix}", "cyan")
    console.print()
    if checkup.profiles:
        console.print("[bold]Can be recorded here:[/] signals and profiles of every core.")
    elif checkup.signals:
        console.print("[bold]Can be recorded here:[/] signals only; no stack profiles.")
    else:
        console.print("[bold red]Nothing can be recorded here.[/]")


register = session.command(doctor, "Before the night", "doctor -O json")
