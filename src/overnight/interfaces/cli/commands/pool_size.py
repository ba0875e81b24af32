"""`overnight pool size`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from overnight import errors
from overnight.interfaces.cli import pool_options, session

if TYPE_CHECKING:
    import rich.console

    from overnight.app import pool_sizing
    from overnight.pools import sizing

__all__ = ["ORDER", "register"]

# Behind the module that makes the group, where there is one.
ORDER = 52
WEEK = "7d"


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
        float | None,
        typer.Option("--claims-per-minute", metavar="N", help="How many claims come, on average."),
    ] = None,
    warmup: Annotated[
        str,
        typer.Option("--warmup", metavar="DURATION", help="From start to ready, mean: 90s, 5m."),
    ] = "",
    pool: Annotated[
        str,
        typer.Option("--pool", metavar="POOL", help="Measured from its history, where not said."),
    ] = "",
    over: Annotated[
        str, typer.Option("--over", metavar="DURATION", help="How far back, with --pool: 7d.")
    ] = "",
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
            help="Claims that come together, and their standard deviation: 5, 5:2. Default: 1.",
        ),
    ] = "",
    callers: Annotated[
        str,
        typer.Option("--callers", help="What who misses does: give-up, or wait (and count)."),
    ] = "give-up",
    cost: Annotated[
        float | None,
        typer.Option("--cost", metavar="PRICE", help="What a host costs an hour, any currency."),
    ] = None,
    database: pool_options.DatabaseOption = "",
    output: session.OutputOption = session.Output.TEXT,
) -> int:
    """How many warm hosts a pool needs, and how often a claim misses at every size.

    The runbook's rule counts the mean demand only; claims come unevenly. Shown are its number, the
    number that keeps the wanted miss rate with a tick, and the one when a claim wakes the pool.
    """
    from overnight.app import pool_sizing, pools
    from overnight.model import times
    from overnight.pools import bursts, sizing

    current: session.Session = context.obj
    if callers not in list(sizing.Callers):
        raise errors.UsageError(
            f"callers cannot {callers!r}",
            why="who finds no ready host gives up, or waits and is counted",
            todo="say --callers give-up or --callers wait",
        )
    if over and not pool:
        raise errors.UsageError(
            "--over goes with --pool",
            why="it says how far back a pool's own claims are counted",
            todo=f"overnight pool size --pool POOL --over {over}",
        )
    seconds = times.parse_duration(interval)
    told = pool_sizing.Told(
        claims_per_minute,
        times.parse_duration(warmup) if warmup else None,
        pool_options.burst(burst) if burst else None,
    )
    known = None
    if pool:
        plane = pools.open_plane(current.home, database)
        known = pool_sizing.measure_demand(
            plane, pool, told, over_s=times.parse_duration(over or WEEK), interval_s=seconds
        )
        told = pool_sizing.Told(known.claims_per_minute, known.warm_up_s, known.burst)
    if told.claims_per_minute is None or told.warm_up_s is None:
        raise errors.UsageError(
            "what the pool is asked for was not said",
            why="a size comes from claims a minute and the warm-up: given, or measured from a pool",
            todo="overnight pool size --pool POOL, or with --claims-per-minute 4 --warmup 90s",
        )
    demand = sizing.Demand(
        told.claims_per_minute,
        told.warm_up_s,
        seconds,
        pool_options.share(miss),
        told.burst or bursts.SINGLE,
        sizing.Callers(callers),
        cost,
    )
    with current.notes().status("playing a million claims …"):
        found = sizing.size(demand)
    if output is session.Output.JSON:
        current.print_json(found.as_json(known.as_json() if known else None))
    else:
        if known is not None:
            show_history(known, current.console())
        show(found, current.console())
    return errors.ExitCode.DONE


def show_history(known: pool_sizing.Known, console: rich.console.Console) -> None:
    """What was measured, over what, how sure it is, and what is taken for granted."""
    from overnight.model import times

    found, length = known.measured, times.format_duration
    missed = f", {known.past.missed:,} of them missed" if known.past.missed else ""
    lines = [
        (
            f"pool {known.pool.name} in the last {length(found.watched_s)}: {found.claims:,} claims{missed}; "
            f"target {known.pool.target_size}"
        ),
        (
            f"  rate      {found.claims_per_minute:.3g} claims a minute, {found.low:.3g} to {found.high:.3g} "
            "with 95 % confidence"
        ),
    ]
    if found.warm_up is not None:
        warm = found.warm_up
        lines.append(
            f"  warm-up   {length(warm.mean)} mean of {warm.count:,}; half below {length(warm.p50)}, "
            f"nine in ten below {length(warm.p90)}"
        )
    uneven = "more than chance: sized for bursts" if found.bursty else "chance alone"
    lines.append(f"  bursts    variance {found.dispersion:.2g} times the mean: {uneven}")
    lines += [f"  assumed   {text}" for text in known.assumed]
    for line in (*lines, ""):
        console.print(line, markup=False, soft_wrap=True)


def show(found: sizing.Sizing, console: rich.console.Console) -> None:
    """The three numbers and what each means, the curve, and what it costs."""
    from overnight.interfaces.cli import miss_curve
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
    for drawn in miss_curve.draw(found, min(console.width, 100)):
        console.print(drawn, no_wrap=True, overflow="crop")
    say("")
    say("█ woken by a claim, callers give up  ▓ tick, they give up  ░ tick, they wait", "dim")
    for line in _money(found) + _care(found):
        say(line)


def _sentences(found: sizing.Sizing) -> list[tuple[str, int, str]]:
    from overnight.interfaces.cli import miss_curve
    from overnight.pools import sizing

    def missing(point: sizing.Point) -> str:
        if found.demand.callers is sizing.Callers.WAIT:
            return f"{miss_curve.share(point.wait)} of claims wait"
        return f"{miss_curve.share(point.give_up.miss)} of claims miss"

    runbook, tick, woken = (found.at(size_) for size_ in found.named)
    awake = miss_curve.share(woken.event_driven.miss)
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
