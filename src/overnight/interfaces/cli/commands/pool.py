"""`overnight pool`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from overnight import errors
from overnight.interfaces.cli import pool_options, pool_view, session

if TYPE_CHECKING:
    from collections.abc import Callable

    from overnight.app import pools

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
        help="Manage warm pools: hosts that are ready when needed.",
        epilog="Example: overnight pool acquire ci --by job-17",
    )


def _open(context: typer.Context, url: str) -> pools.ControlPlane:
    from overnight.app import pools

    current: session.Session = context.obj
    return pools.open_plane(current.home, url)


def create(
    context: typer.Context,
    name: Annotated[str, typer.Argument(metavar="POOL", help="Name of the new pool.")],
    template: Annotated[str, typer.Option("--template", metavar="NAME", help="Template of the members.")],
    target: Annotated[int, typer.Option("--target", metavar="N", help="Members to keep ready or warming.")],
    min_size: pool_options.MinOption = None,
    max_size: pool_options.MaxOption = None,
    provider: Annotated[str, typer.Option("--provider", metavar="NAME", help="Provider: process, nspawn or ec2.")] = "process",
    lifecycle_class: pool_options.ClassOption = None,
    region: pool_options.RegionOption = None,
    preferred: pool_options.PreferOption = None,
    instance_type: pool_options.TypeOption = None,
    label: pool_options.LabelOption = None,
    setting: pool_options.SettingOption = None,
    database: pool_options.DatabaseOption = "",
    output: session.OutputOption = session.Output.TEXT,
) -> int:  # fmt: skip
    """Create a warm pool.

    `overnight pool serve` launches its members. The default of --max is the target plus 10.
    """
    from overnight.app import pools

    change = pools.PoolChange(
        template=template,
        target_size=target,
        min_size=min_size,
        max_size=max_size,
        lifecycle_class=lifecycle_class,
        region=region,
        preferred_regions=preferred,
        instance_type=instance_type,
        labels=pool_options.parse_labels(label),
        settings=pool_options.parse_settings(setting),
    )
    report = pools.create(_open(context, database), name, provider, change)
    return pool_view.changed(context.obj, report, f"created pool {name}", output)


def list_(
    context: typer.Context,
    everything: Annotated[bool, typer.Option("--all", help="Include archived pools.")] = False,
    database: pool_options.DatabaseOption = "",
    output: session.OutputOption = session.Output.TEXT,
) -> int:
    """List pools with their ready, warming and claimed members."""
    from overnight.app import pools

    found = pools.list_pools(_open(context, database), archived=everything)
    return pool_view.pools(context.obj, found, output)


def show(
    context: typer.Context,
    pool: pool_options.PoolArgument,
    recent: pool_options.RecentOption = 20,
    database: pool_options.DatabaseOption = "",
    output: session.OutputOption = session.Output.TEXT,
) -> int:  # fmt: skip
    """Show a pool: problems, members, claims, queue, events.

    The exit code is 1 if there is an alert.
    """
    from overnight.app import pools

    report = pools.show(_open(context, database), pool, recent=recent)
    return pool_view.show(context.obj, report, output)


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
    setting: pool_options.SettingOption = None,
    pause: Annotated[bool, typer.Option("--pause", help="Stop claims and launches.")] = False,
    resume: Annotated[bool, typer.Option("--resume", help="Make the pool active again.")] = False,
    archive: Annotated[bool, typer.Option("--archive", help="Terminate unclaimed members and hide the pool.")] = False,
    close_breaker: Annotated[bool, typer.Option("--close-breaker", help="Launch again after failures.")] = False,
    database: pool_options.DatabaseOption = "",
    output: session.OutputOption = session.Output.TEXT,
) -> int:  # fmt: skip
    """Change a pool.

    A smaller target terminates the longest idle members; a new template replaces all members.
    """
    from overnight.app import pools

    chosen = [s for s, on in (("paused", pause), ("active", resume), ("archived", archive)) if on]
    if len(chosen) > 1:
        raise errors.UsageError(
            "--pause, --resume and --archive are mutually exclusive",
            why="a pool has one status",
            todo="use only one of them",
        )
    change = pools.PoolChange(
        template=template,
        target_size=target,
        min_size=min_size,
        max_size=max_size,
        lifecycle_class=lifecycle_class,
        region=region,
        preferred_regions=preferred,
        instance_type=instance_type,
        labels=pool_options.parse_labels(label),
        status=chosen[0] if chosen else None,
        close_breaker=close_breaker or None,
        settings=pool_options.parse_settings(setting),
    )
    report = pools.update(_open(context, database), pool, change)
    return pool_view.changed(context.obj, report, f"updated pool {pool}", output)


def acquire(
    context: typer.Context,
    pool: pool_options.PoolArgument,
    by: Annotated[str, typer.Option("--by", metavar="WHO", help="Caller, for people and logs.")] = "",
    for_: Annotated[str, typer.Option("--for", metavar="WHAT", help="Purpose, for people and logs.")] = "",
    count: Annotated[int, typer.Option("--count", metavar="N", help="Number of members: all of them, or none.")] = 1,
    wait: Annotated[str, typer.Option("--wait", metavar="DURATION", help="Maximum time to wait in the queue.")] = "0",
    priority: Annotated[int, typer.Option("--priority", metavar="N", help="Priority in the queue; higher is served first.")] = 0,
    cold: Annotated[bool, typer.Option("--cold", help="Launch a member if none is ready, and wait for it.")] = False,
    lease: Annotated[str, typer.Option("--lease", metavar="DURATION", help="Lease duration; the claim ends unless renewed.")] = "",
    key: Annotated[str | None, typer.Option("--key", metavar="KEY", help="Idempotency key: the same key gets the same claim.")] = None,
    database: pool_options.DatabaseOption = "",
    output: session.OutputOption = session.Output.TEXT,
) -> int:  # fmt: skip
    """Claim a ready member; nobody else gets it."""
    from overnight.app import pools
    from overnight.model import times
    from overnight.model.pool import Request

    current: session.Session = context.obj
    request = Request(
        count=count, acquired_by=by, acquired_for=for_, priority=priority, cold=cold,
        wait_seconds=times.parse_duration(wait), idempotency_key=key,
        lease_seconds=pool_options.parse_seconds(lease, "--lease") if lease else None,
    )  # fmt: skip
    grants = pools.acquire(current.home, database, pool, request)
    return pool_view.claims(current, grants, output)


def renew(
    context: typer.Context,
    claim: pool_options.ClaimArgument,
    lease: Annotated[
        str, typer.Option("--lease", metavar="DURATION", help="New lease, from now.")
    ] = "1h",
    database: pool_options.DatabaseOption = "",
    output: session.OutputOption = session.Output.TEXT,
) -> int:
    """Extend the lease of a claim."""
    from overnight.app import pools

    seconds = pool_options.parse_seconds(lease, "--lease")
    grant = pools.renew(_open(context, database), claim, seconds)
    return pool_view.claims(context.obj, (grant,), output)


def return_(
    context: typer.Context,
    claim: pool_options.ClaimArgument,
    database: pool_options.DatabaseOption = "",
    output: session.OutputOption = session.Output.TEXT,
) -> int:
    """Return a member.

    It is recycled, or ready again if the pool has reuse_without_reset.
    """
    return pool_view.member(context.obj, _open(context, database).give_back(claim), output)


def terminate(
    context: typer.Context,
    member: pool_options.MemberArgument,
    forget: Annotated[
        bool,
        typer.Option("--forget", help="Do not call the provider: the machine is known to be gone."),
    ] = False,
    database: pool_options.DatabaseOption = "",
    output: session.OutputOption = session.Output.TEXT,
) -> int:
    """Terminate a member in any state, and end its claim."""
    ended = _open(context, database).terminate(member, forget=forget)
    return pool_view.member(context.obj, ended, output)


def drain(
    context: typer.Context,
    pool: pool_options.PoolArgument,
    database: pool_options.DatabaseOption = "",
    output: session.OutputOption = session.Output.TEXT,
) -> int:
    """Terminate unclaimed members and stop launching."""
    counts = _open(context, database).drain(pool)
    return pool_view.done(context.obj, "drain", pool, counts, output)


def delete(
    context: typer.Context,
    pool: pool_options.PoolArgument,
    database: pool_options.DatabaseOption = "",
    output: session.OutputOption = session.Output.TEXT,
) -> int:
    """Delete a pool that has no members."""
    _open(context, database).delete(pool)
    return pool_view.done(context.obj, "delete", pool, {"deleted": 1}, output)


def replenish(
    context: typer.Context,
    pool: pool_options.PoolArgument,
    database: pool_options.DatabaseOption = "",
    output: session.OutputOption = session.Output.TEXT,
) -> int:
    """Launch missing members now, without the reaper."""
    from overnight.app import pools

    launched = pools.replenish(_open(context, database), pool)
    return pool_view.done(context.obj, "replenish", pool, {"launched": launched}, output)


def recycle(
    context: typer.Context,
    pool: pool_options.PoolArgument,
    database: pool_options.DatabaseOption = "",
    output: session.OutputOption = session.Output.TEXT,
) -> int:
    """Terminate stale members now, and retry failed terminations."""
    changed = _open(context, database).recycle(pool)
    return pool_view.done(context.obj, "recycle", pool, {"changed": changed}, output)


def show_member(
    context: typer.Context,
    member: pool_options.MemberArgument,
    recent: pool_options.RecentOption = 20,
    database: pool_options.DatabaseOption = "",
    output: session.OutputOption = session.Output.TEXT,
) -> int:
    """Show a member: machine, claims, events; also when it is gone."""
    details = _open(context, database).show_member(member, recent=recent)
    return pool_view.member_details(context.obj, details, output)


def cordon(
    context: typer.Context,
    member: pool_options.MemberArgument,
    database: pool_options.DatabaseOption = "",
    output: session.OutputOption = session.Output.TEXT,
) -> int:
    """Hold a member for inspection.

    It is not claimed, not recycled and not counted until it is uncordoned.
    """
    return pool_view.member(context.obj, _open(context, database).cordon(member), output)


def uncordon(
    context: typer.Context,
    member: pool_options.MemberArgument,
    database: pool_options.DatabaseOption = "",
    output: session.OutputOption = session.Output.TEXT,
) -> int:
    """Release a cordoned member."""
    return pool_view.member(context.obj, _open(context, database).uncordon(member), output)


def serve(
    context: typer.Context,
    listen: Annotated[str, typer.Option("--listen", metavar="ADDRESS:PORT", help="Address for members and metrics. Default: the last one.")] = "",
    endpoint: Annotated[str, typer.Option("--endpoint", metavar="URL", help="URL that members use, if it differs. Default: the last one.")] = "",
    interval: Annotated[str, typer.Option("--interval", metavar="DURATION", help="Tick of the reaper; claims wake it at once.")] = "60s",
    database: pool_options.DatabaseOption = "",
    output: session.OutputOption = session.Output.TEXT,
) -> int:  # fmt: skip
    """Run the reaper and answer members, until Ctrl-C.

    Metrics are at /metrics.
    """
    import threading

    from overnight.app import pools
    from overnight.model import stop_signals, times

    current: session.Session = context.obj
    stop = threading.Event()
    with stop_signals.stop_on_signals(stop):
        pools.serve(
            _open(context, database),
            stop,
            listen=listen,
            endpoint=endpoint.rstrip("/"),
            interval=times.parse_duration(interval),
            progress=lambda text: current.notes().print(text, markup=False, soft_wrap=True),
        )
    if output is session.Output.JSON:
        current.print_json({"schema": "overnight.pool-done/1", "operation": "serve", "pool": ""})
    return errors.ExitCode.DONE
