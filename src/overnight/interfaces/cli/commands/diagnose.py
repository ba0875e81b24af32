from __future__ import annotations

import functools
import pathlib
from typing import TYPE_CHECKING, Literal

from overnight.interfaces.cli import files, session

if TYPE_CHECKING:
    from overnight.model.finding import Answer

ORDER = 28


def register(cli: session.CommandLine) -> None:
    session.add_command(cli, diagnose, "In the morning", "diagnose -O html -o report.html")


def _is_bundle(subject: str) -> bool:
    return subject.endswith(".overnight") or "/" in subject or pathlib.Path(subject).is_file()


def diagnose(
    current: session.Session,
    subject: str = session.argument(
        "", "Event id or prefix, or a bundle. Default: --event.", "EVENT"
    ),
    event_id: str = session.option(
        "last", "Event id or prefix; last: the last serious event.", "ID", "--event"
    ),
    host: str = session.option("", "Host whose last serious event to diagnose.", "NAME"),
    knowledge: list[pathlib.Path] | None = session.option(
        None, "TOML file with more knowledge (repeatable).", "FILE"
    ),
    output: Literal["text", "json", "md", "html"] = session.option(
        "text", "Output format.", None, "-O", "--output", callback=session.choose_output
    ),
    file: files.FileOption = None,
) -> None:
    """Find the cause of an event.

    Detectors examine the recording around the event. Findings that agree in time, place and size form a chain
    from root cause to event. The report shows the fix, the chain with its evidence, the causes that were ruled
    out, and missing evidence. If the evidence does not support a cause, the verdict claims none.
    """
    from overnight.app import diagnose as diagnosis

    if output == "text":
        files.check_text(file)
    bundle = pathlib.Path(subject) if _is_bundle(subject) else None
    if subject and bundle is None:
        event_id = subject
    request = diagnosis.Request(current.home, bundle, event_id, host, tuple(knowledge or ()))
    with current.notes().status("running detectors …") as status:

        def show_answer(answer: Answer) -> None:
            status.update(f"running detectors … {answer.detector}: {answer.status}")

        result = diagnosis.diagnose(request, show_answer)
    if output == "text":
        current.console().print(result.render())
    else:
        form = "markdown" if output == "md" else output
        files.deliver(functools.partial(result.write, form), file)
