"""`overnight confirm`."""

from __future__ import annotations

from overnight.interfaces.cli import confirmation_view, pool_options, session

ORDER = 52


def confirm(
    current: session.Session,
    code: str = session.argument(..., "Code of the request.", "CODE"),
    decline: bool = session.flag("Refuse it instead."),
    database: pool_options.DatabaseOption = "",
) -> None:
    """Confirm a request of an assistant.

    The assistant may then make exactly this call once, within five minutes, unless the state changes.
    """
    use = confirmation_view.open_confirmations(current, database)
    confirmation_view.show(current, use.decline(code) if decline else use.confirm(code))


register = session.command(confirm, "Fleet", "confirm K7QM-2XPD", scope=session.Scope.SERVER)
