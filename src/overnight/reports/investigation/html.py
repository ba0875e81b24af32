"""The report as one HTML file in the look of a diagnosis: offline, printable, for light and dark.

The page is `templates/investigation.html`; every value is made printable and escaped, as in `reports.diagnosis.html`.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import TYPE_CHECKING, BinaryIO

from overnight.model import times
from overnight.model.investigation import Outcome
from overnight.reports.diagnosis import html
from overnight.reports.investigation import pictures, sections, wording

if TYPE_CHECKING:
    import jinja2
    import markupsafe

    from overnight.model.investigation import Investigation
    from overnight.reports import investigation

MAX_TRENDS, MAX_ROWS = 4, 60
# The classes of a verdict's headline have the colours.
LOOKS = {
    Outcome.REPRODUCED: ("cause-found", "■"),
    Outcome.NOT_REPRODUCED: ("inconclusive", "□"),
    Outcome.FAILED: ("inconclusive", "✗"),
    Outcome.OPEN: ("inconclusive", "◧"),
}


def write(report: investigation.Report, file: BinaryIO) -> None:
    """Write the page; the same values give the same bytes."""
    run = report.investigation
    look, symbol = LOOKS[run.outcome]
    html.write_page(
        file,
        _template(),
        more_style=pictures.STYLE,
        title=f"Investigation {run.plan.name}, {run.id}",
        facts=[*_list_facts(run)],
        look=look,
        symbol=symbol,
        headline=wording.headline(report),
        answer=wording.parts(report),
        sections=sections.make_sections(report),
        pictures={"arms": [*_draw_arms(report)], "dose": [*_draw_trends(report)]},
        most_rows=MAX_ROWS,
        link=functools.partial(wording.link, folder=report.folder),
    )


def _list_facts(run: Investigation) -> Iterator[tuple[str, str]]:
    yield "started", times.format_instant(run.made_us)
    if run.owner:
        yield "by", run.owner
    yield "hosts", f"{run.plan.hosts.provider} {run.plan.hosts.where}"
    if run.plan.load:
        yield "load", run.plan.load.kind
    if run.plan.rehearsal:
        yield "rehearsal", run.plan.rehearsal.name


def _draw_arms(report: investigation.Report) -> Iterator[tuple[markupsafe.Markup, str]]:
    """Yield the pictures of the arms with their captions."""
    if over_time := pictures.draw_arms(report):
        yield (
            html.trust(over_time),
            "When each arm was observed on each host. A triangle is an event.",
        )
    unit = report.contrast.unit.removesuffix("s")
    caption = f"Events per {unit}: the dot is the rate, the bar its exact 95 % interval. Arms whose bars overlap may still differ."
    yield html.trust(pictures.draw_rates(report)), caption


def _draw_trends(report: investigation.Report) -> Iterator[tuple[markupsafe.Markup, str]]:
    trends = [each for each in report.contrast.trends if each.has_events and each.can_tell]
    for number, trend in enumerate(trends[:MAX_TRENDS]):
        what = f"{trend.kind} per host-hour by {wording.name_dose(trend.dose)}"
        how = "A dot is a host in an arm, with the exact 95 % interval of its rate."
        yield html.trust(pictures.draw_trend(trend, number)), f"{what}. {how}"


@functools.cache
def _template() -> jinja2.Template:
    environment = html.make_environment("overnight.reports.investigation")
    return environment.get_template("investigation.html")
