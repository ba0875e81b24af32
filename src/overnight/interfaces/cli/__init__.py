"""The command line. Each module of `commands` registers one command; heavy imports wait inside.

`overnight --help` has to answer at once, so nothing here or at the top of a command module may
import more than the standard library, Typer and small modules of ours.
"""

from __future__ import annotations

import json
import os
import pathlib
import sys
import traceback
from typing import Annotated, Any

import typer

from overnight import app, errors
from overnight.interfaces.cli import commands, session

__all__ = ["main"]

HELP = """Turn a sporadic production incident into a one-night diagnosis.

Leave overnight on a few reserved hosts in the evening; in the morning read what happened on
which core in which second, who did it, and why.
"""
EPILOG = "Start with: overnight doctor   ·   Every command: overnight COMMAND --help"


def build() -> typer.Typer:
    """The command line with every command there is."""
    cli = typer.Typer(
        name="overnight",
        no_args_is_help=True,
        add_completion=False,
        rich_markup_mode="rich",
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    cli.callback(help=HELP, epilog=EPILOG)(_global_options)
    for module in sorted(app.discover(commands), key=lambda m: getattr(m, "ORDER", 0)):
        register: Any = module.register
        register(cli)
    return cli


def _show_version(wanted: bool) -> None:
    if wanted:
        from overnight import __version__

        typer.echo(f"overnight {__version__}")
        raise typer.Exit


def _global_options(
    context: typer.Context,
    home: Annotated[
        pathlib.Path | None,
        typer.Option(
            envvar="OVERNIGHT_HOME",
            metavar="DIR",
            help="Where data is kept. Default: XDG data folder.",
        ),
    ] = None,
    debug: Annotated[
        bool, typer.Option("--debug", help="On an error, show the traceback too.")
    ] = False,
    version: Annotated[  # noqa: ARG001 - the callback below does the work
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    current: session.Session = context.obj
    current.chosen_home = home
    current.debug = debug


def main(arguments: list[str] | None = None) -> int:
    """Run one command; returns its exit code and never lets a traceback out uninvited."""
    current = session.Session(debug="--debug" in (arguments or sys.argv))
    try:
        result = build()(args=arguments, standalone_mode=False, obj=current)
    except errors.OvernightError as error:
        return _report(error, current)
    except typer.TyperException as error:
        return _report(_as_usage_error(error), current)
    except (KeyboardInterrupt, typer.Abort):
        typer.echo("stopped", err=True)
        return errors.ExitCode.INTERRUPTED
    except SystemExit:
        # Typer and Rich leave this way when the reader went away; nobody is left to tell.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return errors.ExitCode.READER_GONE
    except Exception as error:
        return _report(_as_bug(error), current, code=errors.ExitCode.BUG)
    if result == errors.ExitCode.INTERRUPTED:  # what Typer makes of Ctrl-C
        typer.echo("stopped", err=True)
    return result if isinstance(result, int) else errors.ExitCode.DONE


def _as_usage_error(error: typer.TyperException) -> errors.UsageError:
    context = getattr(error, "ctx", None)
    path = context.command_path if context else "overnight"
    return errors.UsageError(
        error.format_message(),
        why="the command line was not understood",
        todo=f"{path} --help   lists what it takes",
    )


def _as_bug(error: Exception) -> errors.OvernightError:
    wrapped = errors.OvernightError(
        f"overnight failed on an error of its own: {type(error).__name__}: {error}",
        why="this is a bug in overnight, not something you did",
        todo="run it again with --debug before the command, and report what it prints",
    )
    wrapped.__cause__ = error
    return wrapped


def _report(
    error: errors.OvernightError, current: session.Session, code: errors.ExitCode | None = None
) -> int:
    """Say the three things, to a person or to a program."""
    if current.debug:
        traceback.print_exception(error.__cause__ or error)
    leave = code or error.exit_code
    if current.output is session.Output.JSON:
        said = error.as_json()
        said["error"] = {**said["error"], "exit_code": int(leave)}  # type: ignore[dict-item]  # as_json builds a dict there
        typer.echo(json.dumps(said), err=True)
        return leave
    # Escape sequences in names that come from the host never reach the terminal.
    for label, text in (("error", error.what), ("why", error.why), ("do", error.todo)):
        colour = typer.colors.RED if label == "error" else None
        typer.secho(f"{label + ':':7}", fg=colour, bold=True, nl=False, err=True)
        typer.echo(session.printable(text), err=True)
    return leave
