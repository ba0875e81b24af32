"""`-O`: which formats a question's answer can be written as, and why not as the others."""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Any

import typer

from overnight import errors
from overnight.interfaces.cli import session

__all__ = ["Format", "option"]


class Format(enum.StrEnum):
    """Every format that an answer about profiles is written as somewhere."""

    TEXT = "text"
    JSON = "json"
    COLLAPSED = "collapsed"
    PPROF = "pprof"
    SPEEDSCOPE = "speedscope"
    SVG = "svg"
    HTML = "html"


HOLDS = {
    Format.COLLAPSED: "it holds stacks, each with one count",
    Format.PPROF: "it holds stacks, each with one count",
    Format.SPEEDSCOPE: "it holds stacks, each with one count",
    Format.SVG: "it is a picture",
}


def option(what: str, but: str, *fit: Format) -> Any:
    """`-O` for a command whose answer is `what`; `but` ends the sentence why no other format fits."""
    return typer.Option(
        "-O",
        "--output",
        metavar=f"<{'|'.join(fit)}>",
        help="The format.",
        parser=_parser(what, but, fit),
        callback=_choose,
    )


def _parser(what: str, but: str, fit: tuple[Format, ...]) -> Callable[[str], Format]:
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
        also = "" if text == Format.SVG else f"; overnight flame -O {text} writes the stacks"
        raise errors.UsageError(
            f"{what} cannot be written as {text}",
            why=f"{HOLDS[Format(text)]}, and {what} {but}",
            todo=f"-O {listed}{also}",
        )

    return parse


def _choose(context: typer.Context, value: Format) -> Format:
    # Known before the command runs, so that its errors come in the same format.
    current: session.Session = context.obj
    if value is Format.JSON:
        current.output = session.Output.JSON
    return value
