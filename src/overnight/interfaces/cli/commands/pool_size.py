"""`overnight pool size`."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from overnight import errors
from overnight.interfaces.cli import pool_options, session, terminal
from overnight.model import times
from overnight.model.text import plural, rounded

if TYPE_CHECKING:
    import rich.console

    from overnight.app import pool_sizing

# After the module that creates the group.
ORDER = 52
WEEK = "7d"


def size(
    current: session.Session,
    where: pool_options.Pools,
    claims_per_minute: float | None = session.option(None, "Mean number of claims a minute.", "N"),
    warmup: str = session.option("", "Mean time from start to ready: 90s, 5m.", "DURATION"),
    pool: str = session.option("", "Pool whose history provides the missing values.", "POOL"),
    over: str = session.option("", "Length of the history, with --pool. Default: 7d.", "DURATION"),
    interval: str = session.option("60s", "Tick of the reaper.", "DURATION"),
    miss: str = session.option("1%", "Share of claims that may find no ready host.", "SHARE"),
    burst: str = session.option("", "Claims that arrive together, and their standard deviation: 5, 5:2. Default: 1.", "MEAN[:SPREAD]"),
    callers: str = session.option("give-up", "What callers do when no host is ready: give-up or wait."),
    cost: float | None = session.option(None, "Price of a host for an hour, in any currency.", "PRICE"),
    hold: str = session.option("", "Mean time for which a claim holds its host: 20m, 3d.", "DURATION"),
    baseline: float | None = session.option(None, "Claims a minute in quiet hours, for the minimum.", "N"),
    prebaked: str = session.option("", "Warm-up with a pre-baked image. Default: half of it.", "DURATION"),
    wait_cost: float | None = session.option(None, "Price of an hour that a caller waits. Default: 100 times --cost.", "PRICE"),
) -> None:  # fmt: skip
    """Calculate how many warm hosts a pool needs.

    Shows three sizes and the miss rate at each size: the runbook's rule, which covers only the mean demand;
    the size for the given miss rate with a tick; and the size when every claim wakes the pool. Proposes minimum
    and maximum, a pre-baked image, and another tool where a pool is the wrong one.
    """
    from overnight.app import pool_sizing
    from overnight.model.pool import Callers

    if callers not in list(Callers):
        raise errors.UsageError(
            f"invalid --callers {callers!r}",
            why="callers that find no ready host give up, or wait",
            todo="use --callers give-up or --callers wait",
        )
    if over and not pool:
        raise errors.UsageError(
            "--over needs --pool",
            why="it is the length of the pool's history",
            todo=f"overnight pool size --pool POOL --over {over}",
        )
    request = pool_sizing.SizeRequest(
        claims_per_minute=claims_per_minute,
        warm_up_s=times.parse_duration(warmup) if warmup else None,
        burst=pool_options.parse_burst(burst) if burst else None,
        pool=pool,
        over_s=times.parse_duration(over or WEEK),
        interval_s=times.parse_duration(interval),
        miss=pool_options.parse_share(miss),
        callers=Callers(callers),
        cost_per_host_hour=cost,
        hold_s=times.parse_duration(hold) if hold else None,
        baseline_per_minute=baseline,
        prebaked_s=times.parse_duration(prebaked) if prebaked else None,
        wait_cost_per_hour=wait_cost,
    )
    progress = current.notes().status("simulating a million claims …")
    result = pool_sizing.size_pool(where, request, progress)
    if current.printed_json(result):
        return
    if result.measured is not None:
        show_measured(result.measured, current.console())
    show(result.sizing, current.console())
    for line in _describe_advice(result, pool):
        terminal.print_line(current.console(), line)


def show_measured(known: pool_sizing.MeasuredDemand, console: rich.console.Console) -> None:
    """Print the measured values with their time span and confidence, and the assumptions."""
    measured, length = known.measured, times.format_duration
    missed = f", {known.past.missed:,} of them missed" if known.past.missed else ""
    lines = [
        (
            f"pool {known.pool.name} in the last {length(measured.watched_s)}: {measured.claims:,} claims{missed}; "
            f"target {known.pool.target_size}"
        ),
        (
            f"  rate      {measured.claims_per_minute:.3g} claims a minute "
            f"(95 % confidence: {measured.low:.3g} to {measured.high:.3g})"
        ),
    ]
    if measured.warm_up is not None:
        warm = measured.warm_up
        lines.append(
            f"  warm-up   mean {length(warm.mean)} of {warm.count:,}; p50 {length(warm.p50)}, "
            f"p90 {length(warm.p90)}"
        )
    verdict = "significant: sized for bursts" if measured.bursty else "not significant"
    lines.append(f"  bursts    variance {measured.dispersion:.2g} times the mean: {verdict}")
    lines += [f"  assumed   {text}" for text in known.assumed]
    for line in (*lines, ""):
        terminal.print_line(console, line)


def show(sizing: pool_sizing.Sizing, console: rich.console.Console) -> None:
    """Print the three sizes, the curve, and the cost."""
    from overnight.interfaces.cli import miss_curve

    show_line = functools.partial(terminal.print_line, console)
    demand = sizing.demand
    bursts = f" in bursts of {demand.burst.mean:g}" if demand.burst.mean > 1 else ""
    show_line(
        f"{demand.claims_per_minute:g} claims a minute{bursts}, warm-up "
        f"{times.format_duration(demand.warm_up_s)}, a tick every {times.format_duration(demand.interval_s)}; "
        f"{100 * demand.miss:g} % may miss"
    )
    if not demand.claims_per_minute:
        show_line("No claims: 0 hosts. Let the first claim launch one (--cold).")
        return
    show_line("")
    for name, number, text in _describe_sizes(sizing):
        show_line(f"{name:<12}{number:>6,}   {text}")
    show_line("")
    for line in miss_curve.draw(sizing, min(console.width, 100)):
        console.print(line, no_wrap=True, overflow="crop")
    show_line("")
    show_line("█ woken, callers give up  ▓ tick, callers give up  ░ tick, callers wait", "dim")
    for text in _describe_idle(sizing) + _describe_accuracy(sizing):
        show_line(text)


def _describe_sizes(sizing: pool_sizing.Sizing) -> list[tuple[str, int, str]]:
    from overnight.interfaces.cli import miss_curve
    from overnight.model.pool import Callers

    def missing(point: pool_sizing.Point) -> str:
        if sizing.demand.callers is Callers.WAIT:
            return f"{miss_curve.share(point.wait)} of claims wait"
        return f"{miss_curve.share(point.give_up.miss)} of claims miss"

    runbook, tick, woken = (sizing.at(number) for number in sizing.named)
    saved = sizing.recommended - sizing.recommended_event_driven
    fewer = f", {saved:,} fewer hosts" if saved > 0 else ""
    return [
        ("runbook", runbook.size, f"{missing(runbook)}: the rule covers only the mean demand"),
        ("with a tick", tick.size, f"{missing(tick)}: the smallest size within the limit"),
        (
            "woken",
            woken.size,
            f"{miss_curve.share(woken.event_driven.miss)} miss if every claim wakes the pool{fewer}",
        ),
    ]


def _describe_idle(sizing: pool_sizing.Sizing) -> list[str]:
    best = sizing.at(sizing.recommended)
    woken = sizing.at(sizing.recommended_event_driven)
    tick, wake = (
        f"{best.idle:.1f} of {best.size:,}",
        f"{woken.idle_event_driven:.1f} of {woken.size:,}",
    )
    lines = [f"Idle on average: {tick} with a tick, {wake} woken."]
    if sizing.demand.cost_per_host_hour is not None:
        month = sizing.demand.cost_per_host_hour * times.MONTH_HOURS
        lines.append(
            f"Idle cost a month ({times.MONTH_HOURS:g} h): {best.idle * month:,.2f} with a tick, "
            f"{woken.idle_event_driven * month:,.2f} woken."
        )
    return lines


def _describe_advice(result: pool_sizing.SizeResult, pool: str) -> list[str]:
    """Return the proposed sizes, the savings of a pre-baked image, and other tools."""
    advice, demand, lines = result.advice, result.sizing.demand, list[str]()
    length, faster = times.format_duration, advice.prebaked
    if faster is not None:
        command = f"update {pool}" if pool else "create NAME --template NAME"
        sizes = f"--target {advice.target_size} --min {advice.min_size} --max {advice.max_size}"
        quiet, held = advice.usage.baseline_per_minute, advice.usage.hold_s
        floor = f"{rounded(quiet)} claims a minute" if quiet else "one host"
        hold = f"for {length(demand.traffic.refill_s if held is None else held)}"
        hold += ", assumed: give --hold" if held is None else ""
        cost = "" if advice.max_cost_per_hour is None else f"; costs {advice.max_cost_per_hour:,.2f} an hour"  # fmt: skip
        lines += [
            "",
            f"Proposed: `overnight pool {command} {sizes}`",
            f"  min {advice.min_size}: {floor} in quiet hours",
            f"  max {advice.max_size}: the target and {advice.claimed_at_once} claimed at once ({hold}){cost}",
        ]
        money = "" if faster.cost_per_month is None else f", {faster.cost_per_month:,.2f}"
        saved = f"saves {plural(faster.hosts_saved, 'host')}, {faster.host_hours_per_month:,.0f} host-hours{money} a month"  # fmt: skip
        saved = saved if faster.hosts_saved > 0 else "saves no host"
        lines.append(
            f"Pre-bake the image: a warm-up of {length(faster.warm_up_s)} needs {faster.recommended_event_driven:,} instead of "
            f"{advice.target_size:,}; it {saved}."
        )
    for misfit in advice.misfits:
        lines += [f"A pool is the wrong tool: {misfit.what}.", f"  instead: {misfit.instead}"]
    return lines


def _describe_accuracy(sizing: pool_sizing.Sizing) -> list[str]:
    methods = {point.give_up.method for point in sizing.curve}
    if "simulation" in methods:
        error = sizing.at(sizing.recommended).give_up.error
        return [
            f"'give up' is simulated: 1 M claims, standard error {100 * error:.2g} points with a tick."
        ]
    if "bound" in methods:
        return [
            "'give up' is shown by its upper bound, 'wait': this pool is too large to simulate."
        ]
    return []


register = pool_options.commands(
    (pool_options.takes_pools(size), "size --claims-per-minute 4 --warmup 90s")
)
