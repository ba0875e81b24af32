from __future__ import annotations

import enum
import pathlib
from typing import TYPE_CHECKING, Annotated

import typer

from overnight.interfaces.cli import files, session

if TYPE_CHECKING:
    from overnight.model.finding import Answer

ORDER = 28


class Form(enum.StrEnum):
    TEXT = "text"
    JSON = "json"
    MARKDOWN = "md"
    HTML = "html"


def register(cli: typer.Typer) -> None:
    session.add_command(cli, diagnose, "In the morning", "diagnose -O html -o report.html")


def _is_bundle(subject: str) -> bool:
    return subject.endswith(".overnight") or "/" in subject or pathlib.Path(subject).is_file()


def diagnose(
    context: typer.Context,
    subject: Annotated[
        str,
        typer.Argument(metavar="EVENT", help="Event id or prefix, or a bundle. Default: --event."),
    ] = "",
    event_id: Annotated[
        str,
        typer.Option(
            "--event", metavar="ID", help="Event id or prefix; last: the last serious event."
        ),
    ] = "last",
    host: Annotated[
        str, typer.Option(metavar="NAME", help="Host whose last serious event to diagnose.")
    ] = "",
    knowledge: Annotated[
        list[pathlib.Path] | None,
        typer.Option(metavar="FILE", help="TOML file with more knowledge (repeatable)."),
    ] = None,
    output: Annotated[
        Form, typer.Option("-O", "--output", callback=session.choose_output, help="Output format.")
    ] = Form.TEXT,
    file: files.FileOption = None,
) -> None:
    """Find the cause of an event.

    Detectors examine the recording around the event. Findings that agree in time, place and size form a chain
    from root cause to event. The report shows the fix, the chain with its evidence, the causes that were ruled
    out, and missing evidence. If the evidence does not support a cause, the verdict claims none.
    """
    from overnight.app import diagnose as diagnosis

    current: session.Session = context.obj
    if output is Form.TEXT:
        files.check_text(file)
    bundle = pathlib.Path(subject) if _is_bundle(subject) else None
    if subject and bundle is None:
        event_id = subject
    request = diagnosis.Request(current.home, bundle, event_id, host, tuple(knowledge or ()))
    with current.notes().status("running detectors …") as status:

        def show_answer(answer: Answer) -> None:
            status.update(f"running detectors … {answer.detector}: {answer.status}")

        result = diagnosis.diagnose(request, show_answer)
    match output:
        case Form.TEXT:
            current.console().print(result.render())
        case Form.MARKDOWN:
            files.deliver(lambda out: result.write("markdown", out), file)
        case Form.JSON:
            files.deliver(lambda out: result.write("json", out), file)
        case Form.HTML:
            files.deliver(lambda out: result.write("html", out), file)
