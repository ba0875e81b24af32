"""`overnight pool autoscale`."""

from __future__ import annotations

from typing import Annotated

import typer

from overnight.interfaces.cli import pool_options, pool_view, session

__all__ = ["ORDER", "register"]

# After the module that creates the group.
ORDER = 51
NONE = "none"


def register(cli: typer.Typer) -> None:
    for info in cli.registered_groups:
        if info.name == "pool" and info.typer_instance is not None:
            info.typer_instance.command(
                epilog='Example: overnight pool autoscale ci --miss 1% --max 20 --at "mon-fri 08:00-18:00 = 10"'
            )(autoscale)


def autoscale(
    context: typer.Context,
    pool: pool_options.PoolArgument,
    on: Annotated[bool, typer.Option("--on", help="Turn it on with the defaults.")] = False,
    off: Annotated[bool, typer.Option("--off", help="Remove the policy and keep the size.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what it would decide now, and why; change nothing.")] = False,
    miss: Annotated[str | None, typer.Option("--miss", metavar="SHARE", help="Share of claims that may find no ready host. Default: 1%.")] = None,
    min_size: Annotated[int | None, typer.Option("--min", metavar="N", help="Minimum target. Default: the pool's.")] = None,
    max_size: Annotated[int | None, typer.Option("--max", metavar="N", help="Maximum target. Default: the pool's.")] = None,
    at: Annotated[list[str] | None, typer.Option("--at", metavar="TIMES", help="Minimum target at times of the week: 'mon-fri 08:00-18:00 Europe/Berlin = 10'; none: remove all (repeatable).")] = None,
    window: Annotated[str | None, typer.Option("--window", metavar="DURATION", help="Time over which claims are counted. Default: 20m.")] = None,
    cooldown: Annotated[str | None, typer.Option("--cooldown", metavar="DURATION", help="Time for which a size is kept after it was needed. Default: 15m.")] = None,
    zero_after: Annotated[str | None, typer.Option("--zero-after", metavar="DURATION", help="Time without a claim after which the target is 0; none: never.")] = None,
    burst: Annotated[str | None, typer.Option("--burst", metavar="MEAN[:SPREAD]", help="Claims that arrive together: 5, 5:2.")] = None,
    warmup: Annotated[str | None, typer.Option("--warmup", metavar="DURATION", help="Warm-up time instead of the measured one; none: measured.")] = None,
    database: pool_options.DatabaseOption = "",
    output: session.OutputOption = session.Output.TEXT,
) -> int:  # fmt: skip
    """Show or set how a pool's size follows demand and schedule.

    Options that are left out keep their values. `overnight pool serve` decides every few seconds.
    """
    from overnight.app import pools

    current: session.Session = context.obj
    durations = {
        "window_seconds": window,
        "cooldown_seconds": cooldown,
        "zero_after_seconds": zero_after,
        "warm_up_seconds": warmup,
    }
    clear = tuple(n for n in ("zero_after_seconds", "warm_up_seconds") if durations[n] == NONE)
    mean, spread = (None, None) if burst is None else pool_options.parse_burst(burst)
    change = pools.AutoscaleChange(
        miss=None if miss is None else pool_options.parse_share(miss),
        min_size=min_size,
        max_size=max_size,
        openings=None if at is None else [text for text in at if text != NONE],
        burst_mean=mean,
        burst_spread=spread,
        clear=clear,
        **{name: _seconds(text) for name, text in durations.items() if name not in clear},
    )
    plane = pools.open_plane(current.home, database)
    report = pools.autoscale(plane, pool, change, on=on, off=off, dry_run=dry_run)
    return pool_view.autoscale(current, report, output)


def _seconds(text: str | None) -> float | None:
    from overnight.model import times

    return None if text is None else times.parse_duration(text)
