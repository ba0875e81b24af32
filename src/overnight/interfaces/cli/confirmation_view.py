"""Requests of assistants that wait for a person, as text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from overnight.interfaces.cli import local_time, pool_options, session, terminal
from overnight.model.text import plural, rounded

if TYPE_CHECKING:
    from overnight.app import confirmations
    from overnight.model.confirmation import Confirmation, Effect

MOST = 20  # names of each kind


def open_confirmations(current: session.Session, database: str) -> confirmations.Confirmations:
    """Return the requests of a database, or of the server."""
    from overnight.app import confirmations

    server = pool_options.find_server(current, database)
    return server.confirmations if server else confirmations.Confirmations(current.home, database)


def show(current: session.Session, *listed: Confirmation) -> None:
    """Print requests; the code comes last, after what it confirms."""
    from overnight.app import confirmations

    if current.printed_json(confirmations.document(*listed)):
        return
    for each in listed:
        until = local_time.format_instant(each.expires_us)
        terminal.echo(f"{each.id}  {each.state}  {each.caller_name} asks, until {until}")
        for line in describe(each.effect):
            terminal.echo(f"  {line}")
        if each.decided_by:
            terminal.echo(f"  {each.state} by {each.decided_by}")
        elif each.code:
            terminal.echo(f"  to confirm: `overnight confirm {each.code[:4]}-{each.code[4:]}`")
        else:
            terminal.echo(f"  another credential with the role {each.role} can confirm it")


def describe(effect: Effect) -> list[str]:
    lines = [effect.summary]
    for label, names in (("ends", effect.ends), ("claims", effect.claims), ("hosts", effect.hosts)):
        if names:
            more = f" and {len(names) - MOST} more" if len(names) > MOST else ""
            lines.append(f"{label}: {', '.join(names[:MOST])}{more}")
    if effect.host_hours is not None:
        price = f", {rounded(effect.cost)} in all" if effect.cost is not None else ""
        lines.append(f"cost: {plural(effect.most_hosts, 'host')}, {rounded(effect.host_hours)} host-hours at most{price}")  # fmt: skip
    lines += effect.concerns[:MOST]
    return lines + [f"{len(effect.concerns) - MOST} more"] * (len(effect.concerns) > MOST)
