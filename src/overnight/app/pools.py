"""Use cases of pools: open the control plane of a data home, operate pools, serve them, and their documents.

Several values of `overnight.pools` are returned as they are; interfaces take their types from here.
"""

from __future__ import annotations

import dataclasses
import time
from typing import TYPE_CHECKING, Any

from overnight import app, errors

if TYPE_CHECKING:
    import pathlib
    import threading
    from collections.abc import Callable, Mapping, Sequence

    from overnight import pools
    from overnight.model.pool import (
        Autoscale,
        Claim,
        Grant,
        Member,
        MemberDetails,
        PoolDetails,
        Problem,
        Request,
    )
    from overnight.pools import autoscaler, control

__all__ = [
    "AutoscaleChange",
    "AutoscaleReport",
    "PoolChange",
    "PoolReport",
    "acquire",
    "autoscale",
    "autoscale_document",
    "claims_document",
    "create",
    "list_pools",
    "member_document",
    "open_plane",
    "parse_setting",
    "pool_document",
    "pools_document",
    "renew",
    "replenish",
    "serve",
    "show",
    "update",
]

ENDPOINT = "endpoint"
ADVERTISED = "endpoint_advertised"  # given by --endpoint, not derived from --listen
LISTEN = "listen"
if TYPE_CHECKING:
    ControlPlane = control.ControlPlane


@dataclasses.dataclass(frozen=True, kw_only=True)
class PoolChange:
    """What to set on a pool; None leaves a value as it is, or at its default."""

    template: str | None = None
    target_size: int | None = None
    min_size: int | None = None
    max_size: int | None = None
    lifecycle_class: str | None = None
    region: str | None = None
    preferred_regions: Sequence[str] | None = None
    instance_type: str | None = None
    labels: Mapping[str, str] | None = None
    status: str | None = None
    close_breaker: bool | None = None
    settings: Mapping[str, object] = dataclasses.field(default_factory=dict)

    def given(self) -> dict[str, Any]:
        """Return the parameters that were given."""
        named = {n: v for n, v in vars(self).items() if v is not None and n != "settings"}
        return {**named, **self.settings}


@dataclasses.dataclass(frozen=True, kw_only=True)
class AutoscaleChange:
    """What to set on an autoscale policy; None leaves a value as it is, `clear` names those to reset."""

    miss: float | None = None
    min_size: int | None = None
    max_size: int | None = None
    openings: Sequence[str] | None = None
    window_seconds: float | None = None
    cooldown_seconds: float | None = None
    zero_after_seconds: float | None = None
    warm_up_seconds: float | None = None
    burst_mean: float | None = None
    burst_spread: float | None = None
    clear: tuple[str, ...] = ()

    def given(self) -> dict[str, Any]:
        """Return the parameters that were given."""
        named = {n: v for n, v in vars(self).items() if v is not None and n != "clear"}
        return {**named, **dict.fromkeys(self.clear)}


@dataclasses.dataclass(frozen=True)
class PoolReport:
    """A pool with its problems."""

    details: PoolDetails
    problems: tuple[Problem, ...]

    @property
    def has_alert(self) -> bool:
        return any(problem.alert for problem in self.problems)


@dataclasses.dataclass(frozen=True)
class AutoscaleReport:
    """A pool, its policy, and what the policy would decide now, if that was asked for."""

    details: PoolDetails
    outlook: autoscaler.Outlook | None = None
    message: str = ""

    @property
    def policy(self) -> Autoscale | None:
        return self.details.autoscale if self.outlook is None else self.outlook.policy


def open_plane(home: pathlib.Path, url: str = "") -> control.ControlPlane:
    """Open the control plane of a data home, or of the database at `url`."""
    from overnight.pools import control, database, providers

    available: dict[str, pools.Provider] = {}
    for module in app.discover(providers):
        create_provider: Callable[[pathlib.Path], pools.Provider] = module.create
        available[str(module.NAME)] = create_provider(home)
    return control.ControlPlane(database.Database(url or database.default_url(home)), available)


def now_us() -> int:
    """Return µs since 1970."""
    return time.time_ns() // 1000


def parse_setting(text: str) -> tuple[str, object]:
    """Parse `ready_ttl_seconds=600`."""
    from overnight.pools import settings

    return settings.parse(text)


# pools


def create(plane: control.ControlPlane, name: str, provider: str, change: PoolChange) -> PoolReport:
    """Create a pool; `serve` launches its members."""
    plane.create(name=name, provider=provider, **change.given())
    return show(plane, name)


def update(plane: control.ControlPlane, name: str, change: PoolChange) -> PoolReport:
    """Change a pool; at least one change must be given."""
    given = change.given()
    if not given:
        raise errors.UsageError(
            f"no change given for pool {name}",
            why="every option was left out",
            todo="overnight pool update --help",
        )
    plane.update(name, **given)
    return show(plane, name)


def list_pools(plane: control.ControlPlane, *, archived: bool = False) -> tuple[PoolDetails, ...]:
    """Return the pools with their counts."""
    return plane.list(archived=archived)


def show(plane: control.ControlPlane, name: str, *, recent: int = 20) -> PoolReport:
    """Return a pool with everything it holds, and its problems."""
    from overnight.pools import problems, reaper

    details = plane.show(name, recent=recent)
    seen = plane.get(reaper.SEEN)
    found = problems.find_problems(
        details,
        now_us=plane.context.clock(),
        reaper_us=int(seen) if seen else None,
        orphans=plane.orphans_left(details.pool.provider),
    )
    return PoolReport(details, found)


def acquire(home: pathlib.Path, url: str, name: str, request: Request) -> tuple[Grant, ...]:
    """Claim ready members, by the fast path where that is possible."""
    from overnight.pools.sql import fast_claim

    if not url:
        path = fast_claim.default_path(home)
        grant = fast_claim.claim_in_file(path, name, request, now_us())
        if grant is not None:
            return (grant,)
    plane = open_plane(home, url)
    if request.cold:
        _require_endpoint(plane)
    return plane.acquire(name, **vars(request))


def renew(plane: control.ControlPlane, claim_id: str, lease_seconds: int) -> Grant:
    """Extend the lease of a claim."""
    from overnight.model.pool import Grant

    claim = plane.renew(claim_id, lease_seconds)
    return Grant(plane.member(claim.member_id), claim)


def replenish(plane: control.ControlPlane, name: str) -> int:
    """Launch what is missing now; return how many members were launched."""
    _require_endpoint(plane)
    plane.check(name)
    return plane.replenish(name)


def _require_endpoint(plane: control.ControlPlane) -> None:
    """Raise unless members have an endpoint to which they can report that they are ready."""
    if not plane.endpoint:
        raise errors.CannotError(
            "members cannot be launched yet",
            why="they could not report that they are ready: no reaper has served from this database",
            todo="overnight pool serve",
        )


def autoscale(
    plane: control.ControlPlane,
    name: str,
    change: AutoscaleChange,
    *,
    on: bool = False,
    off: bool = False,
    dry_run: bool = False,
) -> AutoscaleReport:
    """Show, set, try (`dry_run`) or remove (`off`) the policy of a pool; `on` sets the defaults."""
    given = change.given()
    if off and (on or dry_run or given):
        raise errors.UsageError(
            "--off cannot be combined with other options",
            why="it removes the policy",
            todo=f"overnight pool autoscale {name} --off",
        )
    if off:
        removed = plane.autoscale_off(name)
        message = "autoscale is off" if removed else "autoscale was already off"
        return AutoscaleReport(plane.show(name, recent=1), message=message)
    details = plane.show(name, recent=1)
    if dry_run:
        if details.autoscale is None and not (given or on):
            raise errors.CannotError(
                f"pool {details.pool.name} has no autoscale policy",
                why="its size is set by hand",
                todo=f"try the defaults: overnight pool autoscale {name} --on --dry-run",
            )
        return AutoscaleReport(details, plane.outlook(name, **given))
    if not given and not on:
        return AutoscaleReport(details)
    plane.autoscale(name, **given)
    return AutoscaleReport(plane.show(name, recent=1), message=f"autoscale is on for pool {name}")


# serving


def serve(
    plane: control.ControlPlane,
    stop: threading.Event,
    *,
    listen: str = "",
    endpoint: str = "",
    interval: float = 60.0,
    progress: Callable[[str], None] = lambda _: None,
) -> None:
    """Run the reaper and answer members until `stop` is set.

    The address is saved, so that members launched before a restart find it again. `endpoint` is the URL
    that members use, where it differs from the listen address: a name, another port, a load balancer.
    """
    # Imported here, because a claim must not wait for it.
    from overnight.pools import member_api, metrics, reaper

    if interval < 0.05:
        raise errors.UsageError(
            f"--interval must be at least 50ms (got {interval:g}s)",
            why="claims wake the reaper anyway; the tick only catches what they missed",
            todo="use --interval 60s",
        )
    if endpoint:
        _parse_url(endpoint)
    address, port = _parse_address(listen or _saved_address(plane))
    chosen = bool(listen or endpoint)
    advertised = endpoint or ("" if listen else plane.get(ADVERTISED))
    try:
        server = member_api.Server(
            plane.enrolment, lambda: metrics.render(plane), address=address, port=port
        )
    except errors.CannotError:
        if chosen:
            raise
        server = member_api.Server(plane.enrolment, lambda: metrics.render(plane), address=address)
    try:
        # Another reaper that answers keeps its address; the two share the work.
        if chosen or not _is_answering(plane.endpoint):
            plane.set(ENDPOINT, advertised or server.endpoint)
            plane.set(ADVERTISED, advertised)
            plane.set(LISTEN, f"{address}:{server.port}")
        url = advertised or server.endpoint
        progress(f"serving members at {url}, metrics at {server.endpoint}/metrics")
        _warn_unfillable(plane, progress)
        reaper.Reaper(plane, interval=interval).run(stop)
    finally:
        server.close()


def _saved_address(plane: control.ControlPlane) -> str:
    return plane.get(LISTEN) or plane.endpoint.removeprefix("http://") or "127.0.0.1:0"


def _warn_unfillable(plane: control.ControlPlane, progress: Callable[[str], None]) -> None:
    """Report pools that cannot be filled from here at once, not after a failed launch."""
    for details in plane.list():
        try:
            plane.check(details.pool.name)
        except errors.OvernightError as error:
            progress(f"pool {details.pool.name} cannot be filled: {error.what}; {error.todo}")


def _parse_address(text: str) -> tuple[str, int]:
    address, _, port = text.rpartition(":")
    if not address or not port.isdigit() or int(port) > 65535:
        raise errors.UsageError(
            f"invalid listen address {text!r}",
            why="it must be ADDRESS:PORT",
            todo="write it like 127.0.0.1:8417",
        )
    return address, int(port)


def _parse_url(text: str) -> tuple[str, int]:
    """Return host and port of an endpoint."""
    import urllib.parse

    try:
        where = urllib.parse.urlsplit(text)
        host, port = where.hostname, where.port or (443 if where.scheme == "https" else 80)
    except ValueError:
        host, port = None, 0
    if not host or where.scheme not in ("http", "https") or where.path not in ("", "/"):
        raise errors.UsageError(
            f"invalid endpoint {text!r}",
            why="it must be an http or https URL without a path",
            todo="write it like http://pools.internal:8417",
        )
    return host, port


def _is_answering(endpoint: str) -> bool:
    import socket

    if not endpoint:
        return False
    try:
        with socket.create_connection(_parse_url(endpoint), timeout=1):
            return True
    except OSError:
        return False


# documents


def _pool_json(details: PoolDetails) -> dict[str, Any]:
    pool = dataclasses.asdict(details.pool)
    return {
        **{name: value for name, value in pool.items() if name not in ("settings", "labels")},
        "preferred_regions": list(details.pool.preferred_regions),
        "labels": dict(details.pool.labels),
        "metadata": pool["settings"],
        "ready_count": details.counts.ready,
        "warming_count": details.counts.warming,
        "claimed_count": details.counts.claimed,
        "draining_count": details.counts.draining,
        "errored_count": details.counts.errored,
        "waiting": details.counts.waiting,
        "deficit": details.counts.deficit,
    }


def _member_json(member: Member) -> dict[str, Any]:
    values = dataclasses.asdict(member)
    return {
        "member_id": values.pop("id"),
        "pool_state": str(values.pop("state")),
        **values,
    }


def _claim_json(claim: Claim) -> dict[str, Any]:
    values = dataclasses.asdict(claim)
    return {"claim_id": values.pop("id"), **values}


def _autoscale_json(policy: Autoscale | None) -> dict[str, Any] | None:
    """Return the policy, and separately the last decision."""
    if policy is None:
        return None
    return {
        "miss": policy.miss,
        "min_size": policy.min_size,
        "max_size": policy.max_size,
        "warm_up_seconds": policy.warm_up_seconds,
        "measured_warm_up_seconds": policy.measured_warm_up_seconds,
        "window_seconds": policy.window_seconds,
        "cooldown_seconds": policy.cooldown_seconds,
        "zero_after_seconds": policy.zero_after_seconds,
        "burst": {"mean": policy.burst_mean, "spread": policy.burst_spread},
        "openings": list(policy.openings),
        "last_decision": None
        if not policy.decided_us
        else {
            "at_us": policy.decided_us,
            "wanted_size": policy.wanted_size,
            "cause": policy.cause,
            "reason": policy.reason,
        },
        "changed_us": policy.changed_us,
    }


def autoscale_document(report: AutoscaleReport) -> dict[str, Any]:
    """Return `overnight pool autoscale -O json`."""
    pool, outlook = report.details.pool, report.outlook
    would = None
    if outlook is not None:
        decision = outlook.decision
        would = {
            "size": decision.size,
            "wanted_size": decision.wanted,
            "cause": decision.cause,
            "reason": decision.reason,
            "warm_up_seconds": outlook.warm_up_s,
            "assumed": list(outlook.assumed),
        }
    return {
        "schema": "overnight.pool-autoscale/1",
        "pool": pool.name,
        "status": str(pool.status),
        "target_size": pool.target_size,
        "policy": _autoscale_json(report.policy),
        "would": would,
    }


def pool_document(report: PoolReport) -> dict[str, Any]:
    """Return `overnight pool show -O json`."""
    details = report.details
    return {
        "schema": "overnight.pool/1",
        "pool": _pool_json(details),
        "autoscale": _autoscale_json(details.autoscale),
        "members": [_member_json(member) for member in details.members],
        "claims": [_claim_json(claim) for claim in details.claims],
        "waiters": [dataclasses.asdict(waiter) for waiter in details.waiters],
        "recent_events": [dataclasses.asdict(event) for event in details.events],
        "troubles": [dataclasses.asdict(problem) for problem in report.problems],
    }


def pools_document(pools: tuple[PoolDetails, ...]) -> dict[str, Any]:
    """Return `overnight pool list -O json`."""
    return {"schema": "overnight.pools/1", "pools": [_pool_json(details) for details in pools]}


def claims_document(grants: tuple[Grant, ...]) -> dict[str, Any]:
    """Return `overnight pool acquire -O json`."""
    return {
        "schema": "overnight.pool-claims/1",
        "claims": [
            {**_claim_json(grant.claim), "member": _member_json(grant.member)} for grant in grants
        ],
    }


def member_document(member: Member, details: MemberDetails | None = None) -> dict[str, Any]:
    """Return a member, with its claims and events if `details` are given."""
    document: dict[str, Any] = {
        "schema": "overnight.pool-member/1",
        "member": _member_json(member),
    }
    if details is not None:
        document["pool"] = details.pool
        document["claims"] = [_claim_json(claim) for claim in details.claims]
        document["events"] = [dataclasses.asdict(event) for event in details.events]
    return document
