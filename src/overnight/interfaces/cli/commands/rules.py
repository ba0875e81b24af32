"""`overnight rules`."""

from __future__ import annotations

import pathlib
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from overnight import errors
from overnight.interfaces.cli import session

if TYPE_CHECKING:
    from overnight.app import rules as using

__all__ = ["ORDER", "register"]

ORDER = 70

FolderOption = Annotated[
    pathlib.Path | None,
    typer.Option(
        "--rules",
        metavar="DIR",
        exists=True,
        file_okay=False,
        help="Rules of this folder too; they add, or override by name.",
    ),
]


def register(cli: typer.Typer) -> None:
    """Add the commands."""
    group = typer.Typer(no_args_is_help=True)
    group.command("list", epilog="Example: overnight rules list -O json")(list_rules)
    group.command("test", epilog="Example: overnight rules test dmesg.txt")(try_rules)
    group.command("import", epilog="Example: overnight rules import kernel-monitor.json")(
        import_rules
    )
    cli.add_typer(
        group,
        name="rules",
        rich_help_panel="Housekeeping",
        help="Rules that make events of kernel-log lines.",
        epilog="Example: overnight rules list",
    )


def list_rules(
    context: typer.Context,
    folder: FolderOption = None,
    output: session.OutputOption = session.Output.TEXT,
) -> int:
    """List the rules in force, and check those that are yours."""
    from overnight.app import rules as using

    current: session.Session = context.obj
    rules = using.load(current.home, folder)
    if output is session.Output.JSON:
        listed = [
            {
                "name": rule.name,
                "kind": rule.kind,
                "severity": rule.severity,
                "confidence": rule.confidence,
                "meaning": rule.meaning,
                "family": rule.family,
                "origin": rule.origin,
                "regex": rule.regex,
                "needles": list(rule.needles),
                "incident": rule.incident,
                "fields": dict(rule.fields),
                "tested": not rule.untested,
            }
            for rule in rules
        ]
        current.print_json({"schema": "overnight.rules/1", "rules": listed})
        return errors.ExitCode.DONE
    import rich.table
    from rich.markup import escape

    table = rich.table.Table("rule", "kind", "severity", "family", "meaning", box=None)
    for rule in rules:
        remarks = "" if rule.needles else " [yellow]tried on every line: it holds no fixed words[/]"
        remarks += f" [yellow]untested: {escape(rule.untested)}[/]" if rule.untested else ""
        table.add_row(
            rule.name, rule.kind, rule.severity, rule.family, escape(rule.meaning) + remarks
        )
    current.console().print(table)
    return errors.ExitCode.DONE


def try_rules(
    context: typer.Context,
    what: Annotated[
        str,
        typer.Argument(
            metavar="FILE-OR-LINE", help="A log, a rule file (*.toml), - for a pipe, or one line."
        ),
    ],
    folder: FolderOption = None,
    output: session.OutputOption = session.Output.TEXT,
) -> int:
    """Say what the rules see in a log, or in one line; or run the samples of a rule file."""
    from overnight.app import rules as using
    from overnight.sources.kernelrules import rulefiles

    current: session.Session = context.obj
    if what.endswith(".toml"):
        checked = rulefiles.parse_rules(_read(what).decode("utf-8", "replace"), what)
        if output is session.Output.JSON:
            current.print_json(_document(len(checked), []))
        else:
            typer.echo(f"{len(checked)} rules, and their samples fit")
        return errors.ExitCode.DONE
    lines = list(using.lines_of(_read(what)))
    found = list(using.try_lines(using.load(current.home, folder), lines))
    if output is session.Output.JSON:
        current.print_json(_document(len(lines), found))
        return errors.ExitCode.DONE
    for one in found:
        match = one.match
        fields = " ".join(f"{name}={value}" for name, value in match.fields.items())
        typer.echo(f"{one.number}: {session.printable(one.text)}")
        typer.echo(f"   {match.rule.name}: {match.rule.kind}, {match.severity}; {fields}")
        typer.echo(f"   {match.rule.meaning}")
    typer.echo(f"{len(lines)} lines, {len({one.number for one in found})} that a rule knows")
    return errors.ExitCode.DONE


def _document(lines: int, found: list[using.Found]) -> dict[str, object]:
    return {
        "schema": "overnight.rules-test/1",
        "lines": lines,
        "matches": [
            {
                "line": one.number,
                "text": one.text,
                "rule": one.match.rule.name,
                "kind": one.match.rule.kind,
                "severity": one.match.severity,
                "key": one.match.key,
                "fields": dict(one.match.fields),
            }
            for one in found
        ],
    }


def _read(what: str) -> bytes:
    """A file, standard input, or the line itself."""
    if what == "-":
        return sys.stdin.buffer.read()
    path = pathlib.Path(what)
    try:
        is_file = path.is_file() or what.endswith(".toml")
    except (OSError, ValueError):  # too long for a name, or a zero byte in it
        is_file = False
    if not is_file:
        return what.replace("\n", " ").encode("utf-8", "surrogateescape")
    try:
        return path.read_bytes()
    except OSError as error:
        raise errors.CannotError(
            f"{what} cannot be read",
            why=error.strerror or str(error),
            todo="give the path of a log or of a rule file",
        ) from error


def import_rules(
    context: typer.Context,
    file: Annotated[
        pathlib.Path,
        typer.Argument(metavar="FILE", help="As config/kernel-monitor.json."),
    ],
    to: Annotated[
        pathlib.Path | None,
        typer.Option("-o", "--file", metavar="FILE", help="Write there. Default: HOME/rules."),
    ] = None,
    output: session.OutputOption = session.Output.TEXT,
) -> int:
    """Take over rules of node-problem-detector, and say which cannot be.

    Ends with 1 when there are such.
    """
    from overnight.app import rules as using
    from overnight.sources.kernelrules import npd

    current: session.Session = context.obj
    done = npd.parse_npd(_read_npd(file), file.name)
    place = to or using.rules_folder(current.home) / f"npd-{file.stem}.toml"
    if done.rules:
        _write(place, npd.as_toml(done.rules, f"From {file.name}, made for node-problem-detector."))
    if output is session.Output.JSON:
        current.print_json(
            {
                "schema": "overnight.rules-import/1",
                "file": str(place) if done.rules else "",
                "rules": [rule.name for rule in done.rules],
                "problems": [{"rule": name, "why": why} for name, why in done.problems],
                "notes": list(done.notes),
            }
        )
    else:
        if done.rules:
            typer.echo(f"{len(done.rules)} rules written: {place}")
        for name, why in done.problems:
            typer.echo(f"not taken over: {session.printable(name)}: {session.printable(why)}")
        for note in done.notes:
            typer.echo(f"note: {session.printable(note)}")
    return errors.ExitCode.FOUND if done.problems else errors.ExitCode.DONE


def _read_npd(file: pathlib.Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise errors.CannotError(
            f"{file} cannot be read",
            why=getattr(error, "strerror", None) or str(error),
            todo="give the path of a file as config/kernel-monitor.json",
        ) from error


def _write(place: pathlib.Path, text: str) -> None:
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text, encoding="utf-8")
    except OSError as error:
        raise errors.CannotError(
            f"{place} cannot be written",
            why=error.strerror or str(error),
            todo="choose another place with -o FILE",
        ) from error
