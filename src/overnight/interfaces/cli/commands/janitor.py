"""`overnight janitor`."""

from __future__ import annotations

from overnight import errors
from overnight.interfaces.cli import reservation_view, session, terminal, unit_options

ORDER = 49


def janitor(
    current: session.Session,
    provider: str = session.option("local", "Platform of the hosts.", "NAME"),
    where: str = session.option("", "Cluster, group, pool or image, as in `overnight reserve`.", "NAME"),
    region: str = session.option("", "Region of the platform.", "NAME"),
    dry_run: bool = session.flag("Show what would be released, and exit."),
    print_unit: bool = session.flag(unit_options.UNIT),
    print_timer: bool = session.flag("Print the systemd timer of that unit, and exit."),
) -> int:  # fmt: skip
    """Give back hosts whose reservation has ended.

    Needs only the platform: owner and expiry are written on each host. Run it every few minutes. It removes nothing but
    marks of overnight whose lease ended two minutes ago or more. The exit code is 3 if the platform does not answer.
    """
    from overnight.app import reservations, units
    from overnight.model.reservation import Order

    if print_unit:
        unit_options.print_unit(current, "janitor")
        return errors.ExitCode.DONE
    if print_timer:
        terminal.echo(units.read_timer("janitor"), keep="\n", nl=False)
        return errors.ExitCode.DONE
    order = Order(provider=provider, where=where, region=region)
    cleaning = reservations.clean(current.home, order, dry_run=dry_run)
    return reservation_view.cleaning(current, cleaning)


register = session.command(janitor, "Hosts", "janitor --provider kubernetes --where prod")
