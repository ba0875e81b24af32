"""Shared by all commands: registration, data home, output format, consoles, progress, confirmation."""

from __future__ import annotations

import contextlib
import dataclasses
import enum
import functools
import inspect
import itertools
import json
import os
import pathlib
import re
import shlex
import sys
import time
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Protocol, TypeVar

import typer

from overnight import errors
from overnight.interfaces.cli import suggestions
from overnight.model import data_home, secrets

if TYPE_CHECKING:
    import rich.console

    from overnight.app import questions, remote, windows

DRAW_SECONDS = 0.25
NAMED_PLACE = re.compile(r"(^| )--(home|server|database)\b")
T = TypeVar("T")
Asked = TypeVar("Asked")
Found = TypeVar("Found")
Command = Callable[..., int | None]
CommandLine = typer.Typer
Register = Callable[[CommandLine], None]


class Output(enum.StrEnum):
    TEXT = "text"
    JSON = "json"


class Scope(enum.Enum):
    """What a command works on."""

    SERVER = enum.auto()  # a server, where one is named; else a data home or this host
    HOME = enum.auto()  # a data home only
    HOST = enum.auto()  # this host, whatever server the environment names


class Result(Protocol):
    def as_json(self) -> dict[str, object]: ...


@dataclasses.dataclass
class Session:
    """One run of the command line."""

    debug: bool = False
    words: list[str] = dataclasses.field(default_factory=list)  # of the command line
    chosen_home: pathlib.Path | None = None
    home_given: bool = False  # on the command line
    chosen_server: str | None = None  # on the command line
    token_file: pathlib.Path | None = None
    asks_server: bool = True  # False: the command works on a data home, a database or this host
    database: str = ""  # of pools, on the command line
    output: Output = Output.TEXT
    context: typer.Context | None = None  # of the command that runs
    opened: contextlib.ExitStack = dataclasses.field(default_factory=contextlib.ExitStack)  # by it

    @property
    def home_path(self) -> pathlib.Path:
        from overnight.app import home

        return home.data_home(self.chosen_home)

    @property
    def home(self) -> pathlib.Path:
        """The data home; raise MissingPermissionError if it exists and this user may not read it."""
        from overnight.app import home

        if not home.is_readable(self.home_path):
            raise self.unreadable(self.home_path)
        if self.home_path.is_file():
            self.home_given = False  # the commands of the advice use another
            file = shlex.quote(str(self.home_path))
            raise errors.UsageError(
                f"{self.home_path} is not a folder",
                why="a data home is one",
                todo=f"if it is a bundle: `overnight diagnose {file}`, or `overnight bundle open {file}`",
            )
        return self.home_path

    def unreadable(self, path: pathlib.Path) -> errors.MissingPermissionError:
        """Return the error for a path that this user may not read, with the same command as root."""
        again = f"sudo overnight --home {shlex.quote(str(self.home_path))} {self.words_elsewhere}"
        return errors.MissingPermissionError(
            f"{path} cannot be read",
            why=f"it belongs to another user, or its mode does not allow user {os.geteuid()}",
            todo=again if os.geteuid() else "check its mode and its file system",
        )

    @property
    def words_elsewhere(self) -> str:
        """The words of the command line, without its data home."""
        words = self.words
        if self.home_given:
            at = next(n for n, word in enumerate(words) if word.partition("=")[0] == "--home")
            words = [*words[:at], *words[at + 1 + (words[at] == "--home") :]]
        return shlex.join(words)

    def given_options(self) -> Iterator[tuple[str, str, str]]:
        """Yield name, metavar and value of each option given on the command line; '' is the value of a flag."""
        assert self.context is not None
        for each in self.context.command.params:
            source = self.context.get_parameter_source(each.name or "")
            if source is None or source.name != "COMMANDLINE":
                continue
            value = self.context.params[each.name or ""]
            name = next(word for word in each.opts if word.startswith("--"))
            for text in value if isinstance(value, (list, tuple)) else (value,):
                yield name, each.metavar or "", "" if text is True else str(text)

    def check_server(self, command: str, scope: Scope) -> None:
        """Raise UsageError where --server or OVERNIGHT_SERVER names a server that a command cannot ask."""
        from overnight.app import server_settings

        if scope is Scope.SERVER:
            if self.chosen_server is not None and self.home_given:
                raise errors.UsageError(
                    "--server and --home are mutually exclusive",
                    why="each of them names where the evidence is",
                    todo="leave out one of them",
                )
            return
        self.asks_server = False
        if self.chosen_server is not None:
            raise errors.UsageError(
                f"{command} does not take --server",
                why="it reads or changes this host or its data home",
                todo=f"leave out --server, or run {command} on the host in question",
            )
        named = self.home_given or bool(self.context and self.context.params.get("database"))
        if scope is Scope.HOME and not named and (url := server_settings.find_url()):
            raise errors.UsageError(
                f"{command} cannot ask {secrets.mask_url(url)}",
                why="it works on a data home, and OVERNIGHT_SERVER or server.toml names that server for your commands",
                todo=f"name the data home: --home {shlex.quote(str(self.home_path))}",
            )

    @property
    def server_url(self) -> str:
        """The URL of the server to ask; '' for none."""
        from overnight.app import server_settings

        if not self.asks_server:
            return ""
        if self.chosen_server is None and not self.home_given:
            return server_settings.find_url()
        return self.chosen_server or ""

    @functools.cached_property
    def server(self) -> remote.Server | None:
        """The control plane to ask instead of the data home, for a command that can."""
        from overnight.app import server_settings

        if not self.server_url:
            return None
        from overnight.app import remote

        server = remote.Server(server_settings.read_settings(self.server_url, self.token_file))
        self.opened.callback(server.close)
        return server

    def ask(self, question: questions.Question[Asked, Found], request: Asked) -> Found:
        """Answer a question about many hosts: by the control plane, or from the data home."""
        if self.server is None:
            return question.ask_home(self.home, request)
        with self.notes().status(f"asking {self.server.url} …"):
            return self.server.ask(question, request)

    def evidence(
        self,
        *,
        event_id: str = "",
        hosts: Sequence[str] = (),
        begin: str = "",
        end: str = "",
        at: str = "",
    ) -> windows.Evidence:
        """Return the data home with an event or a window; from a server it is temporary, until the command ends."""
        from overnight.app import windows

        if self.server is None:
            return windows.Evidence(self.home, event_id, begin, end, at)
        from overnight.interfaces.cli import terminal

        notes, shown = self.notes(), ""
        with self.progress("window", 1.0) as update:

            def show(step: str, share: float) -> None:
                nonlocal shown
                if step != shown and not notes.is_terminal:
                    terminal.print_line(notes, step)
                shown = step
                update(share, step)

            fetched = self.server.evidence(
                event_id=event_id, hosts=hosts, begin=begin, end=end, at=at, progress=show
            )
            return self.opened.enter_context(fetched)

    def command(self, words: str, *, as_root: bool = False) -> str:
        """Return a command line for people to copy: it asks the same server, database or data home.

        `as_root`: root may not write to the data home of another user, and uses its own then.
        """
        if NAMED_PLACE.search(words):
            return f"overnight {words}"
        scope, takes_database = find_scope(words)
        url = self.server_url
        uplink = self.context and self.context.params.get("server")  # of an agent
        if scope is not Scope.SERVER and (url or (uplink and scope is Scope.HOME)):
            # For the host in question, or on the server; with OVERNIGHT_SERVER set, these need a data home.
            named = "--home DIR " * (scope is Scope.HOME)
            return f"overnight {named}{words}"
        if url:
            token = (
                f" --token-file {shlex.quote(str(self.token_file.absolute()))}"
                if self.token_file
                else ""
            )
            return f"overnight --server {shlex.quote(url)}{token} {words}"

        # sudo drops OVERNIGHT_HOME, and the user's own data home is another one.
        sudo = os.geteuid() == 0 and "SUDO_USER" in os.environ
        is_named = sudo or self.home_given
        if as_root and not data_home.belongs_to_root(self.home_path):
            is_named = False
        named = f"--home {shlex.quote(str(self.home_path))} " if is_named else ""
        if self.database and takes_database:
            words += f" --database {shlex.quote(secrets.drop_secrets(self.database))}"
        return f"{'sudo ' * sudo}overnight {named}{words}"

    def console(self) -> rich.console.Console:
        """Return the console for results, on standard output."""
        from overnight.interfaces.cli import safe_console

        return safe_console.Console(highlight=False)

    def notes(self) -> rich.console.Console:
        """Return the console for progress and notes, on standard error."""
        from overnight.interfaces.cli import safe_console

        return safe_console.Console(highlight=False, stderr=True)

    def print_json(self, document: dict[str, object]) -> None:
        sys.stdout.write(json.dumps(suggestions.complete_values(document), indent=2) + "\n")

    def printed_json(self, result: Result | dict[str, Any]) -> bool:
        """Print a result as JSON and return True, if -O json was given."""
        if self.output is Output.JSON:
            self.print_json(result if isinstance(result, dict) else result.as_json())
        return self.output is Output.JSON

    @contextlib.contextmanager
    def progress(
        self, label: str, total: float, *, counted: bool = False
    ) -> Iterator[Callable[..., None]]:
        """Yield a function that shows how much is done, a text, and errors; only these in a pipe."""
        import rich.progress

        from overnight.interfaces.cli import terminal

        with rich.progress.Progress(
            rich.progress.TextColumn(label, markup=False),
            rich.progress.BarColumn(bar_width=20),
            rich.progress.MofNCompleteColumn() if counted else rich.progress.TimeRemainingColumn(),
            rich.progress.TextColumn("{task.description}", markup=False),
            console=self.notes(),
            transient=True,
            auto_refresh=False,  # its thread draws ten times a second
            disable=not self.notes().is_terminal,
        ) as bar:
            task, drawn = bar.add_task("", total=total), 0.0

            def update(done: float, text: str, *problems: str) -> None:
                nonlocal drawn
                for problem in problems:
                    terminal.print_line(bar.console, problem, "bold red")
                due = time.monotonic() - drawn >= DRAW_SECONDS
                drawn = time.monotonic() if due else drawn
                bar.update(task, completed=done, description=text, refresh=due)

            yield update


def choose_output(context: typer.Context, value: Any) -> Any:
    """Note the format before the command runs, so that its errors have the same one."""
    current: Session = context.obj
    current.output = Output.JSON if value == Output.JSON else Output.TEXT
    return value


OutputOption = Annotated[
    Output, typer.Option("-O", "--output", callback=choose_output, help="Output format.")
]


ROOT = pathlib.Path("/")
RootOption = Annotated[
    pathlib.Path, typer.Option(metavar="DIR", help="Root of the host, if mounted in a container.")
]


def option(default: Any, about: str, metavar: str | None = None, *names: str, **limits: Any) -> Any:
    """Return an option of a command; without `names` it is called like its parameter."""
    return typer.Option(default, *names, metavar=metavar, help=about, **limits)


def flag(about: str, *names: str) -> Any:
    """Return an option that takes no value and has no --no- form."""
    return typer.Option(False, *names, help=about)


def argument(default: Any, about: str, metavar: str, **limits: Any) -> Any:
    return typer.Argument(default, metavar=metavar, help=about, **limits)


def command(call: Command, panel: str, example: str, *, scope: Scope = Scope.HOST) -> Register:
    """Describe a command for a panel of `overnight --help`; its example begins with its name."""

    def register(cli: CommandLine) -> None:
        name, epilog = example.partition(" ")[0], f"Example: overnight {example}"
        cli.command(name, rich_help_panel=panel, epilog=epilog)(in_session(call, scope))

    return register


def group(
    name: str,
    about: str,
    panel: str,
    example: str,
    *commands: tuple[str, Command, str],
    scope: Scope = Scope.HOST,
    on_host: tuple[str, ...] = (),
    has_default: bool = False,
) -> Register:
    """Describe a group of commands, each with its name and the arguments of its example.

    `scope` is that of all but the commands `on_host`. With `has_default` the first one runs where no other is named.
    """

    def register(cli: CommandLine) -> None:
        group = typer.Typer(cls=DefaultGroup if has_default else None, no_args_is_help=True)
        for word, call, arguments in commands:
            epilog = f"Example: overnight {name} {word} {arguments}".rstrip()
            own = Scope.HOST if word in on_host else scope
            group.command(word, epilog=epilog)(in_session(call, own))
        epilog = f"Example: overnight {name} {example}"
        cli.add_typer(group, name=name, rich_help_panel=panel, help=about, epilog=epilog)

    return register


class DefaultGroup(typer.core.TyperGroup):
    """Runs its first command where none is named: `overnight run plan.yaml`."""

    @property
    def default(self) -> str:
        return next(iter(self.commands))

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and args[0] not in {*self.commands, "-h", "--help"}:
            args = [self.default, *args]
        return super().parse_args(ctx, args)


def in_session(command: Command, scope: Scope) -> Command:
    """Return a command as Typer calls it: its `current` comes from the context, -O is added if it has none."""
    has_formats = "output" in inspect.signature(command).parameters
    added = [] if has_formats else [parameter("output", OutputOption, Output.TEXT)]

    def run(context: typer.Context, **values: Any) -> int | None:
        if not has_formats:
            del values["output"]  # choose_output has noted it
        current: Session = context.obj
        current.context = context
        current.check_server(context.command_path, scope)
        source = context.get_parameter_source("database")
        if source is not None and source.name == "COMMANDLINE":
            current.database = context.params["database"]
        with current.opened:
            return command(current=current, **values)

    replaced = {"current": [parameter("context", typer.Context)]}
    wrapped = with_parameters(run, command, replaced, *added)
    wrapped.__dict__["scope"] = scope  # for find_scope
    return wrapped


def find_scope(words: str) -> tuple[Scope, bool]:
    """Return the scope of a command line, and whether it takes --database."""
    from overnight.interfaces import cli

    rest = [word for word in words.split() if not word.startswith("-")]
    found: Any = typer.main.get_command(cli.build(rest[0] if rest else ""))
    while commands := getattr(found, "commands", None):
        default = getattr(found, "default", "")
        name = rest.pop(0) if rest and rest[0] in commands else default
        if name not in commands:
            return Scope.HOST, False
        found = commands[name]
    return found.callback.scope, any(each.name == "database" for each in found.params)


def parameter(
    name: str, annotation: Any, default: Any = inspect.Parameter.empty
) -> inspect.Parameter:
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    return inspect.Parameter(name, kind, default=default, annotation=annotation)


def with_parameters(
    run: Command,
    command: Command,
    replaced: Mapping[str, Sequence[inspect.Parameter]],
    *more: inspect.Parameter,
) -> Command:
    """Return `run` with the name, help and parameters of `command`, some replaced, for Typer to read."""
    hints = typing.get_type_hints(command, include_extras=True)
    own = inspect.signature(command).parameters.items()
    kept = {name: [parameter.replace(annotation=hints[name])] for name, parameter in own}
    parameters = [*itertools.chain(*{**kept, **replaced}.values()), *more]
    for each in parameters:
        if each.annotation is bool and not each.default.param_decls:  # Typer would add a --no- form
            each.default.param_decls = (f"--{each.name.replace('_', '-')}",)
    functools.update_wrapper(run, command)
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # what Typer reads
    run.__annotations__ = {each.name: each.annotation for each in parameters}
    return run


def call_confirmed(call: Callable[..., T], *, yes: bool) -> T:
    """Return `call(confirmed=yes)`; if it raises UnconfirmedError, ask on the terminal and call again."""
    try:
        return call(confirmed=yes)
    except errors.UnconfirmedError as error:
        from overnight.interfaces.cli import terminal

        if sys.stdin.isatty():
            terminal.echo(f"{error.what}: {error.why}.", err=True)
        confirm(False, f"refusing to continue, {error.what}", error.why)
    return call(confirmed=True)


def confirm(yes: bool, refusal: str, why: str) -> None:
    """Ask on the terminal whether to continue, unless --yes was given."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise errors.UsageError(
            f"{refusal}: standard input is not a terminal", why=why, todo="add --yes"
        )
    typer.confirm("Continue?", abort=True, err=True)
