"""`--print-unit`: a systemd unit that runs a command with the options given on the command line."""

from __future__ import annotations

import pathlib
from collections.abc import Collection

from overnight import errors
from overnight.interfaces.cli import session, terminal
from overnight.model import secrets as masking

UNIT = "Print a systemd unit with these options, and exit."
LEFT_OUT = ("--print-unit", "--output")


def print_unit(
    current: session.Session,
    name: str,
    *,
    secrets: Collection[str] = (),
    writable: Collection[str] = (),
) -> None:
    """Print the unit of a command with its given options; `secrets` and `writable` are those with such files."""
    from overnight.app import units

    if current.home_given:
        raise errors.UsageError(
            f"--home does not apply to the unit of {name}",
            why="systemd creates its data home below /var/lib, and the unit can write nowhere else",
            todo="leave out --home",
        )
    arguments: list[str] = []
    files: dict[str, str] = {}
    folders: list[str] = []
    for option, metavar, value in current.given_options():
        if option in LEFT_OUT:
            continue
        if option in secrets:
            files[option] = _secret(option, value)
            continue
        if metavar == "URL":
            _check_url(option, value)
        text = str(pathlib.Path(value).absolute()) if metavar in ("FILE", "DIR") else value
        arguments += [option, text] if value else [option]
        if option in writable:
            folders.append(text)
    terminal.echo(units.render(name, arguments, files, folders), keep="\n", nl=False)


def _secret(option: str, value: str) -> str:
    """Return the file of a secret for systemd: a full path, or a name in /etc/credstore."""
    if value == "-":
        raise errors.UsageError(
            f"{option} - does not work in a unit",
            why="a unit has no standard input",
            todo=f"name a file of /etc/credstore: {option} NAME",
        )
    return str(pathlib.Path(value).absolute()) if "/" in value else value


def _check_url(option: str, value: str) -> None:
    if masking.drop_secrets(value) != value:
        raise errors.UsageError(
            f"{option} has a password",
            why="every user can read a unit",
            todo="write it to the EnvironmentFile= of the unit, mode 0600, and leave out the option",
        )
