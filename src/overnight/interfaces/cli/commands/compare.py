from __future__ import annotations

from overnight.interfaces.cli import local_time, profile_options, session, terminal
from overnight.model.text import rounded

ORDER = 37


def _read_span(text: str) -> str:
    """Let BEGIN..END mean local times with --local."""
    return "..".join(map(local_time.read, text.split("..")))


def compare(
    current: session.Session,
    kind: list[str] | None = session.option(
        None, "Kind: job.failed, or job. for all. Default: warnings and worse (repeatable).", "KIND"
    ),
    at: str = session.option("", "Moment of the fix.", "TIME", callback=local_time.read),
    before: str = session.option(
        "", "Time before the fix: until TIME, or BEGIN..END.", "TIME", callback=_read_span
    ),
    after: str = session.option(
        "", "Time after the fix: since TIME, or BEGIN..END.", "TIME", callback=_read_span
    ),
    group: str = session.option("", "Hosts to compare: zone=eu-1, host=db-7.", "LABEL=VALUE"),
    against: str = session.option("", "Hosts to compare with. Default: all others.", "LABEL=VALUE"),
    per: str = session.option("", "Kind to divide by instead of host-hours: job.started.", "KIND"),
    label: list[str] | None = session.option(
        None, "Label of the events to count (repeatable).", "NAME=VALUE"
    ),
    begin: profile_options.BeginOption = "",
    end: profile_options.EndOption = "",
    host: profile_options.HostOption = None,
) -> None:
    """Compare rates of events before and after a fix.

    With --group, compares two groups of hosts. Rates are per recorded host-hour, or --per KIND.
    """
    from overnight.app import compare as comparison

    result = current.ask(
        comparison.QUESTION,
        comparison.Request(
            kinds=tuple(kind or ()),
            at=at,
            before=before,
            after=after,
            group=group,
            against=against,
            begin=begin,
            end=end,
            hosts=tuple(host or ()),
            labels=tuple(label or ()),
            per=per,
        ),
    )
    if current.printed_json(result):
        return
    console, wording = current.console(), result.wording
    names = ("against", "group") if group else ("before", "after")
    for name, side in zip(names, (result.before, result.after), strict=True):
        window = " to ".join(map(local_time.cell, (side.window.begin_us, side.window.end_us)))
        which = f"{side.name}, {window}" if group else window
        exposure = wording.exposure(side.exposure, side.hosts)
        terminal.print_line(console, f"{name}: {which}; {exposure}", "dim")
    rows = []
    for row in result.rows:
        compared = row.compared
        sides = (compared.before, compared.after)
        rows.append(
            (
                row.kind,
                " → ".join(str(side.events) for side in sides),
                " → ".join(wording.rate(side.rate) for side in sides),
                "-" if compared.ratio is None else rounded(compared.ratio),
                wording.interval(compared),
                compared.outcome,
            )
        )
    headings = ("kind", "events", wording.unit, "ratio", wording.interval_name, "result")
    terminal.echo_columns(headings, rows, "no events on either side")
    for row in result.rows:
        terminal.print_line(console, f"{row.kind}: {row.answer}")
    for note in result.notes:
        terminal.print_line(console, f"note: {note}", "yellow")


register = session.command(
    compare,
    "In the morning",
    "compare --kind job.failed --at '2026-11-15 14:00'",
    scope=session.Scope.SERVER,
)
