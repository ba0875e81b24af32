from __future__ import annotations

import pathlib
import sys
from typing import Annotated

import typer

from overnight import errors
from overnight.interfaces.cli import session, terminal
from overnight.model.text import plural

ORDER = 70

FolderOption = Annotated[
    pathlib.Path | None,
    typer.Option(
        "--rules",
        metavar="DIR",
        exists=True,
        file_okay=False,
        help="Folder with more rules; same names override.",
    ),
]


def list_rules(
    current: session.Session,
    folder: FolderOption = None,
) -> None:
    """List the active rules, and check your own."""
    from overnight.app import rules as kernel_rules

    listed = kernel_rules.list_rules(current.home, folder)
    if current.printed_json(listed):
        return
    table = terminal.table("rule", "kind", "severity", "family", "meaning")
    for rule in listed.rules:
        slow = "" if rule.needles else " [yellow]slow: no fixed words, so every line is tried[/]"
        untested = f" [yellow]untested: {terminal.cell(rule.untested)}[/]" if rule.untested else ""
        meaning = terminal.cell(rule.meaning) + slow + untested
        table.add_row(rule.name, rule.kind, rule.severity, rule.family, meaning)
    current.console().print(table)


def try_rules(
    current: session.Session,
    source: str = session.argument(
        ..., "Log, rule file (*.toml), - for standard input, or one line.", "FILE-OR-LINE"
    ),
    folder: FolderOption = None,
) -> None:
    """Try the rules on a log or a line, or test a rule file."""
    from overnight.app import rules as kernel_rules

    if source.endswith(".toml"):
        text = _read(source).decode("utf-8", "replace")
        trial = kernel_rules.check_rule_file(text, source)
    else:
        trial = kernel_rules.try_log(current.home, _read(source), folder)
    if current.printed_json(trial):
        return
    if source.endswith(".toml"):
        terminal.echo(f"{plural(trial.lines, 'rule')} tried: all samples match")
    else:
        for match in trial.matches:
            rule = match.match.rule
            fields = " ".join(f"{name}={value}" for name, value in match.match.fields.items())
            terminal.echo(f"{match.line}: {match.text}")
            terminal.echo(f"   {rule.name}: {rule.kind}, {match.match.severity}; {fields}")
            terminal.echo(f"   {rule.meaning}")
        terminal.echo(f"{trial.matched_lines} of {plural(trial.lines, 'line')} matched by a rule")


def _read(source: str) -> bytes:
    """Read a file or standard input; anything else is a line itself."""
    if source == "-":
        return sys.stdin.buffer.read()
    path = pathlib.Path(source)
    try:
        is_file = path.is_file() or source.endswith(".toml")
    except (OSError, ValueError):  # too long for a name, or a zero byte in it
        is_file = False
    if not is_file:
        return source.replace("\n", " ").encode("utf-8", "surrogateescape")
    try:
        return path.read_bytes()
    except OSError as error:
        todo = "give the path of a log or of a rule file"
        raise errors.unreadable(source, error, todo) from error


def import_rules(
    current: session.Session,
    file: pathlib.Path = session.argument(
        ..., "Rule file, such as config/kernel-monitor.json.", "FILE"
    ),
    to: pathlib.Path | None = session.option(
        None, "Rule file. Default: in HOME/rules.", "FILE", "-o", "--file"
    ),
) -> int:
    """Import rules of node-problem-detector.

    Exits with 1 when a rule cannot be translated.
    """
    from overnight.app import rules as kernel_rules

    imported = kernel_rules.import_npd(current.home, file, to)
    if not current.printed_json(imported):
        if imported.file:
            terminal.echo(f"wrote {plural(len(imported.rules), 'rule')} to {imported.file}")
        for name, why in imported.problems:
            terminal.echo(f"not imported: {name}: {why}")
        for note in imported.notes:
            terminal.echo(f"note: {note}")
    return errors.ExitCode.FOUND if imported.problems else errors.ExitCode.DONE


register = session.group(
    "rules",
    "List, test and import kernel-log rules.",
    "Housekeeping",
    "list",
    ("list", list_rules, "-O json"),
    ("test", try_rules, "dmesg.txt"),
    ("import", import_rules, "kernel-monitor.json"),
)
