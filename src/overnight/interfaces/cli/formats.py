"""`-O` of commands about profiles: the formats of each, and why it has no others."""

from __future__ import annotations

import enum
from typing import Any

import typer

from overnight import errors
from overnight.interfaces.cli import session


class Format(enum.StrEnum):
    TEXT = "text"
    JSON = "json"
    COLLAPSED = "collapsed"
    PPROF = "pprof"
    SPEEDSCOPE = "speedscope"
    SVG = "svg"
    HTML = "html"


VIEWS = (Format.TEXT, Format.JSON, Format.SVG, Format.HTML)
HOLDS = {
    Format.COLLAPSED: "it holds stacks, each with one count",
    Format.PPROF: "it holds stacks, each with one count",
    Format.SPEEDSCOPE: "it holds stacks, each with one count",
    Format.SVG: "it is a picture",
}


def option(what: str, but: str, *fit: Format) -> Any:
    """Return `-O`, by default text, for a command that prints `what`; `but` completes why other formats do not fit."""
    listed = f"{', '.join(fit[:-1])} or {fit[-1]}"

    def parse(text: str) -> Format:
        if text in fit:
            return Format(text)
        if text not in set(Format):
            raise errors.UsageError(
                f"no format {text!r}",
                why=f"{what} can be written as {listed}",
                todo=f"-O {listed}",
            )
        also = "" if text == Format.SVG else f"; `overnight flame -O {text}` writes the stacks"
        raise errors.UsageError(
            f"{what} cannot be written as {text}",
            why=f"{HOLDS[Format(text)]}, and {what} {but}",
            todo=f"-O {listed}{also}",
        )

    return typer.Option(
        Format.TEXT,
        "-O",
        "--output",
        metavar=f"<{'|'.join(fit)}>",
        help="Output format.",
        parser=parse,
        callback=session.choose_output,
    )
