from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from overnight import errors
from overnight.interfaces.cli import session, terminal
from overnight.model import times

if TYPE_CHECKING:
    import rich.console

    from overnight.app import census as cgroup_census

ORDER = 12
COLOURS = {"ok": "green", "warning": "yellow", "critical": "red"}


def census(
    current: session.Session,
    duration: str | None = session.option(
        None,
        "Time to measure growth: 10s, 5m. Default: 10s, and the running recording.",
        "DURATION",
        "--for",
    ),
    watch: bool = session.flag("Repeat until Ctrl-C, one line each time."),
    root: session.RootOption = session.ROOT,
) -> int:
    """Count dying (zombie) memory cgroups.

    Compares the memory cgroups that the kernel tracks with those in use. Shows their growth, their parent, the
    unit that creates them, and when they become critical. Exits with 1 if there are too many.
    """
    from overnight.app import census as cgroup_census

    seconds = times.parse_duration("10s" if duration is None else duration)
    if watch and current.output is session.Output.JSON:
        raise errors.UsageError(
            "--watch cannot be combined with -O json",
            why="a JSON document is one census",
            todo="leave --watch out",
        )
    while True:
        with current.notes().status(f"measuring for {times.format_duration(seconds)} …"):
            trend = duration is None and not watch
            history = cgroup_census.read_history(current.home, root) if trend else ()
            report = cgroup_census.take(root, seconds=seconds, history=history)
        if not current.printed_json(report):
            console = current.console()
            console.print(_line(report), soft_wrap=True)
            if not watch:
                _show(report, console)
        if not watch:
            return errors.ExitCode.DONE if report.severity == "ok" else errors.ExitCode.FOUND


def _line(report: cgroup_census.Report) -> str:
    growth = ""
    if report.growth_per_hour is not None:
        over = times.format_duration(report.measured_s)
        growth = f"; {round(report.growth_per_hour):+,} an hour, measured over {over}"
    return (
        f"[{COLOURS[report.severity]}]{report.severity}[/]: {report.tracked:,} tracked against "
        f"{report.in_use:,} in use ({report.ratio:.1f}x), {report.dying:,} dying{growth}"
    )


def _show(report: cgroup_census.Report, console: rich.console.Console) -> None:
    show = functools.partial(terminal.print_line, console)
    for reason in report.reasons:
        show(f"  {reason}")
    if report.parents:
        exact = all(parent.counted for parent in report.parents)
        show("")
        show("Dying cgroups by parent" + ("" if exact else " (estimated from their memory)"))
        for parent in report.parents:
            bounds = "" if parent.counted else f"  ({parent.at_least:,} to {parent.at_most:,})"
            show(f"  {parent.dying:>9,}  {parent.path}{bounds}")
    located = sum(parent.dying for parent in report.parents)
    if located < report.dying:
        show(f"  {report.dying - located:>9,}  not located")
    if report.creators:
        show("")
        show("Created and removed during the census")
        for creator in report.creators:
            share = "" if creator.explains is None else f"  {creator.explains:.0%} of the growth"
            unit = f"  {creator.unit}" if creator.unit != creator.cgroup else ""
            show(
                f"  {creator.births_per_hour:>9,.0f}/h created, {creator.deaths_per_hour:,.0f}/h removed, "
                f"{creator.short_lived} short-lived  {creator.cgroup}{unit}{share}"
            )
    show("")
    show(f"Reading the root's memory statistics takes {report.stat_read_us / 1000:.1f} ms")
    for hours, what in (
        (report.hours_to_critical, "10,000 dying"),
        (report.hours_to_watchdog, "the 5 s limit of a network driver's watchdog"),
    ):
        if hours:
            show(f"At this rate, {what} in {times.format_duration(hours * 3600)}")


register = session.command(census, "Before the night", "census --for 30s")
