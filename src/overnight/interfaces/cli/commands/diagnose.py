"""`overnight diagnose`."""

from __future__ import annotations

import contextlib
import enum
import pathlib
from typing import TYPE_CHECKING, Annotated

import typer

from overnight import errors
from overnight.interfaces.cli import files, session

if TYPE_CHECKING:
    from collections.abc import Iterator

    from overnight.model.finding import Answer
    from overnight.model.verdict import Verdict
    from overnight.reports import diagnosis

__all__ = ["ORDER", "register"]

ORDER = 28


class Form(enum.StrEnum):
    """How a verdict is written."""

    TEXT = "text"
    JSON = "json"
    MD = "md"
    HTML = "html"


def register(cli: typer.Typer) -> None:
    """Add the command."""
    cli.command(
        rich_help_panel="In the morning",
        epilog="Example: overnight diagnose -O html -o report.html",
    )(diagnose)


def _choose(context: typer.Context, value: Form) -> Form:
    current: session.Session = context.obj
    if value is Form.JSON:
        current.output = session.Output.JSON
    return value


def diagnose(
    context: typer.Context,
    bundle: Annotated[
        pathlib.Path | None,
        typer.Argument(metavar="BUNDLE", help="A bundle instead of what is recorded here."),
    ] = None,
    event_id: Annotated[
        str,
        typer.Option("--event", metavar="ID", help="Which event; default: the last serious one."),
    ] = "last",
    host: Annotated[str, typer.Option(metavar="NAME", help="The last one of this host.")] = "",
    knowledge: Annotated[
        list[pathlib.Path] | None,
        typer.Option(metavar="FILE", help="More of what explains what (TOML); again for more."),
    ] = None,
    output: Annotated[
        Form, typer.Option("-O", "--output", callback=_choose, help="For people or for programs.")
    ] = Form.TEXT,
    file: files.FileOption = None,
) -> int:
    """From an event to its cause: the chain, the evidence, what was ruled out, and what to do.

    Every detector looks at what was recorded around the event; what fits together in time, place and
    size becomes a chain. Where the evidence does not carry a cause it says so.
    """
    from overnight.app import event_diagnosis, report_material
    from overnight.reports import diagnosis

    current: session.Session = context.obj
    if output is Form.TEXT:
        files.check_text(file)
    with _home(current, bundle) as (home, chosen):
        wanted = chosen if event_id == "last" and chosen else event_id
        told = event_diagnosis.choose_event(home, wanted, host)
        with current.notes().status("asking the detectors …") as status:

            def tell(answer: Answer) -> None:
                status.update(f"asking the detectors … {answer.detector}: {answer.status}")

            made, case = event_diagnosis.diagnose(
                home, told, rules=tuple(knowledge or ()), on_answer=tell
            )
            material = report_material.gather(case, made) if case is not None else diagnosis.EMPTY
        _deliver(current, made, material, output, file)
    return errors.ExitCode.DONE


@contextlib.contextmanager
def _home(
    current: session.Session, bundle: pathlib.Path | None
) -> Iterator[tuple[pathlib.Path, str]]:
    """The data home to look at, and the event that a bundle was made for."""
    if bundle is None:
        yield current.home, ""
        return
    from overnight.app import bundles

    with bundles.opened(bundle) as made:
        assert made.home is not None
        yield made.home, made.header.event


def _deliver(
    current: session.Session,
    made: Verdict,
    material: diagnosis.Material,
    output: Form,
    file: pathlib.Path | None,
) -> None:
    if output is Form.TEXT:
        from overnight.reports.diagnosis import text

        current.console().print(text.render(made, material))
        return
    from overnight.reports.diagnosis import html, json, markdown

    write = {Form.JSON: json.write, Form.MD: markdown.write, Form.HTML: html.write}[output]
    files.deliver(lambda out: write(made, out, material), file, binary=False)
