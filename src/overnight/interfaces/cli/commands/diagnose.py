from __future__ import annotations

import dataclasses
import functools
import pathlib
from typing import TYPE_CHECKING, Literal

from overnight import errors
from overnight.interfaces.cli import files, local_time, session, suggestions

if TYPE_CHECKING:
    from overnight.model.finding import Answer

ORDER = 28


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
    at: str = session.option(
        "", "Time of an incident that is not an event.", "TIME", callback=local_time.read
    ),
    core: int | None = session.option(None, "With --at: its core.", "CORE"),
    kind: str = session.option("", "With --at: its kind, such as net.driver_reset.", "KIND"),
    text: str = session.option("", "With --at: what was observed.", "TEXT"),
    save: bool = session.flag("With --at: store it as an event."),
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

    --at diagnoses an incident that no rule saw: what users reported at that time.
    """
    from overnight.app import diagnose as diagnosis
    from overnight.app import windows

    if output == "text":
        files.check_text(file)
    bundle = pathlib.Path(subject) if _is_bundle(subject) else None
    if subject and bundle is None:
        event_id = subject
    if not at and (core is not None or kind or text or save):
        raise errors.UsageError(
            "--core, --kind, --text and --save need --at",
            why="a stored event has its own",
            todo="overnight diagnose --at TIME --core CORE",
        )
    if at and (subject or event_id != diagnosis.LAST):
        raise errors.UsageError(
            "--at and an event are mutually exclusive",
            why="--at is an incident that is not stored as an event",
            todo="leave out one of them",
        )
    if save and current.server:
        raise errors.UsageError(
            "--save and --server are mutually exclusive",
            why="a control plane has the events that its hosts report",
            todo="leave out --save, or run `overnight event add` on the host",
        )
    found = windows.Evidence(current.home, event_id=event_id, at=at)
    if bundle is None:
        event_id = "" if at else event_id
        found = current.evidence(event_id=event_id, hosts=(host,) if host else (), at=at)
    reported = diagnosis.Reported(found.at, core, kind or diagnosis.REPORTED, text or None, save)
    request = diagnosis.Request(
        found.home, bundle, found.event_id or diagnosis.LAST, host, tuple(knowledge or ()),
        reported if at else None, current.server.ask_fleet if current.server else None,
        until_us=found.until_us,
    )  # fmt: skip
    with current.notes().status("running detectors …") as status:

        def show_answer(answer: Answer) -> None:
            status.update(f"running detectors … {answer.detector}: {answer.status}")

        result = diagnosis.diagnose(request, show_answer)
    verdict = suggestions.complete_values(result.verdict)
    result = dataclasses.replace(result, verdict=verdict)
    if output == "text":
        current.console().print(result.render())
    else:
        form = "markdown" if output == "md" else output
        files.deliver(functools.partial(result.write, form), file)


register = session.command(
    diagnose, "In the morning", "diagnose -O html -o report.html", scope=session.Scope.SERVER
)
