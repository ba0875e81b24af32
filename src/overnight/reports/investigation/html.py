"""The report as one HTML file in the look of a diagnosis: offline, printable, for light and dark.

The page is `templates/investigation.html`; every value is made printable and escaped, as in `reports.diagnosis.html`.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, BinaryIO

from overnight.model.investigation import Outcome
from overnight.reports.diagnosis import html, style
from overnight.reports.diagnosis import wording as texts
from overnight.reports.investigation import pictures, sections, wording

if TYPE_CHECKING:
    import jinja2
    import markupsafe

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
    look, symbol = LOOKS[report.investigation.outcome]
    page = _template().render(
        report=report,
        run=report.investigation,
        title=f"Investigation {report.investigation.plan.name}, {report.investigation.id}",
        style=html.trust(style.sheet() + pictures.STYLE),
        policy=html.trust(style.policy()),
        script=html.trust(style.COPY_SCRIPT),
        look=look,
        symbol=symbol,
        sections=sections.make_sections(report),
        pictures=_draw(report),
        most_rows=MAX_ROWS,
        words=wording,
        texts=texts,
    )
    file.write(page.encode("utf-8", "replace"))


def _draw(report: investigation.Report) -> dict[str, list[tuple[markupsafe.Markup, str]]]:
    """Return the pictures of each section with their captions."""
    arms, unit = pictures.draw_arms(report), report.contrast.unit.removesuffix("s")
    times = "When each arm was observed on each host. A triangle is an event."
    rates = f"Events per {unit}: the dot is the rate, the bar its exact 95 % interval. Arms whose bars overlap may still differ."
    dose = "A dot is a host in an arm, with the exact 95 % interval of its rate per host-hour."
    drawn = {
        "arms": [(arms, times)] * bool(arms) + [(pictures.draw_rates(report), rates)],
        "dose": [
            (pictures.draw_trend(trend, n), f"{trend.kind} per host-hour by {wording.DOSES.get(trend.dose, trend.dose)}. {dose}")
            for n, trend in enumerate(report.contrast.trends)
            if len({point.dose for point in trend.points}) > 1 and any(p.events for p in trend.points)
        ][:MAX_TRENDS],
    }  # fmt: skip
    return {name: [(html.trust(svg), text) for svg, text in many] for name, many in drawn.items()}


@functools.cache
def _template() -> jinja2.Template:
    environment = html.make_environment("overnight.reports.investigation")
    return environment.get_template("investigation.html")
