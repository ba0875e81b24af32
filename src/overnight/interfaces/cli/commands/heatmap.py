from __future__ import annotations

from typing import Literal

from overnight.interfaces.cli import files, formats, profile_options, session, terminal
from overnight.model import times

ORDER = 40

Format = formats.Format


@profile_options.takes_query(without=("idle",))
def heatmap(
    current: session.Session,
    query: profile_options.Query,
    by: Literal["core", "offset"] = session.option(
        "core", "Rows: cores, or offsets within a second (all cores together)."
    ),
    mode: Literal["busy", "kernel", "softirq", "idle"] = session.option(
        "busy", "Samples to count."
    ),
    step: str = session.option("1s", "Column width with --by core: 100ms, 1s, 1m.", "DURATION"),
    rows: int = session.option(50, "Rows of a second with --by offset."),
    mark: profile_options.MarkOption = None,
    output: Format = formats.option("a heatmap", "counts samples by time and core", *formats.VIEWS),
    file: files.FileOption = None,
) -> None:
    """Show every core, second by second.

    A saturated core is visible even if the mean over all cores is low. With -O html, drag to show the flame
    graph of any window, Ctrl-drag to compare two.
    """
    from overnight.app import heatmap as maps

    home, chosen = profile_options.find_samples(current, query)
    request = maps.Request(
        home,
        chosen,
        by=by,
        mode=mode,
        step_us=round(times.parse_duration(step) * times.SECOND_US),
        rows=rows,
        marks=tuple(mark or ()),
    )
    if output is Format.HTML:
        files.deliver(maps.make_page(request), file)
        return
    result = maps.draw_heatmap(request)
    if output is Format.SVG:
        files.deliver(result.write_svg, file)
    elif output is Format.JSON:
        files.deliver_json(result.as_json(), file)
    else:
        files.check_text(file)
        terminal.draw_heatmap(result, current.console())


register = session.command(
    heatmap,
    "In the morning",
    "heatmap -O html -o night.html --mark '2026-11-15T03:14:07=NIC reset'",
    scope=session.Scope.SERVER,
)
