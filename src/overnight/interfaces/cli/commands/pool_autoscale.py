"""`overnight pool autoscale`."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from overnight import errors
from overnight.interfaces.cli import pool_options, pool_view, session

__all__ = ["ORDER", "register"]

# Behind the module that makes the group.
ORDER = 51
NONE = "none"


def register(cli: typer.Typer) -> None:
    """Add the command to the group of pools."""
    for info in cli.registered_groups:
        if info.name == "pool" and info.typer_instance is not None:
            info.typer_instance.command(
                epilog='Example: overnight pool autoscale ci --miss 1% --max 20 --at "mon-fri 08:00-18:00 = 10"'
            )(autoscale)


def autoscale(
    context: typer.Context,
    pool: pool_options.PoolArgument,
    on: Annotated[bool, typer.Option("--on", help="Follow, with what is said and the defaults.")] = False,
    off: Annotated[bool, typer.Option("--off", help="No longer: the size stays as it is.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="What it would decide now, and why; nothing is changed.")] = False,
    miss: Annotated[str | None, typer.Option("--miss", metavar="SHARE", help="How many claims may find none ready: 1%.")] = None,
    min_size: Annotated[int | None, typer.Option("--min", metavar="N", help="Never a smaller target. Default: the pool's.")] = None,
    max_size: Annotated[int | None, typer.Option("--max", metavar="N", help="Never a larger target. Default: the pool's.")] = None,
    at: Annotated[list[str] | None, typer.Option("--at", metavar="TIMES", help="At least so many then: 'mon-fri 08:00-18:00 Europe/Berlin = 10'; again for more; none.")] = None,
    window: Annotated[str | None, typer.Option("--window", metavar="DURATION", help="How far back claims are counted: 20m.")] = None,
    cooldown: Annotated[str | None, typer.Option("--cooldown", metavar="DURATION", help="How long a size that was wanted is kept: 15m.")] = None,
    zero_after: Annotated[str | None, typer.Option("--zero-after", metavar="DURATION", help="None ready after so long without a claim; none: never.")] = None,
    burst: Annotated[str | None, typer.Option("--burst", metavar="MEAN[:SPREAD]", help="Claims that come together: 5, 5:2.")] = None,
    warmup: Annotated[str | None, typer.Option("--warmup", metavar="DURATION", help="Instead of the one measured; none: measured.")] = None,
    database: pool_options.DatabaseOption = "",
    output: session.OutputOption = session.Output.TEXT,
) -> int:  # fmt: skip
    """Let a pool's size follow its demand and a schedule; without an option, show how it does.

    What is not said stays as it was. `overnight pool serve` decides, every few seconds.
    """
    from overnight.app import pools

    current: session.Session = context.obj
    given = pool_options.given(
        miss=None if miss is None else pool_options.share(miss),
        min_size=min_size,
        max_size=max_size,
        openings=None if at is None else [text for text in at if text != NONE],
        window_seconds=None if window is None else _seconds(window),
        cooldown_seconds=None if cooldown is None else _seconds(cooldown),
    )
    given |= _optional(zero_after_seconds=zero_after, warm_up_seconds=warmup)
    if burst is not None:
        together = pool_options.burst(burst)
        given |= {"burst_mean": together.mean, "burst_spread": together.spread}
    if off and (on or dry_run or given):
        raise errors.UsageError(
            "--off goes with nothing else",
            why="it takes the policy away",
            todo=f"overnight pool autoscale {pool} --off",
        )
    plane = pools.open_plane(current.home, database)
    if off:
        had = plane.autoscale_off(pool)
        said = "autoscale is off" if had else "autoscale was off"
        return pool_view.autoscale(current, plane.show(pool), None, output, said=said)
    shown = plane.show(pool, recent=1)
    if dry_run:
        if shown.autoscale is None and not (given or on):
            raise errors.CannotError(
                f"pool {shown.pool.name} has no autoscale policy",
                why="its size is set by hand",
                todo=f"overnight pool autoscale {pool} --on --dry-run   tries the defaults",
            )
        return pool_view.autoscale(current, shown, plane.outlook(pool, **given), output)
    if not given and not on:
        return pool_view.autoscale(current, shown, None, output)
    plane.autoscale(pool, **given)
    said = f"the size of pool {pool} follows its demand"
    return pool_view.autoscale(current, plane.show(pool, recent=1), None, output, said=said)


def _seconds(text: str) -> float:
    from overnight.model import times

    return times.parse_duration(text)


def _optional(**texts: str | None) -> dict[str, Any]:
    """Durations that can be taken back with `none`."""
    return {
        name: None if text == NONE else _seconds(text)
        for name, text in texts.items()
        if text is not None
    }
