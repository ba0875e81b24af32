"""`overnight confirmations`."""

from __future__ import annotations

from overnight.interfaces.cli import confirmation_view, pool_options, session, terminal

ORDER = 51


def confirmations(current: session.Session, database: pool_options.DatabaseOption = "") -> None:
    """List requests of assistants that wait for a person.

    Each shows the effect of the call now, and the code for people who may confirm it.
    """
    listed = confirmation_view.open_confirmations(current, database).list()
    confirmation_view.show(current, *listed)
    if not listed and current.output is session.Output.TEXT:
        terminal.echo("no assistant waits for a confirmation")


register = session.command(confirmations, "Fleet", "confirmations", scope=session.Scope.SERVER)
