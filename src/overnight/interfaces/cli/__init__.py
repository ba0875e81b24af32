"""The command line. Each module of `commands` registers one command or group.

To start fast, nothing here or at the top of a command module imports more than the standard library,
Typer and small modules of ours; commands import use cases inside their functions.
"""

from __future__ import annotations

import collections
import importlib
import inspect
import json
import os
import pathlib
import pkgutil
import sys
import traceback
from typing import Any

import typer

from overnight import errors
from overnight.interfaces.cli import commands, local_time, session, suggestions, terminal

HELP = """Turn a sporadic production incident into a one-night diagnosis.

Record a few hosts overnight; in the morning, read the root cause, the core, the second and the fix.
"""
MIB = 1 << 20
SWITCHES = ("--debug", "--local")
SERVER_OPTIONS = ("--server", "--token-file")
OWN_SERVER = ("agent",)  # commands with these options of their own
EPILOG = "Start with: overnight doctor   ·   Every command: overnight COMMAND --help"


def build(command: str = "") -> typer.Typer:
    """Return the command line: with one command of that name, or else with all.

    A module of `commands` holds the command or group of its name; `pool_size` belongs to `pool`, and
    `import_` is `import`. Importing and registering all of them takes 75 ms, one takes 5.
    """
    cli = typer.Typer(
        name="overnight",
        no_args_is_help=True,
        add_completion=not command,
        rich_markup_mode="rich",
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    cli.callback(help=HELP, epilog=EPILOG)(_global_options)
    names = [module.name for module in pkgutil.iter_modules(commands.__path__)]
    own = command.replace("-", "_")
    chosen = [name for name in names if own in (name, name.partition("_")[0])] or names
    modules: list[Any] = [importlib.import_module(f"{commands.__name__}.{name}") for name in chosen]
    for module in sorted(modules, key=lambda module: module.ORDER):
        module.register(cli)
    for group in (cli, *(info.typer_instance for info in cli.registered_groups)):
        for info in group.registered_commands if group is not None else ():
            # Rich would keep the line breaks of the source.
            paragraphs = (inspect.getdoc(info.callback) or "").split("\n\n")
            info.help = "\n\n".join(" ".join(text.split()) for text in paragraphs)
    return cli


def _arrange(arguments: list[str]) -> tuple[str, list[str]]:
    """Return the name of the command, and the words as Typer expects them: --home, --server, --debug and
    --local before the command, -O after it. Users write them in either place.
    """
    before: list[str] = []
    servers: list[str] = []
    formats: list[str] = []
    after: list[str] = []
    words = collections.deque(arguments)
    while words:
        word = words.popleft()
        option = word.partition("=")[0]
        if word == "--":
            words.appendleft(word)
            break
        is_server = option in SERVER_OPTIONS
        if option == "--home" or is_server or (option in ("-O", "--output") and len(after) < 2):
            if option == word and not words:
                return "", [word]  # for Typer's error: its value is missing
            value = [words.popleft()] if option == word else []
            kept = servers if is_server else before if option == "--home" else formats
            kept.extend((word, *value))
        elif word.startswith("-O") and len(after) < 2:  # -Ojson
            formats.append(word)
        elif word.startswith("-") and (not after or word in SWITCHES):
            before.append(word)
        else:
            after.append(word)
    name = after[0] if after else ""
    (after if name in OWN_SERVER else before).extend(servers)
    return name, [*before, *after, *formats, *words]


def _show_version(wanted: bool) -> None:
    if wanted:
        from overnight import __version__

        terminal.echo(f"overnight {__version__}")
        raise typer.Exit


def _global_options(
    context: typer.Context,
    home: pathlib.Path | None = session.option(
        None,
        "Data home; also after the command. Default: the XDG data folder.",
        "DIR",
        envvar="OVERNIGHT_HOME",
        readable=False,  # a home of another user is not a mistake in the command line
    ),
    server: str | None = session.option(
        None,
        "Control plane to ask instead of a data home; also OVERNIGHT_SERVER.",
        "URL",
    ),
    token_file: pathlib.Path | None = session.option(
        None, "File with the token for --server; also OVERNIGHT_TOKEN.", "FILE"
    ),
    output: str = session.option(  # noqa: ARG001 - moved behind the command by _arrange
        "text", "Output format; also after the command.", "FORMAT", "-O", "--output"
    ),
    debug: bool = session.flag("Show tracebacks of errors.", "--debug"),
    local: bool = session.flag(
        "Read and show times in local time; also after the command.", "--local"
    ),
    version: bool = session.option(  # noqa: ARG001 - the callback does the work
        False, "Show the version.", None, "--version", callback=_show_version, is_eager=True
    ),
) -> None:
    current: session.Session = context.obj
    current.chosen_home = home
    source = context.get_parameter_source("home")
    current.home_given = source is not None and source.name == "COMMANDLINE"
    current.chosen_server = server
    current.token_file = token_file
    current.debug = debug
    local_time.LOCAL.set(local)


def main(arguments: list[str] | None = None) -> int:
    """Run one command and return its exit code; tracebacks are shown only with --debug."""
    name, words = _arrange(sys.argv[1:] if arguments is None else arguments)
    current = session.Session(debug="--debug" in words, words=words)
    suggestions.COMPLETE.set(current.command)
    try:
        result = build(name)(args=words, prog_name="overnight", standalone_mode=False, obj=current)
    except errors.OvernightError as error:
        return _report(error, current)
    except typer.TyperException as error:
        return _report(_as_usage_error(error), current)
    except (KeyboardInterrupt, typer.Abort):
        terminal.echo("stopped", err=True)
        return errors.ExitCode.INTERRUPTED
    except SystemExit as ended:
        if not ended.code:  # shell completion
            return errors.ExitCode.DONE
        # Typer and Rich exit this way when the reader of a pipe exits.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return errors.ExitCode.READER_GONE
    except Exception as error:
        if errors.is_own(error):
            error.filename = error.filename or _find_full_output()
            return _report(errors.own_error(error), current)
        if isinstance(error, PermissionError) and isinstance(error.filename, str):
            return _report(current.unreadable(pathlib.Path(error.filename)), current)
        return _report(_as_bug(error), current, code=errors.ExitCode.BUG)
    if result == errors.ExitCode.INTERRUPTED:  # how Typer reports Ctrl-C
        terminal.echo("stopped", err=True)
    return result if isinstance(result, int) else errors.ExitCode.DONE


def _find_full_output() -> str | None:
    """Return the file that standard output was redirected to, if its disk is full."""
    try:
        file = os.readlink("/proc/self/fd/1")  # noqa: PTH115 - a name that may be any text
        disk = os.statvfs(file)
    except OSError:  # a pipe
        return None
    return file if disk.f_bavail * disk.f_frsize < MIB else None


def _as_usage_error(error: typer.TyperException) -> errors.UsageError:
    context = getattr(error, "ctx", None)
    path = context.command_path if context else "overnight"
    return errors.UsageError(
        error.format_message() or f"{path} needs a command",  # Typer has printed the help
        why="the command line is not valid",
        todo=f"`{path} --help` lists arguments and options",
    )


def _as_bug(error: Exception) -> errors.OvernightError:
    wrapped = errors.OvernightError(
        f"internal error: {type(error).__name__}: {error}",
        why="this is a bug in overnight",
        todo="repeat it with --debug, and report what it prints",
    )
    wrapped.__cause__ = error
    return wrapped


def _report(
    error: errors.OvernightError, current: session.Session, code: errors.ExitCode | None = None
) -> int:
    """Print what failed, why, and what to do; as JSON with -O json."""
    if current.debug:
        traceback.print_exception(error.__cause__ or error)
    exit_code = code or error.exit_code
    error.what = suggestions.complete(error.what)
    error.why, error.todo = map(suggestions.complete_advice, (error.why, error.todo))
    if current.output is session.Output.JSON:
        terminal.echo(json.dumps(error.as_json(exit_code)), err=True)
        return exit_code
    for label, text in (("error", error.what), ("why", error.why), ("do", error.todo)):
        colour = typer.colors.RED if label == "error" else None
        typer.secho(f"{label + ':':7}", fg=colour, bold=True, nl=False, err=True)
        terminal.echo(text, err=True, keep="\n\t")
    return exit_code
