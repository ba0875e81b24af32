"""`overnight release`."""

from __future__ import annotations

from overnight import errors
from overnight.interfaces.cli import pool_options, reservation_view, session

ORDER = 47


def release(
    current: session.Session,
    ids: list[str] | None = session.argument(None, "Id of the reservation (repeatable).", "ID"),
    everything: bool = session.flag("Release every reservation of the database.", "--all"),
    all_marks: bool = session.flag("Also release hosts of --provider that the database does not know."),
    provider: str = session.option("local", "Platform for --all-marks.", "NAME"),
    where: str = session.option("", "Place for --all-marks, as in `overnight reserve`.", "NAME"),
    region: str = session.option("", "Region for --all-marks.", "NAME"),
    database: pool_options.DatabaseOption = "",
    why: pool_options.WhyOption = "",
    yes: pool_options.YesOption = False,
) -> int:  # fmt: skip
    """Give reserved hosts back.

    Removes the marks of the reservation and nothing else. If the platform does not answer, the exit code is 3:
    overnight serve tries again, and overnight janitor removes the marks when the lease ends.
    """
    from overnight.model.reservation import Order

    if bool(ids) is (everything or all_marks):
        raise errors.UsageError(
            "either ids of reservations or --all must be given",
            why="one of them says what to release",
            todo="overnight reservations list",
        )
    use = pool_options.open_reservations(current, database, why)
    note, cleaning = reservation_view.progress(current), None
    released = tuple(use.release(each, progress=note).reservation for each in ids or ())
    if everything:
        released = session.call_confirmed(
            lambda confirmed: use.release_all(confirmed=confirmed, progress=note), yes=yes
        )
    if all_marks:
        order = Order(provider=provider, where=where, region=region)
        cleaning = session.call_confirmed(
            lambda confirmed: use.release_marks(order, confirmed=confirmed), yes=yes
        )
    return reservation_view.released(current, released, cleaning)


register = session.command(release, "Hosts", "release r-5f0c9a41d2b7", scope=session.Scope.SERVER)
