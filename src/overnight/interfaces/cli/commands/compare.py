from __future__ import annotations

from overnight.interfaces.cli import local_time, profile_options, session, terminal

ORDER = 37


def register(cli: session.CommandLine) -> None:
    session.add_command(
        cli, compare, "In the morning", "compare --kind job.failed --at '2026-11-15 14:00'"
    )


def _read_span(text: str) -> str:
    """Let BEGIN..END mean local times with --local."""
    return "..".join(map(local_time.read, text.split("..")))


def compare(
    current: session.Session,
    kind: list[str] | None = session.option(
        None, "Kind: job.failed, or job. for all. Default: every kind (repeatable).", "KIND"
    ),
    at: str = session.option("", "Moment of the fix.", "TIME", callback=local_time.read),
    before: str = session.option(
        "", "Time before: until TIME, or BEGIN..END.", "TIME", callback=_read_span
    ),
    after: str = session.option(
        "", "Time after: since TIME, or BEGIN..END.", "TIME", callback=_read_span
    ),
    group: str = session.option("", "Hosts to compare: zone=eu-1, host=db-7.", "LABEL=VALUE"),
    against: str = session.option("", "Hosts to compare with. Default: all others.", "LABEL=VALUE"),
    per: str = session.option("", "Kind that counts as exposure: job.started.", "KIND"),
    label: list[str] | None = session.option(
        None, "Label of the events to count (repeatable).", "NAME=VALUE"
    ),
    begin: profile_options.BeginOption = "",
    end: profile_options.EndOption = "",
    host: profile_options.HostOption = None,
) -> None:
    """Compare rates of events before and after a fix.

    Compares two times, or with --group two groups of hosts, per recorded host-hour or --per KIND.
    """
    from overnight.app import compare as comparison

    result = comparison.compare(
        comparison.Request(
            current.home,
            tuple(kind or ()),
            at,
            before,
            after,
            group,
            against,
            begin,
            end,
            tuple(host or ()),
            tuple(label or ()),
            per,
        )
    )
    if current.printed_json(result):
        return
    console = current.console()
    unit = f"per 1,000 {per}" if per else "a host-day"
    first, second = ("against", "group") if group else ("before", "after")
    sides = f"{first}: {result.before.name}; {second}: {result.after.name}; rates {unit}"
    terminal.print_line(console, sides, "dim")
    rows = []
    for row in result.rows:
        compared = row.compared
        counted = [
            f"{s.events} ({comparison.number(s.rate * row.scale)})"
            for s in (compared.before, compared.after)
        ]
        ratio = "" if compared.ratio is None else comparison.number(compared.ratio)
        rows.append((row.kind, *counted, ratio, row.interval, row.outcome))
    headings = ("event", f"{first} (rate)", f"{second} (rate)", "ratio", "95 % interval", "result")
    terminal.echo(terminal.columns(headings, rows) or "no events on either side", keep="\n")
    for row in result.rows:
        terminal.print_line(console, f"{row.kind}: {row.answer}")
    for note in result.notes:
        terminal.print_line(console, f"note: {note}", "yellow")
