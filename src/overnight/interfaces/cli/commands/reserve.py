"""`overnight reserve`."""

from __future__ import annotations

import functools
import getpass
import pathlib
import platform

from overnight.interfaces.cli import pool_options, reservation_view, session
from overnight.model import times
from overnight.model.reservation import MAX_SECONDS

ORDER = 46


def reserve(
    current: session.Session,
    provider: str = session.option("local", "Platform of the hosts.", "NAME"),
    where: str = session.option("", "Cluster, group, pool or image; see docs/reservations.md.", "NAME"),
    region: str = session.option("", "Region of the platform.", "NAME"),
    hosts: list[str] | None = session.option(None, "Host to reserve; default: any that fit (repeatable).", "HOST", "--host"),
    count: int = session.option(1, "Number of hosts: all of them, or none.", "N"),
    labels: list[str] | None = session.option(None, "Label that a host must have (repeatable).", "NAME=VALUE", "--label"),
    zone: str = session.option("", "Zone of the hosts.", "NAME"),
    instance_type: str = session.option("", "Instance type of the hosts.", "NAME", "--type"),
    min_uptime: str = session.option("0", "Minimum uptime, such as 5d.", "DURATION"),
    max_uptime: str = session.option("0", "Maximum uptime, such as 12h; 0: no limit.", "DURATION"),
    allow_unhealthy: bool = session.flag("Include unhealthy hosts."),
    evict: bool = session.flag("Evict what runs there, within its disruption budgets."),
    no_execute: bool = session.flag("Kubernetes: also taint NoExecute, once the host is empty."),
    detach: bool = session.flag("EC2: detach from the group instead of standby."),
    reference: str = session.option("", "Host of production, or a file of `overnight snapshot`, to compare with.", "HOST|FILE"),
    for_: str = session.option("12h", "Lease duration; the hosts are given back after it.", "DURATION", "--for"),
    renew: bool = session.flag("Renew the lease while `overnight serve` runs."),
    at_most: str = session.option("14d", "End of a renewed lease, from now.", "DURATION"),
    wait: str = session.option("15m", "Maximum time until every host is held and empty.", "DURATION"),
    agent: bool = session.flag("Start an agent on hosts where none runs."),
    agent_server: str = session.option("", "Server of the agents that are started. Default: --server.", "URL"),
    owner: str = session.option("", "Owner, written on the hosts. Default: USER@HOST, or the name of the token.", "WHO"),
    purpose: str = session.option("", "Purpose, written on the hosts.", "TEXT"),
    dry_run: bool = session.flag("Show what would happen, and exit."),
    database: pool_options.DatabaseOption = "",
    why: pool_options.WhyOption = "",
    yes: pool_options.YesOption = False,
) -> int:  # fmt: skip
    """Take hosts out of production for a while.

    Claims, marks and empties them by the mechanism of their platform. Owner and expiry are written on each host:
    overnight janitor gives it back at that time, whatever happens to this process.
    """
    from overnight.model.reservation import Order

    use = pool_options.open_reservations(current, database, why)
    here = "" if current.server else f"{getpass.getuser()}@{platform.node()}"
    file = pathlib.Path(reference) if reference and pathlib.Path(reference).is_file() else None
    order = Order(
        provider=provider, where=where, region=region, hosts=tuple(hosts or ()), count=count,
        labels=pool_options.parse_labels(labels) or {}, zone=zone, instance_type=instance_type,
        min_uptime_seconds=times.parse_duration(min_uptime),
        max_uptime_seconds=times.parse_duration(max_uptime), allow_unhealthy=allow_unhealthy, evict=evict,
        no_execute=no_execute, detach=detach, reference="" if file else reference,
        seconds=int(times.parse_duration(for_)), renew=renew,
        max_seconds=int(times.parse_duration(at_most)) if renew else MAX_SECONDS,
        prepare_seconds=int(times.parse_duration(wait)), start_agent=agent, agent_server=agent_server,
        owner=owner or here, purpose=purpose,
    )  # fmt: skip
    with current.notes().status("reading the platform …"):
        plan = use.preflight(order, file)
    if dry_run:
        return reservation_view.plan(current, plan)
    note = reservation_view.progress(current)
    call = functools.partial(use.reserve, order, plan=plan, progress=note)
    return reservation_view.report(current, session.call_confirmed(call, yes=yes))


register = session.command(
    reserve,
    "Hosts",
    "reserve --provider kubernetes --where prod --count 2 --for 12h --evict --dry-run",
    scope=session.Scope.SERVER,
)
