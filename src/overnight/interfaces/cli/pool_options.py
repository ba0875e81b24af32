"""Options and parsers that the commands of pools and of reservations share."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import TYPE_CHECKING, Annotated, Any

import typer

from overnight import errors
from overnight.app import pools
from overnight.interfaces.cli import session
from overnight.model import times

if TYPE_CHECKING:
    from overnight.app import remote, reservations

Pools = pools.Pools
SHARE = re.compile(r"(\d{1,15}(?:\.\d{1,15})?(?:e-?\d{1,2})?)\s*(%?)", re.ASCII | re.IGNORECASE)

DatabaseOption = Annotated[
    str,
    typer.Option(
        "--database",
        envvar="OVERNIGHT_POOLS_DATABASE",
        metavar="URL",
        help="sqlite:////path/file.db or postgresql://host/name. Default: a file in the data home.",
    ),
]
PoolArgument = Annotated[str, typer.Argument(metavar="POOL", help="Name or id of the pool.")]
RecentOption = Annotated[
    int,
    typer.Option("--recent", metavar="N", min=0, help="Number of events and ended claims to show."),
]
MemberArgument = Annotated[str, typer.Argument(metavar="MEMBER", help="Id of the member.")]
ClaimArgument = Annotated[str, typer.Argument(metavar="CLAIM", help="Id of the claim.")]
YesOption = Annotated[bool, typer.Option("--yes", help="Skip the confirmation.")]
WhyOption = Annotated[
    str,
    typer.Option("--why", metavar="TEXT", help="Reason, for the audit log of the server."),
]
TEMPLATE = "Template of the members."
TARGET = "Members to keep ready or warming."
PROVIDER = "Provider: process, nspawn, ec2 or kubernetes."

# Options of create and update, by the field of PoolChange that each sets.
CHANGES = {
    "min_size": (int, session.option(None, "Minimum number of ready members.", "N", "--min")),
    "max_size": (
        int,
        session.option(None, "Maximum number of members, claimed ones included.", "N", "--max"),
    ),
    "lifecycle_class": (str, session.option(None, "ephemeral (on demand) or spot.", "CLASS")),
    "region": (str, session.option(None, "Region of the machines.", "NAME")),
    "preferred_regions": (
        list[str],
        session.option(None, "Next region to try (repeatable).", "NAME", "--prefer-region"),
    ),
    "instance_type": (str, session.option(None, "Type of the machines.", "NAME")),
    "labels": (list[str], session.option(None, "Label (repeatable).", "NAME=VALUE", "--label")),
    "settings": (
        list[str],
        session.option(
            None, "Setting, such as ready_ttl_seconds=600 (repeatable).", "NAME=VALUE", "--set"
        ),
    ),
}
KIND = tuple(name for name in CHANGES if name not in ("min_size", "max_size"))


def takes_pools(command: session.Command, *, changes: bool = False) -> session.Command:
    """Replace the parameter `where` of a command by --database, and --why if it `changes` pools.

    With --server they are those of a server.
    """

    def run(current: session.Session, database: str, **values: Any) -> int | None:
        server = find_server(current, database, values.pop("why") if changes else "")
        where = server.pools if server else pools.Pools(current.home, database)
        return command(current=current, where=where, **values)

    added = [session.parameter("database", DatabaseOption, "")]
    added += [session.parameter("why", WhyOption, "")] * changes
    return session.with_parameters(run, command, {"where": []}, *added)


def open_reservations(
    current: session.Session, database: str, why: str = ""
) -> reservations.Reservations:
    """Return the reservations of a database, or of the server."""
    from overnight.app import reservations

    server = find_server(current, database, why)
    return server.reservations if server else reservations.Reservations(current.home, database)


def find_server(current: session.Session, database: str, why: str = "") -> remote.Server | None:
    """Return the server to ask, None for a database: it takes precedence over OVERNIGHT_SERVER."""
    if database and current.chosen_server is not None:
        raise errors.UsageError(
            "--server and --database are mutually exclusive",
            why="each of them names where the data is",
            todo="leave out one of them, or unset OVERNIGHT_POOLS_DATABASE",
        )
    if database:
        current.asks_server = False
    if current.server is None and why:
        raise errors.UsageError(
            "--why needs --server",
            why="the reason is for the audit log of a server",
            todo="leave it out, or add --server URL",
        )
    if not why.isascii() or not why.isprintable():
        raise errors.UsageError(
            f"invalid --why {why!r}",
            why="it is sent in a header, which has only printable ASCII characters",
            todo="write the reason without other characters",
        )
    if current.server is not None:
        current.server.why = why
    return current.server


def commands(*listed: tuple[session.Command, str]) -> session.Register:
    """Describe commands of the group `pool`, which another module has registered, each with its example."""

    def register(cli: session.CommandLine) -> None:
        for info in cli.registered_groups:
            if info.name == "pool" and info.typer_instance is not None:
                for call, example in listed:
                    add = info.typer_instance.command(epilog=f"Example: overnight pool {example}")
                    add(session.in_session(call, session.Scope.SERVER))

    return register


def takes_change(
    command: session.Command, fields: Collection[str] = tuple(CHANGES)
) -> session.Command:
    """Replace the parameter `change: PoolChange` of a command by one option for each of `CHANGES`."""

    def run(**values: Any) -> int | None:
        given = {field: values.pop(field) for field in fields}
        given["labels"] = parse_labels(given["labels"])
        given["settings"] = dict(map(pools.parse_setting, given["settings"] or ()))
        return command(change=pools.PoolChange(**given), **values)

    options = [session.parameter(name, *CHANGES[name]) for name in fields]
    return session.with_parameters(run, command, {"change": options})


def takes_kind(command: session.Command) -> session.Command:
    """Replace the parameter `change: PoolChange` by the options of `KIND`."""
    return takes_change(command, KIND)


def parse_labels(texts: list[str] | None) -> dict[str, str] | None:
    """Return the labels; None if none was given."""
    if texts is None:
        return None
    for text in texts:
        if "=" not in text:
            raise errors.UsageError(
                f"invalid --label {text!r}",
                why="a label is NAME=VALUE",
                todo="write it like --label team=ml",
            )
    return {text.partition("=")[0]: text.partition("=")[2] for text in texts}


def parse_seconds(text: str, option: str) -> int:
    parsed = times.parse_duration(text)
    if parsed != int(parsed):
        raise errors.UsageError(
            f"{option} must be whole seconds (got {text})",
            why="leases are stored in seconds",
            todo=f"write it like {option} 90s or {option} 2h",
        )
    return int(parsed)


def parse_share(text: str) -> float:
    """Parse a share of claims: `1%`, `0.5 %`, `0.01`.

    >>> parse_share("1%"), parse_share("0.05")
    (0.01, 0.05)
    """
    match = SHARE.fullmatch(text.strip())
    if match is None:
        raise errors.UsageError(
            f"invalid share {text!r}",
            why="a share is a percentage, or a number between 0 and 1",
            todo="write it like 1% or 0.01",
        )
    return float(match[1]) / (100 if match[2] else 1)


def parse_burst(text: str) -> tuple[float, float]:
    """Parse the mean and spread of claims that arrive together.

    >>> parse_burst("5"), parse_burst("5:2")
    ((5.0, 0.0), (5.0, 2.0))
    """
    mean, _, spread = text.partition(":")
    try:
        return float(mean), float(spread or "0")
    except ValueError:
        raise errors.UsageError(
            f"invalid burst {text!r}",
            why="a burst is the mean number of claims that arrive together, and their spread",
            todo="write it like --burst 5 or --burst 5:2",
        ) from None
