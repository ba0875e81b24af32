"""`overnight pool autoscale`."""

from __future__ import annotations

from overnight.app import pools
from overnight.interfaces.cli import pool_options, pool_view, session
from overnight.model import times

# After the module that creates the group.
ORDER = 51
NONE = "none"


def autoscale(
    current: session.Session,
    where: pool_options.Pools,
    pool: pool_options.PoolArgument,
    on: bool = session.flag("Turn it on with the defaults."),
    off: bool = session.flag("Remove the policy and keep the size."),
    dry_run: bool = session.flag("Show the decision and its reason; change nothing."),
    miss: str | None = session.option(None, "Share of claims that may find no ready host. Default: 1%.", "SHARE"),
    min_size: int | None = session.option(None, "Minimum target. Default: the pool's.", "N", "--min"),
    max_size: int | None = session.option(None, "Maximum target. Default: the pool's.", "N", "--max"),
    at: list[str] | None = session.option(None, "Minimum target at times of the week: 'mon-fri 08:00-18:00 Europe/Berlin = 10'; none: remove all (repeatable).", "TIMES"),
    window: str | None = session.option(None, "Time over which claims are counted. Default: 20m.", "DURATION"),
    cooldown: str | None = session.option(None, "Time for which a size is kept after it was needed. Default: 15m.", "DURATION"),
    zero_after: str | None = session.option(None, "Time without a claim after which the target is 0; none: never.", "DURATION"),
    burst: str | None = session.option(None, "Claims that arrive together: 5, 5:2.", "MEAN[:SPREAD]"),
    warmup: str | None = session.option(None, "Warm-up time instead of the measured one; none: measured.", "DURATION"),
) -> None:  # fmt: skip
    """Show or set how a pool's size follows demand and schedule.

    Options that are left out keep their values. `overnight pool serve` decides every few seconds.
    """
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
    report = where.autoscale(pool, change, on=on, off=off, dry_run=dry_run)
    pool_view.autoscale(current, report)


def _seconds(text: str | None) -> float | None:
    return None if text is None else times.parse_duration(text)


register = pool_options.commands(
    (
        pool_options.takes_pools(autoscale, changes=True),
        'autoscale ci --miss 1% --max 20 --at "mon-fri 08:00-18:00 = 10"',
    )
)
