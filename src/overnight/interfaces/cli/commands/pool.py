"""`overnight pool`."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import threading

from overnight import errors
from overnight.app import pool_documents, pools
from overnight.interfaces.cli import pool_options, pool_view, session, terminal
from overnight.model import stop_signals, times

ORDER = 50
# Operations on a pool that answer with counts.
COUNTED = {
    "delete": "Delete a pool that has no members.",
    "replenish": "Launch missing members now, without the reaper.",
    "recycle": "Terminate stale members now, and retry failed terminations.",
}


@pool_options.takes_change
def create(
    current: session.Session,
    where: pool_options.Pools,
    change: pools.PoolChange,
    name: str = session.argument(..., "Name of the new pool.", "POOL"),
    template: str = session.option(..., pool_options.TEMPLATE, "NAME"),
    target: int = session.option(..., pool_options.TARGET, "N"),
    provider: str = session.option("process", pool_options.PROVIDER, "NAME"),
) -> None:
    """Create a warm pool.

    `overnight pool serve` launches its members. The default of --max is the target plus 10.
    """
    change = dataclasses.replace(change, template=template, target_size=target)
    report = where.create(name, provider, change)
    pool_view.changed(current, report, f"created pool {name}")


def list_(
    current: session.Session,
    where: pool_options.Pools,
    everything: bool = session.flag("Include archived pools.", "--all"),
    watch: bool = session.flag("Repeat every 2 seconds until Ctrl-C."),
) -> None:
    """List pools with their ready, warming and claimed members."""
    stop = threading.Event()
    if not watch:
        stop.set()
    with stop_signals.stop_on_signals(stop) if watch else contextlib.nullcontext():
        pool_view.pools(current, functools.partial(where.list, archived=everything), stop)


def show(
    current: session.Session,
    where: pool_options.Pools,
    pool: pool_options.PoolArgument,
    recent: pool_options.RecentOption = 20,
) -> int:
    """Show a pool: problems, members, claims, queue, events.

    The exit code is 1 if there is an alert.
    """
    return pool_view.show(current, where.show(pool, recent=recent))


@pool_options.takes_change
def update(
    current: session.Session,
    where: pool_options.Pools,
    pool: pool_options.PoolArgument,
    change: pools.PoolChange,
    target: int | None = session.option(None, pool_options.TARGET, "N"),
    template: str | None = session.option(None, pool_options.TEMPLATE, "NAME"),
    pause: bool = session.flag("Stop claims and launches."),
    resume: bool = session.flag("Make the pool active again."),
    archive: bool = session.flag("Terminate unclaimed members and hide the pool."),
    close_breaker: bool = session.flag("Launch again after failures."),
) -> None:
    """Change a pool.

    A smaller target terminates the longest idle members; a new template replaces all members.
    """
    chosen = [s for s, on in (("paused", pause), ("active", resume), ("archived", archive)) if on]
    if len(chosen) > 1:
        raise errors.UsageError(
            "--pause, --resume and --archive are mutually exclusive",
            why="a pool has one status",
            todo="use only one of them",
        )
    change = dataclasses.replace(
        change,
        template=template,
        target_size=target,
        status=chosen[0] if chosen else None,
        close_breaker=close_breaker or None,
    )
    pool_view.changed(current, where.update(pool, change), f"updated pool {pool}")


def acquire(
    current: session.Session,
    where: pool_options.Pools,
    pool: pool_options.PoolArgument,
    by: str = session.option("", "Caller, for people and logs.", "WHO"),
    for_: str = session.option("", "Purpose, for people and logs.", "WHAT", "--for"),
    count: int = session.option(1, "Number of members: all of them, or none.", "N"),
    wait: str = session.option("0", "Maximum time to wait in the queue.", "DURATION"),
    priority: int = session.option(0, "Priority in the queue; higher is served first, and waiting raises it.", "N"),
    cold: bool = session.flag("Launch a member if none is ready, and wait for it."),
    lease: str = session.option("", "Lease duration; the claim ends unless renewed.", "DURATION"),
    key: str | None = session.option(None, "Idempotency key: the same key gets the same claim.", "KEY"),
) -> None:  # fmt: skip
    """Claim a ready member for exclusive use."""
    from overnight.model.pool import Request

    request = Request(
        count=count, acquired_by=by, acquired_for=for_, priority=priority, cold=cold,
        wait_seconds=times.parse_duration(wait), idempotency_key=key,
        lease_seconds=pool_options.parse_seconds(lease, "--lease") if lease else None,
    )  # fmt: skip
    pool_view.claims(current, where.acquire(pool, request))


def renew(
    current: session.Session,
    where: pool_options.Pools,
    claim: pool_options.ClaimArgument,
    lease: str = session.option("1h", "New lease, from now.", "DURATION"),
) -> None:
    """Extend the lease of a claim."""
    seconds = pool_options.parse_seconds(lease, "--lease")
    pool_view.claims(current, (where.renew(claim, seconds),))


def return_(
    current: session.Session,
    where: pool_options.Pools,
    claim: str = session.argument(..., "Id of the claim; or the pool of MEMBER.", "CLAIM|POOL"),
    member: str = session.argument("", "Id of the member, after its pool.", "MEMBER"),
) -> None:
    """Return a member, by its claim or by pool and member.

    It is recycled, or ready again if the pool has reuse_without_reset.
    """
    returned = where.return_member(claim, member) if member else where.give_back(claim)
    pool_view.member(current, returned)


def terminate(
    current: session.Session,
    where: pool_options.Pools,
    member: pool_options.MemberArgument,
    forget: bool = session.flag("Do not call the provider: the machine is known to be gone."),
    yes: pool_options.YesOption = False,
) -> None:
    """Terminate a member in any state, and end its claim."""
    call = functools.partial(where.terminate, member, forget=forget)
    pool_view.member(current, session.call_confirmed(call, yes=yes))


def forget(
    current: session.Session,
    where: pool_options.Pools,
    host: str = session.argument(..., "Host, as `overnight pool show POOL` names it.", "HOST"),
    yes: pool_options.YesOption = False,
) -> None:
    """Give up the members on a host that is gone for good."""
    forgotten = session.call_confirmed(functools.partial(where.forget, host), yes=yes)
    pool_view.done(current, "forget", "", forgotten)


def drain(
    current: session.Session,
    where: pool_options.Pools,
    pool: pool_options.PoolArgument,
    yes: pool_options.YesOption = False,
) -> None:
    """Terminate unclaimed members and stop launching."""
    counts = session.call_confirmed(functools.partial(where.drain, pool), yes=yes)
    pool_view.done(current, "drain", pool, counts)


def _make_command(name: str, about: str) -> session.Command:
    def run(
        current: session.Session, where: pool_options.Pools, pool: pool_options.PoolArgument
    ) -> None:
        pool_view.done(current, name, pool, getattr(where, name)(pool))

    run.__doc__ = about
    return run


def show_member(
    current: session.Session,
    where: pool_options.Pools,
    member: pool_options.MemberArgument,
    recent: pool_options.RecentOption = 20,
) -> None:
    """Show a member: machine, claims, events; also when it is gone."""
    pool_view.member_details(current, where.show_member(member, recent=recent))


def cordon(
    current: session.Session, where: pool_options.Pools, member: pool_options.MemberArgument
) -> None:
    """Hold a member for inspection.

    It is not claimed, not recycled and not counted until it is uncordoned.
    """
    pool_view.member(current, where.set_cordoned(member, cordoned=True))


def uncordon(
    current: session.Session, where: pool_options.Pools, member: pool_options.MemberArgument
) -> None:
    """Release a cordoned member."""
    pool_view.member(current, where.set_cordoned(member, cordoned=False))


def serve(
    current: session.Session,
    where: pool_options.Pools,
    listen: str = session.option("", "Address for members. Default: the last one.", "ADDRESS:PORT"),
    endpoint: str = session.option("", "URL that members use, if it differs. Default: the last one.", "URL"),
    metrics: str = session.option("", "Address to serve OpenMetrics on.", "[ADDRESS:]PORT"),
    plain_http: bool = session.flag("Allow plain HTTP beyond loopback: credentials are not encrypted."),
    interval: str = session.option("60s", "Tick of the reaper; claims wake it at once.", "DURATION"),
) -> None:  # fmt: skip
    """Run the reaper and answer members, until Ctrl-C.

    Beyond this host, put a TLS proxy in front: --listen 127.0.0.1:8417 --endpoint https://NAME.
    """
    from overnight.app import pool_serving

    with stop_signals.stop_on_signals() as stop:
        pool_serving.serve(
            where,
            stop,
            listen=listen,
            endpoint=endpoint.rstrip("/"),
            metrics=metrics,
            plain_http=plain_http,
            interval=times.parse_duration(interval),
            progress=functools.partial(terminal.print_line, current.notes()),
        )
    current.printed_json(pool_documents.operation_document("serve", "", {}))


COMMANDS = (
    ("create", create, "ci --template plain --target 5"),
    ("list", list_, ""),
    ("show", show, "ci"),
    ("update", update, "ci --target 8 --set ready_ttl_seconds=600"),
    ("acquire", acquire, "ci --by job-17 --wait 60s"),
    ("renew", renew, "c-5f0c9a41d2b7 --lease 1h"),
    ("return", return_, "c-5f0c9a41d2b7"),
    ("terminate", terminate, "m-0a1b2c3d4e5f"),
    ("forget", forget, "build-07-1f3c9a"),
    ("drain", drain, "ci"),
    *((name, _make_command(name, about), "ci") for name, about in COUNTED.items()),
    ("member", show_member, "m-0a1b2c3d4e5f"),
    ("cordon", cordon, "m-0a1b2c3d4e5f"),
    ("uncordon", uncordon, "m-0a1b2c3d4e5f"),
    ("serve", serve, "--listen 127.0.0.1:8417"),
)
READING = (list_, show, show_member, serve)
register = session.group(
    "pool",
    "Manage warm pools: hosts that are ready when needed.",
    "Hosts",
    "acquire ci --by job-17",
    *(
        (name, pool_options.takes_pools(call, changes=call not in READING), example)
        for name, call, example in COMMANDS
    ),
    scope=session.Scope.SERVER,
    on_host=("serve",),
)
