"""`overnight cluster`."""

from __future__ import annotations

import functools
import secrets
from typing import TYPE_CHECKING, Annotated

import typer

from overnight import errors
from overnight.app import pools
from overnight.interfaces.cli import cluster_view, pool_options, session

if TYPE_CHECKING:
    from overnight.app import clusters
    from overnight.model.cluster import ClusterReport

ORDER = 53
ClusterArgument = Annotated[str, typer.Argument(metavar="CLUSTER", help="Id of the cluster.")]


def _open(current: session.Session, database: str, why: str = "") -> clusters.Clusters:
    """Return the clusters of a database, or of the server."""
    from overnight.app import clusters

    server = pool_options.find_server(current, database, why)
    return server.clusters if server else clusters.Clusters(pools.Pools(current.home, database))


@pool_options.takes_kind
def create(
    current: session.Session,
    change: pools.PoolChange,
    count: int = session.option(..., "Number of hosts.", "N"),
    template: str = session.option(..., pool_options.TEMPLATE, "NAME"),
    at_least: int | None = session.option(None, "Accept this many if not all come up. Default: all or nothing.", "K"),
    provider: str = session.option("process", pool_options.PROVIDER, "NAME"),
    lease: str = session.option("4h", "Lease duration; the hosts are terminated after it.", "DURATION"),
    wait: str = session.option("30m", "Maximum time until the hosts are ready.", "DURATION"),
    by: str = session.option("", "Caller, for people and logs.", "WHO"),
    for_: str = session.option("", "Purpose, for people and logs.", "WHAT", "--for"),
    cost: float | None = session.option(None, "Price of a host for an hour, in any currency.", "PRICE", min=0),
    key: str = session.option("", "Idempotency key: the same key gets the same cluster.", "KEY"),
    dry_run: bool = session.flag("Show the hosts and the maximum cost, and exit."),
    detach: bool = session.flag("Do not wait until the hosts are ready."),
    database: pool_options.DatabaseOption = "",
    why: pool_options.WhyOption = "",
    yes: pool_options.YesOption = False,
) -> None:  # fmt: skip
    """Take many hosts at once; they are given back by a lease.

    A reaper launches them, hands them over together, and terminates them after the lease, whatever happens to
    this process. Ctrl-C cancels the cluster while it is assembled.
    """
    from overnight.model.cluster import ClusterOrder

    use = _open(current, database, why)
    order = ClusterOrder(
        count=count, template=template, at_least=at_least, provider=provider,
        lease_seconds=pool_options.parse_seconds(lease, "--lease"),
        wait_seconds=pool_options.parse_seconds(wait, "--wait"),
        acquired_by=by, acquired_for=for_, cost_per_host_hour=cost,
        **{name: getattr(change, name) for name in pool_options.KIND},
    )  # fmt: skip
    if dry_run:
        cluster_view.plan(current, use.preflight(order))
        return
    key = key or secrets.token_hex(16)  # so that a lost answer of a server does not order twice
    create_once = functools.partial(use.create, order, idempotency_key=key)
    made = session.call_confirmed(create_once, yes=yes)
    cluster_view.show(current, made if detach else _follow(current, use, made))


def _follow(current: session.Session, use: clusters.Clusters, made: ClusterReport) -> ClusterReport:
    """Show progress until the cluster is held; raise if it is not."""
    from overnight.model.cluster import ClusterState

    name = made.cluster.id
    cluster_view.note(current, f"created {name}")
    try:
        with current.progress(name, made.cluster.count, counted=True) as update:
            report = use.follow(name, lambda now: update(*cluster_view.progress(now)))
    except KeyboardInterrupt:
        try:
            use.cancel(name)
            cluster_view.note(current, f"cancelled {name}")
        except errors.OvernightError as error:
            cluster_view.note(current, f"{error.what}; {error.todo}")
        raise
    if report.cluster.state is not ClusterState.HELD:
        raise errors.CannotError(
            f"{name} was not assembled: {report.cluster.reason}",
            why=f"fewer than {report.cluster.at_least} of {report.cluster.count} hosts became ready",
            todo=f"see what failed: `overnight pool explain {name}`",
        )
    return report


def list_(
    current: session.Session,
    everything: bool = session.flag("Include clusters that have ended.", "--all"),
    database: pool_options.DatabaseOption = "",
) -> None:
    """List clusters, the newest first."""
    cluster_view.listing(current, _open(current, database).list(ended=everything))


def show(
    current: session.Session,
    cluster: ClusterArgument,
    recent: pool_options.RecentOption = 20,
    database: pool_options.DatabaseOption = "",
) -> None:
    """Show a cluster: problems, members, claims, events."""
    cluster_view.show(current, _open(current, database).show(cluster, recent=recent))


def cancel(
    current: session.Session,
    cluster: ClusterArgument,
    database: pool_options.DatabaseOption = "",
    why: pool_options.WhyOption = "",
) -> None:
    """Cancel a cluster while it is assembled."""
    cluster_view.show(current, _open(current, database, why).cancel(cluster), details=False)


def renew(
    current: session.Session,
    cluster: ClusterArgument,
    for_: str = session.option("4h", "New lease, from now.", "DURATION", "--for"),
    database: pool_options.DatabaseOption = "",
    why: pool_options.WhyOption = "",
) -> None:
    """Extend the lease of all hosts of a cluster."""
    use, seconds = _open(current, database, why), pool_options.parse_seconds(for_, "--for")
    cluster_view.show(current, use.renew(cluster, seconds), details=False)


def release(
    current: session.Session,
    cluster: ClusterArgument,
    database: pool_options.DatabaseOption = "",
    why: pool_options.WhyOption = "",
) -> None:
    """Give back a cluster: its claims and machines end."""
    cluster_view.show(current, _open(current, database, why).release(cluster), details=False)


register = session.group(
    "cluster",
    "Take many hosts at once, without a warm pool.",
    "Hosts",
    "create --count 50 --template plain",
    ("create", create, "--count 50 --at-least 45 --template plain --lease 8h --cost 0.40"),
    ("list", list_, ""),
    ("show", show, "cluster-5f0c9a41d2b7"),
    ("cancel", cancel, "cluster-5f0c9a41d2b7"),
    ("renew", renew, "cluster-5f0c9a41d2b7 --for 8h"),
    ("release", release, "cluster-5f0c9a41d2b7"),
    scope=session.Scope.SERVER,
)
