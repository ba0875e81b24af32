from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from overnight import errors
from overnight.interfaces.cli import profile_options, session, terminal
from overnight.model.text import plural

if TYPE_CHECKING:
    import rich.console

    from overnight.app import drift as fleet_drift

ORDER = 36
MAX_ITEMS = 5


def drift(
    current: session.Session,
    sick: list[str] | None = session.option(None, "Sick host (repeatable).", "HOST"),
    kind: str = session.option(
        "", "Event kind that makes a host sick: net.driver_reset, or net. for all.", "KIND"
    ),
    unit: str = session.option(
        "", "Unit: compare hosts where it is active with the others.", "UNIT"
    ),
    against: str = session.option(
        "", "Compare with the hosts of this label only: a spared zone.", "NAME=VALUE"
    ),
    check: bool = session.flag("Exit with 1 when a difference is found."),
    limit: profile_options.LimitOption = 20,
) -> int:
    """Find what sets sick hosts apart from healthy ones.

    Compares the snapshots of a data home with many hosts. Without --sick, --kind and --unit, a host with a
    critical event is sick.
    """
    from overnight.app import drift as fleet_drift

    request = fleet_drift.Request(tuple(sick or ()), kind, unit, against)
    result = current.ask(fleet_drift.QUESTION, request)
    if not current.printed_json(result.as_json(limit)):
        _show(result, limit, current.console())
    failed = check and result.comparison.significant
    return errors.ExitCode.FOUND if failed else errors.ExitCode.DONE


def _show(result: fleet_drift.Drift, limit: int, console: rich.console.Console) -> None:
    show = functools.partial(terminal.print_line, console)
    comparison = result.comparison
    sick, healthy = result.groups
    show(f"{sick}: {_names(comparison.sick)}")
    show(f"{healthy}: {_names(comparison.healthy)}")
    if comparison.without_snapshot:
        show(f"without a snapshot: {_names(comparison.without_snapshot)}", "yellow")
    # Those that chance explains would only hide one that it does not explain.
    shown = (comparison.significant or comparison.differences)[:limit]
    for difference in shown:
        column = difference.column
        show(
            f"{column.sick_with}/{column.sick} {sick}, {column.healthy_with}/{column.healthy} {healthy}  "
            f"{difference.name}",
            "bold red" if difference.is_significant else None,
        )
        show(
            f"    p {column.p_max:.2g} corrected for {plural(comparison.columns, 'difference')} ({column.p:.2g} alone, "
            f"q {column.q:.2g}), lift {column.lift:.1f}, log-odds at least {column.low:.2f}",
            "dim",
        )
        for other in difference.others[:MAX_ITEMS]:
            show(f"    together with: {other}", "dim")
        if len(difference.others) > MAX_ITEMS:
            show(f"    and {len(difference.others) - MAX_ITEMS} more, in -O json", "dim")
    if more := len(comparison.significant or comparison.differences) - len(shown):
        show(f"{plural(more, 'more difference')} (--limit)")
    for unit, hosts in result.never_active.items():
        show(
            f"{unit} is enabled, but was never active on {plural(len(hosts), 'host')}: an audit of "
            f"{hosts[0]} shows why (never-active)",
            "yellow",
        )
    for step, failed in result.boot_errors.items():
        show(f"{step} failed on {failed.host}: {failed.error}", "yellow")
    for part, count in result.unrecorded.items():
        show(f"not recorded: {part} on {plural(count, 'host')}", "yellow")
    for problem in result.problems:
        show(f"not read: {problem}", "yellow")
    if comparison.why:
        show(comparison.why, "bold")
    elif comparison.significant:
        show(
            f"chance does not explain {len(comparison.significant)} of {comparison.columns} differences; "
            "-O json lists the others",
            "bold",
        )
    else:
        show(
            f"no significant difference: chance explains each of the {comparison.columns} "
            f"(smallest attainable p: {comparison.smallest_p:.2g})",
            "bold",
        )


def _names(hosts: tuple[str, ...]) -> str:
    more = [f"and {len(hosts) - 10} more"] if len(hosts) > 10 else []
    names = f": {', '.join(hosts[:10])}" if hosts else ""
    return " ".join([f"{plural(len(hosts), 'host')}{names}", *more])


register = session.command(
    drift, "In the morning", "drift --kind net.driver_reset", scope=session.Scope.SERVER
)
