"""The report as one HTML file with every picture inside: offline, printable, for light and dark.

`templates/page.html` is the frame of every report, `templates/report.html` the one of a diagnosis. `finalize` makes
every value printable and Jinja escapes it, so that no template can forget to.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import TYPE_CHECKING, BinaryIO

import jinja2
import markupsafe

from overnight.model.finding import Status
from overnight.model.suspect import SuspectOutcome
from overnight.model.verdict import VerdictStatus
from overnight.reports import diagnosis
from overnight.reports.diagnosis import style, wording
from overnight.reports.diagnosis.pictures import census, chain, embedded, timeline

if TYPE_CHECKING:
    from overnight.diagnosis import knowledge
    from overnight.model.verdict import Verdict

MAX_CHANGES = 15
MAX_EVENTS = 40
MAX_LENGTH = 3000  # characters of a value; templates shorten names further
MAX_DEPTH, MAX_ITEMS = 3, 60  # of a document that others define
SYMBOLS = {
    VerdictStatus.CAUSE_FOUND: "■",
    VerdictStatus.INCONCLUSIVE: "◧",
    VerdictStatus.NO_CAUSE: "□",
}
SUSPECTS = {
    SuspectOutcome.CLEARED: "□ cleared",
    SuspectOutcome.NOT_CLEARED: "■ not cleared",
    SuspectOutcome.NOT_CHECKED: "? not checked",
}
ANSWERS = {
    Status.FOUND: "■ found",
    Status.CLEAR: "□ clear",
    Status.NO_DATA: "? no data",
    Status.FAILED: "✗ failed",
}


def write(verdict: Verdict, file: BinaryIO, material: diagnosis.Material = diagnosis.EMPTY) -> None:
    """Write the page; the same values give the same bytes."""
    known = wording.knowledge_of(material)
    in_chain = {step.id for step in verdict.chain.steps} if verdict.chain else set()
    in_fleet = {finding.id for finding in material.fleet}
    order = list(ANSWERS)
    event_id = verdict.event.id if verdict.event else ""
    write_page(
        file,
        _template(),
        title=wording.title(verdict, known),
        facts=[*([("id", event_id)] if event_id else []), *material.labels.items()],
        look=verdict.status,
        symbol=SYMBOLS.get(verdict.status, ""),
        headline=verdict.narrative.headline,
        answer=verdict.narrative.parts,
        verdict=verdict,
        material=material,
        percent_sure=f"{100 * min(1.0, max(0.0, verdict.confidence)):.0f}",
        claimed=wording.is_claimed(verdict),
        kind_title=known.title,
        format_chain=functools.partial(wording.format_chain, known=known),
        numbers=functools.partial(wording.format_numbers, known=known),
        pictures=_draw(verdict, material, known),
        where=_describe_focus(material),
        changes=material.difference.rank_own(MAX_CHANGES) if material.difference else [],
        dying_per_hour=_dying_per_hour(material),
        answers=sorted(verdict.answers, key=lambda each: (order.index(each.status), each.detector)),
        others=[finding for finding in verdict.findings if finding.id not in in_chain | in_fleet],
        why_not={each.finding: each.why for each in verdict.ruled_out},
        most_events=MAX_EVENTS,
        most_changes=MAX_CHANGES,
        answer_labels=ANSWERS,
        suspect_labels=SUSPECTS,
        explain_answer=functools.partial(wording.explain_answer, known=known),
        wording=wording,
    )


def write_page(
    file: BinaryIO, template: jinja2.Template, *, more_style: str = "", **values: object
) -> None:
    """Write a template that extends `page.html`: title, facts, look, symbol, headline, answer and its own values."""
    page = template.render(
        style=trust(style.sheet() + more_style),
        policy=trust(style.policy()),
        script=trust(style.COPY_SCRIPT),
        **values,
    )
    file.write(page.encode("utf-8", "replace"))


@functools.cache
def _template() -> jinja2.Template:
    return make_environment().get_template("report.html")


def make_environment(*packages: str) -> jinja2.Environment:
    """Return the environment of this package's templates, and of those of other packages."""
    every = (*packages, "overnight.reports.diagnosis")
    environment = jinja2.Environment(
        loader=jinja2.ChoiceLoader([jinja2.PackageLoader(package) for package in every]),
        autoescape=True,
        finalize=_finalize,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {
        "clean": wording.clean,
        "command": wording.command,
        "percent": wording.percent,
        "strength": wording.format_strength,
        "document": _flatten,
    }
    return environment


def _finalize(value: object) -> object:
    """Make a value printable, unless it is markup; commands are cleaned line by line before."""
    if isinstance(value, markupsafe.Markup):
        return value
    text = str(value)
    return "\n".join(wording.clean(line, MAX_LENGTH) for line in text.split("\n"))


def _draw(
    verdict: Verdict, material: diagnosis.Material, known: knowledge.Knowledge
) -> dict[str, markupsafe.Markup]:
    drawn = dict.fromkeys(("chain", "timeline", "flame", "difference", "census"), "")
    if verdict.chain and verdict.chain.steps:
        claimed = wording.is_claimed(verdict)
        drawn["chain"] = chain.draw_chain(verdict.chain, known, claimed=claimed)
    if material.cores is not None and len(material.cores.begin_us):
        wanted = [material.core, verdict.event.core if verdict.event else -1]
        if verdict.chain:
            cores = (step.subject.core for step in verdict.chain.steps)
            wanted += [core for core in cores if core is not None]
        shown = timeline.Timeline(
            material.cores, wanted, material.incident, material.events, material.waits
        )
        drawn["timeline"] = shown.draw()
    if material.flame is not None:
        drawn["flame"] = embedded.draw_flame(material.flame)
    if material.compared is not None:
        drawn["difference"] = embedded.draw_difference(material.compared)
    if len(material.census) > 1:
        event_us = verdict.event.time_us if verdict.event else None
        drawn["census"] = census.draw_census(material.census, event_us)
    return {name: trust(picture) for name, picture in drawn.items()}


def trust(markup: str) -> markupsafe.Markup:
    """Insert our own markup as it is: style, script, and pictures, which escape what they write."""
    return markupsafe.Markup(markup)  # noqa: S704 - our own markup


def _describe_focus(material: diagnosis.Material) -> str:
    core, window = wording.name_cores(material), material.incident
    when = wording.format_window(window.begin_us, window.end_us) if window else ""
    return f"{core}, {when}".strip(", ")


def _dying_per_hour(material: diagnosis.Material) -> float | None:
    if len(material.census) < 2:
        return None
    first, last = material.census[0], material.census[-1]
    hours = (last.time_us - first.time_us) / 3.6e9
    return (last.dying - first.dying) / hours if hours > 0.1 else None


def _flatten(value: object, depth: int = 0) -> object:
    """Cut a document that others define to what is shown: dicts and lists of texts."""
    if isinstance(value, Mapping) and depth < MAX_DEPTH:
        pairs = list(value.items())[:MAX_ITEMS]
        return {str(key).replace("_", " "): _flatten(inner, depth + 1) for key, inner in pairs}
    if isinstance(value, list | tuple) and depth < MAX_DEPTH:
        if all(isinstance(inner, str | int | float | None) for inner in value):
            return ", ".join(map(_shorten, value[:MAX_ITEMS]))
        return [_flatten(inner, depth + 1) for inner in value[:MAX_ITEMS]]
    return _shorten(value)


def _shorten(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    return "-" if value is None else str(value)
