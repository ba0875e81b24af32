"""`overnight reservations`."""

from __future__ import annotations

from overnight.interfaces.cli import pool_options, reservation_view, session
from overnight.model import times

ORDER = 48


def list_(
    current: session.Session,
    everything: bool = session.flag("Include released ones.", "--all"),
    database: pool_options.DatabaseOption = "",
) -> None:
    """List reservations with their hosts, the newest first."""
    use = pool_options.open_reservations(current, database)
    reservation_view.listing(current, use.list(ended=everything))


def show(
    current: session.Session,
    reservation_id: str = session.argument(..., "Id of the reservation.", "ID"),
    recent: pool_options.RecentOption = 20,
    database: pool_options.DatabaseOption = "",
) -> int:
    """Show a reservation: hosts, checks, events.

    The exit code is 1 if a check failed.
    """
    use = pool_options.open_reservations(current, database)
    return reservation_view.report(current, use.show(reservation_id, recent=recent))


def check(
    current: session.Session,
    reservation_id: str = session.argument(..., "Id of the reservation.", "ID"),
    load: bool = session.flag("Also run a load on each host, and judge whether it is constant."),
    database: pool_options.DatabaseOption = "",
) -> int:
    """Check the hosts of a reservation now.

    Foreign workloads, marks, agent, clock; with --load also the constancy of a load. The exit code is 1 if a check failed.
    """
    use = pool_options.open_reservations(current, database)
    with current.notes().status("checking …"):
        report = use.check(reservation_id, load=load)
    return reservation_view.report(current, report)


def extend(
    current: session.Session,
    reservation_id: str = session.argument(..., "Id of the reservation.", "ID"),
    for_: str = session.option("4h", "New end, from now.", "DURATION", "--for"),
    database: pool_options.DatabaseOption = "",
    why: pool_options.WhyOption = "",
) -> int:
    """Change the end of an active reservation.

    At most 14 days after it was made.
    """
    use = pool_options.open_reservations(current, database, why)
    report = use.extend(reservation_id, int(times.parse_duration(for_)))
    return reservation_view.report(current, report)


register = session.group(
    "reservations",
    "Show, check and extend reservations of hosts.",
    "Hosts",
    "list",
    ("list", list_, ""),
    ("show", show, "r-5f0c9a41d2b7"),
    ("check", check, "r-5f0c9a41d2b7 --load"),
    ("extend", extend, "r-5f0c9a41d2b7 --for 4h"),
    scope=session.Scope.SERVER,
)
