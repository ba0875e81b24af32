"""What all commands share: the data home, the output format, consoles."""

from __future__ import annotations

import dataclasses
import enum
import json
import sys
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    import pathlib

    import rich.console

__all__ = ["Output", "OutputOption", "Session"]


class Output(enum.StrEnum):
    TEXT = "text"
    JSON = "json"


@dataclasses.dataclass
class Session:
    """One run of the command line."""

    debug: bool = False
    chosen_home: pathlib.Path | None = None
    output: Output = Output.TEXT

    @property
    def home(self) -> pathlib.Path:
        from overnight.app import home

        return home.data_home(self.chosen_home)

    def console(self) -> rich.console.Console:
        """Return the console for results, on standard output."""
        import rich.console

        return rich.console.Console(highlight=False)

    def notes(self) -> rich.console.Console:
        """Return the console for progress and notes, on standard error."""
        import rich.console

        return rich.console.Console(highlight=False, stderr=True)

    def print_json(self, document: dict[str, object]) -> None:
        json.dump(document, sys.stdout, indent=2)
        sys.stdout.write("\n")


def _choose(context: typer.Context, value: Output) -> Output:
    # Set before the command runs, so that its errors have the same format.
    current: Session = context.obj
    current.output = value
    return value


OutputOption = Annotated[
    Output, typer.Option("-O", "--output", callback=_choose, help="Output format.")
]
