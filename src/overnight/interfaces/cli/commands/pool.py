"""`overnight pool`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from overnight import errors
from overnight.interfaces.cli import pool_options, pool_view, session

if TYPE_CHECKING:
    from collections.abc import Callable

    from overnight.pools import control

__all__ = ["ORDER", "register"]

ORDER = 50

EXAMPLES = {
    "create": "ci --template runner --target 5",
    "list": "",
    "show": "ci",
    "update": "ci --target 8 --set ready_ttl_seconds=600",
    "acquire": "ci --by job-17 --wait 60s",
    "renew": "c-5f0c9a41d2b7 --lease 1h",
    "return": "c-5f0c9a41d2b7",
    "terminate": "m-0a1b2c3d4e5f",
    "drain": "ci",
    "delete": "ci",
    "replenish": "ci",
    "recycle": "ci",
    "member": "m-0a1b2c3d4e5f",
    "cordon": "m-0a1b2c3d4e5f",
    "uncordon": "m-0a1b2c3d4e5f",
    "serve": "--listen 127.0.0.1:8417",
}


def register(cli: typer.Typer) -> None:
    """Add the commands."""
    group = typer.Typer(no_args_is_help=True)
    calls: dict[str, Callable[..., int]] = {
        "create": create, "list": list_, "show": show, "update": update, "acquire": acquire,
        "renew": renew, "return": return_, "terminate": terminate, "drain": drain,
        "delete": delete, "replenish": replenish, "recycle": recycle,
        "member": show_member, "cordon": cordon,
        "uncordon": uncordon, "serve": serve,
    }  # fmt: skip
    for name, call in calls.items():
        example = f"Example: overnight pool {name} {EXAMPLES[name]}".rstrip()
        group.command(name, epilog=example)(call)
    cli.add_typer(
        group,
        name="pool",
        rich_help_panel="Hosts",
        help="Warm pools: hosts that are ready before anybody asks for them.",
        epilog="Example: overnight pool acquire ci --by job-17",
    )


def _plane(context: typer.Context, url: str) -> control.ControlPlane:
    from overnight.app import pools

    current: session.Session = context.obj
    return pools.open_plane(current.home, url)


def create(
    context: typer.Context,
    name: Annotated[str, typer.Argument(metavar="POOL", help="What to call it.")],
    template: Annotated[str, typer.Option("--template", metavar="NAME", help="What members are made from.")],
    target: Annotated[int, typer.Option("--target", metavar="N", help="Members to keep ready or warming.")],
    min_size: pool_options.MinOption = None,
    max_size: pool_options.MaxOption = None,
    provider: Annotated[str, typer.Option("--provider", metavar="NAME", help="Where machines come from.")] = "process",
    lifecycle_class: pool_options.ClassOption = None,
    region: pool_options.RegionOption = None,
    preferred: pool_options.PreferOption = None,
    instance_type: pool_options.TypeOption = None,
    label: pool_options.LabelOption = None,
    knob: pool_options.KnobOption = None,
    database: pool_options.DatabaseOption = "",
    output: session.OutputOption = session.Output.TEXT,
) -> int:  # fmt: skip
    """Make a pool; `overnight pool serve` fills it.

    max_size is target + 10 unless it is said.
    """
    plane = _plane(context, database)
    plane.create(
        name=name, template=template, target_size=target, provider=provider,
        **pool_options.given(lifecycle_class=lifecycle_class, min_size=min_size, max_size=max_size, region=region, preferred_regions=preferred,
                 instance_type=instance_type, labels=pool_options.labels(label)),
        **pool_options.parse_settings(knob),
    )  # fmt: skip
    return pool_view.pool(context.obj, plane, name, output, said=f"pool {name} is there")


def list_(
    context: typer.Context,
    everything: Annotated[bool, typer.Option("--all", help="Archived ones too.")] = False,
    database: pool_options.DatabaseOption = "",
    output: session.OutputOption = session.Output.TEXT,
) -> int:
    """Every pool, with how many of its members are ready, warming and claimed."""
    plane = _plane(context, database)
    return pool_view.pools(context.obj, plane.list(archived=everything), output)


def show(
    context: typer.Context,
    pool: pool_options.PoolArgument,
    recent: pool_options.RecentOption = 20,
    database: pool_options.DatabaseOption = "",
    output: session.OutputOption = session.Output.TEXT,
) -> int:  # fmt: skip
    """One pool: what is wrong and what to do, members, claims, who waits, what happened last.

    Ends with 1 when somebody should be woken for it.
    """
    return pool_view.show(context.obj, _plane(context, database), pool, recent, output)


def update(
    context: typer.Context,
    pool: pool_options.PoolArgument,
    target: pool_options.TargetOption = None,
    min_size: pool_options.MinOption = None,
    max_size: pool_options.MaxOption = None,
    template: pool_options.TemplateOption = None,
    lifecycle_class: pool_options.ClassOption = None,
    region: pool_options.RegionOption = None,
    preferred: pool_options.PreferOption = None,
    instance_type: pool_options.TypeOption = None,
    label: pool_options.LabelOption = None,
    knob: pool_options.KnobOption = None,
    pause: Annotated[bool, typer.Option("--pause", help="No claims and no launches.")] = False,
    resume: Annotated[bool, typer.Option("--resume", help="Active again.")] = False,
    archive: Annotated[bool, typer.Option("--archive", help="Wind it down, out of sight.")] = False,
    close_breaker: Annotated[bool, typer.Option("--close-breaker", help="Launch again after failures.")] = False,
    database: pool_options.DatabaseOption = "",
    output: session.OutputOption = session.Output.TEXT,
) -> int:  # fmt: skip
    """Change a pool. A smaller target ends the oldest idle members; a new template replaces all."""
    chosen = [s for s, on in (("paused", pause), ("active", resume), ("archived", archive)) if on]
    if len(chosen) > 1:
        raise errors.UsageError(
            "only one of --pause, --resume and --archive",
            why="a pool has one status",
            todo="leave out those that are not meant",
        )
    given = pool_options.given(
        target_size=target, min_size=min_size, max_size=max_size, template=template, region=region,
        lifecycle_class=lifecycle_class, preferred_regions=preferred, instance_type=instance_type, labels=pool_options.labels(label), status=chosen[0] if chosen else None,
        close_breaker=close_breaker or None,
    )  # fmt: skip
    given |= pool_options.parse_settings(knob)
    if not given:
        raise errors.UsageError(
            "nothing to change was said", why="every option was left out", todo="overnight pool update --help"
        )  # fmt: skip
    plane = _plane(context, database)
    plane.update(pool, **given)
    return pool_view.pool(context.obj, plane, pool, output, said=f"pool {pool} is changed")


def acquire(
    context: typer.Context,
    pool: pool_options.PoolArgument,
    by: Annotated[str, typer.Option("--by", metavar="WHO", help="Who has it.")] = "",
    for_: Annotated[str, typer.Option("--for", metavar="WHAT", help="What for.")] = "",
    count: Annotated[int, typer.Option("--count", metavar="N", help="So many, or none.")] = 1,
    wait: Annotated[str, typer.Option("--wait", metavar="DURATION", help="Stand in the queue so long.")] = "0",
    priority: Annotated[int, typer.Option("--priority", metavar="N", help="Higher is served first.")] = 0,
    cold: Annotated[bool, typer.Option("--cold", help="Launch one when none is ready, and wait for it.")] = False,
    lease: Annotated[str, typer.Option("--lease", metavar="DURATION", help="It ends then, unless renewed.")] = "",
    key: Annotated[str | None, typer.Option("--key", metavar="KEY", help="The same key gets the same claim.")] = None,
    database: pool_options.DatabaseOption = "",
    output: session.OutputOption = session.Output.TEXT,
) -> int:  # fmt: skip
    """Claim a ready member: nobody else gets it, and the pool makes another."""
    import dataclasses

    from overnight.app import pools
    from overnight.model import times
    from overnight.model.pool import Request

    current: session.Session = context.obj
    asked = Request(
        count=count, acquired_by=by, acquired_for=for_, priority=priority, cold=cold,
        wait_seconds=times.parse_duration(wait), idempotency_key=key,
        lease_seconds=pool_options.seconds(lease, "--lease") if lease else None,
    )  # fmt: skip
    granted = pools.claim_quickly(current.home, database, pool, asked)
    if granted is not None:
        return pool_view.claims(current, (granted,), output)
    plane = _plane(context, database)
    if cold:
        pools.require_endpoint(plane)
    return pool_view.claims(current, plane.acquire(pool, **dataclasses.asdict(asked)), output)


def renew(
    context: typer.Context,
    claim: pool_options.ClaimArgument,
    lease: Annotated[str, typer.Option("--lease", metavar="DURATION", help="From now on.")] = "1h",
    database: pool_options.DatabaseOption = "",
    output: session.OutputOption = session.Output.TEXT,
) -> int:
    """Keep a claimed member for longer."""
    from overnight.model.pool import Grant

    plane = _plane(context, database)
    renewed = plane.renew(claim, pool_options.seconds(lease, "--lease"))
    grant = Grant(plane.member(renewed.member_id), renewed)
    return pool_view.claims(context.obj, (grant,), output)


def return_(
    context: typer.Context,
    claim: pool_options.ClaimArgument,
    database: pool_options.DatabaseOption = "",
    output: session.OutputOption = session.Output.TEXT,
) -> int:
    """Give a member back: it is recycled, or ready again where the pool has reuse_without_reset."""
    return pool_view.member(context.obj, _plane(context, database).give_back(claim), output)


def terminate(
    context: typer.Context,
    member: pool_options.MemberArgument,
    forget: Annotated[
        bool, typer.Option("--forget", help="Its machine is known to be gone: ask no provider.")
    ] = False,
    database: pool_options.DatabaseOption = "",
    output: session.OutputOption = session.Output.TEXT,
) -> int:
    """End a member, whatever it does; a claim on it ends too."""
    ended = _plane(context, database).terminate(member, forget=forget)
    return pool_view.member(context.obj, ended, output)


def drain(
    context: typer.Context,
    pool: pool_options.PoolArgument,
    database: pool_options.DatabaseOption = "",
    output: session.OutputOption = session.Output.TEXT,
) -> int:
    """End every member that nobody claimed, and launch no more. Claimed members run on."""
    done = _plane(context, database).drain(pool)
    return pool_view.done(context.obj, "drain", pool, done, output)


def delete(
    context: typer.Context,
    pool: pool_options.PoolArgument,
    database: pool_options.DatabaseOption = "",
    output: session.OutputOption = session.Output.TEXT,
) -> int:
    """Remove a pool that has no members any more."""
    _plane(context, database).delete(pool)
    return pool_view.done(context.obj, "delete", pool, {"deleted": 1}, output)


def replenish(
    context: typer.Context,
    pool: pool_options.PoolArgument,
    database: pool_options.DatabaseOption = "",
    output: session.OutputOption = session.Output.TEXT,
) -> int:
    """Launch what is missing, now, without the reaper."""
    from overnight.app import pools

    plane = _plane(context, database)
    pools.require_endpoint(plane)
    plane.check(pool)
    return pool_view.done(
        context.obj, "replenish", pool, {"launched": plane.replenish(pool)}, output
    )


def recycle(
    context: typer.Context,
    pool: pool_options.PoolArgument,
    database: pool_options.DatabaseOption = "",
    output: session.OutputOption = session.Output.TEXT,
) -> int:
    """End what is stale, now, and try again what would not end."""
    changed = _plane(context, database).recycle(pool)
    return pool_view.done(context.obj, "recycle", pool, {"changed": changed}, output)


def show_member(
    context: typer.Context,
    member: pool_options.MemberArgument,
    recent: pool_options.RecentOption = 20,
    database: pool_options.DatabaseOption = "",
    output: session.OutputOption = session.Output.TEXT,
) -> int:
    """One member, gone ones too: its machine, who had it, what happened to it."""
    shown = _plane(context, database).show_member(member, recent=recent)
    return pool_view.member_details(context.obj, shown, output)


def cordon(
    context: typer.Context,
    member: pool_options.MemberArgument,
    database: pool_options.DatabaseOption = "",
    output: session.OutputOption = session.Output.TEXT,
) -> int:
    """Hold a member back, to look at it: neither given out, nor recycled, nor counted."""
    return pool_view.member(context.obj, _plane(context, database).cordon(member), output)


def uncordon(
    context: typer.Context,
    member: pool_options.MemberArgument,
    database: pool_options.DatabaseOption = "",
    output: session.OutputOption = session.Output.TEXT,
) -> int:
    """Let a member be given out again."""
    return pool_view.member(context.obj, _plane(context, database).uncordon(member), output)


def serve(
    context: typer.Context,
    listen: Annotated[str, typer.Option("--listen", metavar="ADDRESS:PORT", help="Where members are answered. Default: as last time.")] = "",
    endpoint: Annotated[str, typer.Option("--endpoint", metavar="URL", help="What members are told, where that is another address. Default: as last time.")] = "",
    interval: Annotated[str, typer.Option("--interval", metavar="DURATION", help="The tick; a claim wakes it at once.")] = "60s",
    database: pool_options.DatabaseOption = "",
    output: session.OutputOption = session.Output.TEXT,
) -> int:  # fmt: skip
    """Keep every pool, and answer its members, until Ctrl-C. Metrics are at /metrics."""
    import signal
    import threading

    from overnight.app import pools
    from overnight.model import times

    current: session.Session = context.obj
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    seconds = times.parse_duration(interval)
    if seconds < 0.05:
        raise errors.UsageError(
            "the tick is too short",
            why="it only catches what no claim rang for",
            todo="60s is usual",
        )
    pools.serve(
        _plane(context, database), stop, listen=listen, endpoint=endpoint.rstrip("/"), interval=seconds,
        say=lambda text: current.notes().print(text, markup=False, soft_wrap=True),
    )  # fmt: skip
    if output is session.Output.JSON:
        current.print_json({"schema": "overnight.pool-done/1", "operation": "serve", "pool": ""})
    return errors.ExitCode.DONE
