"""Options that the commands of pools share."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Any

import typer

from overnight import errors

if TYPE_CHECKING:
    from overnight.pools import bursts

__all__ = [
    "ClaimArgument",
    "ClassOption",
    "DatabaseOption",
    "KnobOption",
    "LabelOption",
    "MaxOption",
    "MemberArgument",
    "MinOption",
    "PoolArgument",
    "PreferOption",
    "RegionOption",
    "TargetOption",
    "TemplateOption",
    "TypeOption",
    "burst",
    "given",
    "labels",
    "parse_settings",
    "seconds",
    "share",
]

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
PoolArgument = Annotated[str, typer.Argument(metavar="POOL", help="Its name or id.")]
RecentOption = Annotated[
    int, typer.Option("--recent", metavar="N", min=0, help="How many events and ended claims.")
]
MemberArgument = Annotated[str, typer.Argument(metavar="MEMBER", help="Its id.")]
ClaimArgument = Annotated[str, typer.Argument(metavar="CLAIM", help="Its id.")]
TemplateOption = Annotated[
    str | None, typer.Option("--template", metavar="NAME", help="What members are made from.")
]
TargetOption = Annotated[
    int | None, typer.Option("--target", metavar="N", help="Members to keep ready or warming.")
]
MinOption = Annotated[int | None, typer.Option("--min", metavar="N", help="Never fewer ready.")]
MaxOption = Annotated[
    int | None,
    typer.Option("--max", metavar="N", help="Never more members, claimed ones included."),
]
RegionOption = Annotated[str | None, typer.Option("--region", metavar="NAME", help="Where.")]
PreferOption = Annotated[
    list[str] | None,
    typer.Option("--prefer-region", metavar="NAME", help="Where next; again for more."),
]
ClassOption = Annotated[
    str | None, typer.Option("--lifecycle-class", metavar="CLASS", help="ephemeral or spot.")
]
TypeOption = Annotated[
    str | None, typer.Option("--instance-type", metavar="NAME", help="Which kind of machine.")
]
KnobOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="KNOB=VALUE", help="A knob, as ready_ttl_seconds=600; again for more."
    ),
]
LabelOption = Annotated[
    list[str] | None, typer.Option("--label", metavar="NAME=VALUE", help="A label; again for more.")
]


def given(**options: object) -> dict[str, Any]:
    """What was said; what was not is left to its default."""
    return {name: value for name, value in options.items() if value is not None}


def parse_settings(texts: list[str] | None) -> dict[str, object]:
    from overnight.pools import settings as tuning

    return dict(tuning.parse(text) for text in texts or ())


def labels(texts: list[str] | None) -> dict[str, str] | None:
    """The labels that were given; None for none."""
    if texts is None:
        return None
    for text in texts:
        if "=" not in text:
            raise errors.UsageError(
                f"{text!r} is no label", why="a label is NAME=VALUE", todo="write it like team=ml"
            )
    return {text.partition("=")[0]: text.partition("=")[2] for text in texts}


def seconds(text: str, name: str) -> int:
    """A duration in whole seconds."""
    from overnight.model import times

    parsed = times.parse_duration(text)
    if parsed != int(parsed):
        raise errors.UsageError(
            f"{name} {text} is not whole seconds", why="it is kept in seconds", todo="write 90s, 2h"
        )
    return int(parsed)


def share(text: str) -> float:
    """A share of claims: `1%`, `0.5 %`, `0.01`.

    >>> share("1%"), share("0.05")
    (0.01, 0.05)
    """
    found = SHARE.fullmatch(text.strip())
    if found is None:
        raise errors.UsageError(
            f"{text!r} is not a share",
            why="a share is a number with % behind it, or a number between 0 and 1",
            todo="write it like 1% or 0.01",
        )
    return float(found[1]) / (100 if found[2] else 1)


def burst(text: str) -> bursts.Burst:
    """Mean and spread of what comes together: `5`, `5:2`."""
    from overnight.pools import bursts

    mean, _, spread = text.partition(":")
    try:
        return bursts.Burst(float(mean), float(spread or "0"))
    except ValueError:
        raise errors.UsageError(
            f"{text!r} is not a burst",
            why="a burst is the mean number of claims that come together, and their spread",
            todo="write it like --burst 5 or --burst 5:2",
        ) from None
