"""`overnight pool size`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated

import typer

from overnight import errors
from overnight.interfaces.cli import session

if TYPE_CHECKING:
    import rich.console

    from overnight.pools import bursts, sizing

__all__ = ["ORDER", "register"]

# Behind the module that makes the group, where there is one.
ORDER = 52
SHARE = re.compile(r"(\d{1,15}(?:\.\d{1,15})?(?:e-?\d{1,2})?)\s*(%?)", re.ASCII | re.IGNORECASE)


def register(cli: typer.Typer) -> None:
    """Add the command to the group of pools, which is made here when nobody made it before."""
    made = [info.typer_instance for info in cli.registered_groups if info.name == "pool"]
    group = made[0] if made and made[0] is not None else _group(cli)
    group.command(epilog="Example: overnight pool size --claims-per-minute 4 --warmup 90s")(size)


def _group(cli: typer.Typer) -> typer.Typer:
    group = typer.Typer(no_args_is_help=True)
    group.callback()(lambda: None)  # a group stays one, with a single command in it
    cli.add_typer(
        group,
        name="pool",
        rich_help_panel="Hosts",
        help="Warm pools: hosts that are ready before anybody asks for them.",
        epilog="Example: overnight pool size --claims-per-minute 4 --warmup 90s",
    )
    return group


def size(
    context: typer.Context,
    claims_per_minute: Annotated[
        float,
        typer.Option("--claims-per-minute", metavar="N", help="How many claims come, on average."),
    ],
    warmup: Annotated[
        str,
        typer.Option("--warmup", metavar="DURATION", help="From start to ready, mean: 90s, 5m."),
    ],
    interval: Annotated[
        str, typer.Option("--interval", metavar="DURATION", help="How often the tick replenishes.")
    ] = "60s",
    miss: Annotated[
        str,
        typer.Option("--miss", metavar="SHARE", help="How many claims may find no ready host."),
    ] = "1%",
    burst: Annotated[
        str,
        typer.Option(
            "--burst",
            metavar="MEAN[:SPREAD]",
            help="Claims that come together, and their standard deviation: 5, 5:2.",
        ),
    ] = "1",
    callers: Annotated[
        str,
        typer.Option("--callers", help="What who misses does: give-up, or wait (and count)."),
    ] = "give-up",
    cost: Annotated[
        float | None,
        typer.Option("--cost", metavar="PRICE", help="What a host costs an hour, any currency."),
    ] = None,
    output: session.OutputOption = session.Output.TEXT,
) -> int:
    """How many warm hosts a pool needs, and how often a claim misses at every size.

    The runbook's rule counts the mean demand only; claims come unevenly. Shown are its number, the
    number that keeps the wanted miss rate with a tick, and the one when a claim wakes the pool.
    """
    from overnight.model import times
    from overnight.pools import sizing

    current: session.Session = context.obj
    if callers not in list(sizing.Callers):
        raise errors.UsageError(
            f"callers cannot {callers!r}",
            why="who finds no ready host gives up, or waits and is counted",
            todo="say --callers give-up or --callers wait",
        )
    demand = sizing.Demand(
        claims_per_minute,
        times.parse_duration(warmup),
        times.parse_duration(interval),
        parse_share(miss),
        parse_burst(burst),
        sizing.Callers(callers),
        cost,
    )
    with current.notes().status("playing a million claims …"):
        found = sizing.size(demand)
    if output is session.Output.JSON:
        current.print_json(found.as_json())
    else:
        show(found, current.console())
    return errors.ExitCode.DONE


def parse_share(text: str) -> float:
    """A share of claims: `1%`, `0.5 %`, `0.01`.

    >>> parse_share("1%"), parse_share("0.05")
    (0.01, 0.05)
    """
    found = SHARE.fullmatch(text.strip())
    if found is None:
        raise errors.UsageError(
            f"{text!r} is not a share",
            why="a share is a number with % behind it, or a number between 0 and 1",
            todo="write it like 1% or 0.01",
        )
    return float(found[1]) / (100 if found[2] else 1)


def parse_burst(text: str) -> bursts.Burst:
    """Mean and spread of what comes together: `5`, `5:2`."""
    from overnight.pools import bursts

    mean, _, spread = text.partition(":")
    try:
        return bursts.Burst(float(mean), float(spread or "0"))
    except ValueError:
        raise errors.UsageError(
            f"{text!r} is not a burst",
            why="a burst is the mean number of claims that come together, and their spread",
            todo="write it like --burst 5 or --burst 5:2",
        ) from None


def show(found: sizing.Sizing, console: rich.console.Console) -> None:
    """The three numbers and what each means, the curve, and what it costs."""
    from overnight.interfaces.cli import misscurve
    from overnight.model import times

    def say(text: str, style: str = "") -> None:
        console.print(text, style=style or None, markup=False)

    demand = found.demand
    together = f" in bursts of {demand.burst.mean:g}" if demand.burst.mean > 1 else ""
    say(
        f"{demand.claims_per_minute:g} claims a minute{together}, warm-up "
        f"{times.format_duration(demand.warm_up_s)}, a tick every {times.format_duration(demand.interval_s)}; "
        f"{100 * demand.miss:g} % may miss"
    )
    if not demand.claims_per_minute:
        say("Nobody claims: 0 hosts. Let the first claim start one.")
        return
    say("")
    for name, size_, text in _sentences(found):
        say(f"{name:<12}{size_:>6,}   {text}")
    say("")
    for drawn in misscurve.draw(found, min(console.width, 100)):
        console.print(drawn, no_wrap=True, overflow="crop")
    say("")
    say("█ woken by a claim, callers give up  ▓ tick, they give up  ░ tick, they wait", "dim")
    for line in _money(found) + _care(found):
        say(line)


def _sentences(found: sizing.Sizing) -> list[tuple[str, int, str]]:
    from overnight.interfaces.cli import misscurve
    from overnight.pools import sizing

    def missing(point: sizing.Point) -> str:
        if found.demand.callers is sizing.Callers.WAIT:
            return f"{misscurve.share(point.wait)} of claims wait"
        return f"{misscurve.share(point.give_up.miss)} of claims miss"

    runbook, tick, woken = (found.at(size_) for size_ in found.named)
    awake = misscurve.share(woken.event_driven.miss)
    saved = found.recommended - found.recommended_event_driven
    fewer = f", {saved:,} fewer" if saved > 0 else ""
    return [
        ("runbook", runbook.size, f"{missing(runbook)}: the rule is the mean demand only"),
        ("with a tick", tick.size, f"{missing(tick)}: the smallest that is good enough"),
        ("woken", woken.size, f"{awake} miss when every claim wakes the pool{fewer}"),
    ]


def _money(found: sizing.Sizing) -> list[str]:
    from overnight.pools import sizing

    best = found.at(found.recommended)
    awake = found.at(found.recommended_event_driven)
    text = (
        f"Ready and idle on average: {best.idle:.1f} of {best.size:,} with a tick, "
        f"{awake.idle_event_driven:.1f} of {awake.size:,} woken."
    )
    lines = [text]
    cost = found.demand.cost_per_host_hour
    if cost is not None:
        month = cost * sizing.MONTH_H
        lines.append(
            f"Idle cost a month (730 h): {best.idle * month:,.2f} with a tick, "
            f"{awake.idle_event_driven * month:,.2f} woken."
        )
    return lines


def _care(found: sizing.Sizing) -> list[str]:
    """How sure the numbers are, where they are not exact."""
    used = {point.give_up.method for point in found.curve}
    if "simulation" in used:
        error = found.at(found.recommended).give_up.error
        return [
            f"'give up' is simulated: 1 M claims, standard error {100 * error:.2g} points with a tick."
        ]
    if "bound" in used:
        return ["'give up' is told by its upper bound, 'wait': a pool this large is not played."]
    return []
