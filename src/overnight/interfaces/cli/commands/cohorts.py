from __future__ import annotations

from overnight.interfaces.cli import fleet_view, profile_options, session
from overnight.model.text import fraction, percent, plural, rounded

ORDER = 34
HEADINGS = ("cohort", "hosts with it", "events (expected)", "host days", "rate vs others", "p")
P = (
    "p: how often chance alone gives any cohort such an excess, or so few, with hosts assigned to cohorts at random; "
    "chance does not explain 0.05 or less"
)


def cohorts(
    current: session.Session,
    kind: fleet_view.KindOption = "",
    begin: profile_options.BeginOption = "",
    end: profile_options.EndOption = "",
    limit: profile_options.LimitOption = 10,
) -> None:
    """Find the label that events of a kind follow, or spare.

    Compares the hosts of each zone, image, kernel, instance type, driver and label of yours with all others.
    """
    from overnight.app import fleet_questions

    request = fleet_questions.KindRequest(kind, begin, end)
    result = current.ask(fleet_questions.COHORTS, request)
    rows = [
        (
            " = ".join(f"{label.name} {label.value}" for label in row.labels),
            f"{row.hosts_with_event} of {row.hosts} ({percent(row.hosts_with_event / row.hosts)})",
            f"{row.events} ({rounded(row.expected_events)})",
            f"{row.host_days:,.1f}",
            f"{rounded(row.rate_ratio)}x",
            fraction(row.p),
        )
        for row in result.cohorts[:limit]
    ]
    hidden = len(result.cohorts) - len(rows)
    more = [f"{plural(hidden, 'more cohort')} (--limit)"] if hidden else []
    fleet_view.show(current, result, HEADINGS, rows, *more, P)


register = session.command(
    cohorts, "In the morning", "cohorts --kind net.driver_reset", scope=session.Scope.SERVER
)
