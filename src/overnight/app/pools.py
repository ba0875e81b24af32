"""Pools for the doors: the control plane of a data home, serving it, and its documents."""

from __future__ import annotations

import dataclasses
import time
from typing import TYPE_CHECKING, Any

from overnight import app, errors

if TYPE_CHECKING:
    import pathlib
    import threading
    from collections.abc import Callable

    from overnight import pools
    from overnight.model.pool import (
        Autoscale,
        Claim,
        Grant,
        Member,
        MemberDetails,
        Pool,
        PoolDetails,
        Problem,
        Request,
    )
    from overnight.pools import autoscaler, control

__all__ = [
    "ago",
    "autoscale_document",
    "claim_quickly",
    "claims_document",
    "member_document",
    "open_plane",
    "pool_document",
    "pools_document",
    "require_endpoint",
    "serve",
    "troubles",
]

ENDPOINT = "endpoint"
ADVERTISED = "endpoint_advertised"  # said by somebody, not found out
LISTEN = "listen"


def open_plane(home: pathlib.Path, url: str = "") -> control.ControlPlane:
    """The control plane of a data home, or of the database that is named."""
    from overnight.pools import control, database, providers

    found: dict[str, pools.Provider] = {}
    for module in app.discover(providers):
        create: Callable[[pathlib.Path], pools.Provider] = module.create
        found[str(module.NAME)] = create(home)
    where = database.Database(url or database.default_url(home))
    return control.ControlPlane(where, found)


def claim_quickly(home: pathlib.Path, url: str, name: str, asked: Request) -> Grant | None:
    """A ready member of a pool in a data home, in the shortest time; None: by way of the control plane."""
    from overnight.pools.sql import fast_claim

    return (
        None
        if url
        else fast_claim.claim_in_file(fast_claim.default_path(home), name, asked, now_us())
    )


def now_us() -> int:
    """µs since 1970."""
    return time.time_ns() // 1000


def require_endpoint(plane: control.ControlPlane) -> None:
    """Members are launched only when there is somebody to whom they can say that they are ready."""
    if not plane.endpoint:
        raise errors.CannotError(
            "members cannot be launched yet",
            why="nobody answers them: no reaper has served from this database",
            todo="overnight pool serve",
        )


def serve(
    plane: control.ControlPlane,
    stop: threading.Event,
    *,
    listen: str = "",
    endpoint: str = "",
    interval: float = 60.0,
    say: Callable[[str], None] = lambda _: None,
) -> None:
    """Answer members and keep every pool, until told to stop.

    The address is kept: members that were launched before find it again after a restart. `endpoint` is
    what members are told, where that is not where we listen: a name, another port, a balancer.
    """
    # Only here: a claim must not wait for what it does not use.
    from overnight.pools import member_api, metrics, reaper

    if endpoint:
        _url(endpoint)
    address, port = _address(listen or _kept(plane))
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
        # Another one that answers keeps its place; two share the work.
        if chosen or not _answers(plane.endpoint):
            plane.set(ENDPOINT, advertised or server.endpoint)
            plane.set(ADVERTISED, advertised)
            plane.set(LISTEN, f"{address}:{server.port}")
        told = advertised or server.endpoint
        say(f"members are answered at {told}, metrics at {server.endpoint}/metrics")
        _warn(plane, say)
        reaper.Reaper(plane, interval=interval).run(stop)
    finally:
        server.close()


def _kept(plane: control.ControlPlane) -> str:
    return plane.get(LISTEN) or plane.endpoint.removeprefix("http://") or "127.0.0.1:0"


def _warn(plane: control.ControlPlane, say: Callable[[str], None]) -> None:
    """Pools that cannot be filled from here are told of at once, not after a failure."""
    for details in plane.list():
        try:
            plane.check(details.pool.name)
        except errors.OvernightError as error:
            say(f"pool {details.pool.name} cannot be filled: {error.what}; do: {error.todo}")


def _address(text: str) -> tuple[str, int]:
    address, _, port = text.rpartition(":")
    if not address or not port.isdigit() or int(port) > 65535:
        raise errors.UsageError(
            f"{text!r} is no address to listen on",
            why="an address and a port are wanted",
            todo="write it like 127.0.0.1:8417",
        )
    return address, int(port)


def _url(text: str) -> tuple[str, int]:
    """Host and port of what members are told."""
    import urllib.parse

    try:
        where = urllib.parse.urlsplit(text)
        host, port = where.hostname, where.port or (443 if where.scheme == "https" else 80)
    except ValueError:
        host, port = None, 0
    if not host or where.scheme not in ("http", "https") or where.path not in ("", "/"):
        raise errors.UsageError(
            f"{text!r} is no endpoint",
            why="members are told a URL without a path",
            todo="write it like http://pools.internal:8417",
        )
    return host, port


def _answers(endpoint: str) -> bool:
    import socket

    if not endpoint:
        return False
    try:
        with socket.create_connection(_url(endpoint), timeout=1):
            return True
    except OSError:
        return False


def troubles(plane: control.ControlPlane, shown: PoolDetails) -> tuple[Problem, ...]:
    """What is wrong with a pool, and what to do."""
    from overnight.pools import problems, reaper

    seen = plane.get(reaper.SEEN)
    return problems.find_problems(
        shown,
        now_us=plane.context.clock(),
        reaper_us=int(seen) if seen else None,
        orphans=plane.orphans_left(shown.pool.provider),
    )


# documents


def _pool(details: PoolDetails) -> dict[str, Any]:
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


def _member(member: Member) -> dict[str, Any]:
    values = dataclasses.asdict(member)
    return {
        "member_id": values.pop("id"),
        "pool_state": str(values.pop("state")),
        **values,
    }


def _claim(claim: Claim) -> dict[str, Any]:
    values = dataclasses.asdict(claim)
    return {"claim_id": values.pop("id"), **values}


def _autoscale(policy: Autoscale | None) -> dict[str, Any] | None:
    """The policy, and apart from it what was last decided."""
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


def autoscale_document(
    pool: Pool, policy: Autoscale | None, outlook: autoscaler.Outlook | None
) -> dict[str, Any]:
    """`overnight pool autoscale -O json`."""
    would = None
    if outlook is not None:
        made = outlook.decision
        would = {
            "size": made.size,
            "wanted_size": made.wanted,
            "cause": made.cause,
            "reason": made.reason,
            "warm_up_seconds": outlook.warm_up_s,
            "assumed": list(outlook.assumed),
        }
    return {
        "schema": "overnight.pool-autoscale/1",
        "pool": pool.name,
        "status": str(pool.status),
        "target_size": pool.target_size,
        "policy": _autoscale(policy),
        "would": would,
    }


def pool_document(plane: control.ControlPlane, shown: PoolDetails) -> dict[str, Any]:
    """`overnight pool show -O json`."""
    return {
        "schema": "overnight.pool/1",
        "pool": _pool(shown),
        "autoscale": _autoscale(shown.autoscale),
        "members": [_member(one) for one in shown.members],
        "claims": [_claim(one) for one in shown.claims],
        "waiters": [dataclasses.asdict(one) for one in shown.waiters],
        "recent_events": [dataclasses.asdict(one) for one in shown.events],
        "troubles": [dataclasses.asdict(one) for one in troubles(plane, shown)],
    }


def pools_document(listed: tuple[PoolDetails, ...]) -> dict[str, Any]:
    """`overnight pool list -O json`."""
    return {"schema": "overnight.pools/1", "pools": [_pool(one) for one in listed]}


def claims_document(grants: tuple[Grant, ...]) -> dict[str, Any]:
    """`overnight pool acquire -O json`."""
    return {
        "schema": "overnight.pool-claims/1",
        "claims": [{**_claim(one.claim), "member": _member(one.member)} for one in grants],
    }


def member_document(member: Member, details: MemberDetails | None = None) -> dict[str, Any]:
    """What becomes of a member; with everything that is known of it, where that was asked for."""
    told: dict[str, Any] = {"schema": "overnight.pool-member/1", "member": _member(member)}
    if details is not None:
        told["pool"] = details.pool
        told["claims"] = [_claim(one) for one in details.claims]
        told["events"] = [dataclasses.asdict(one) for one in details.events]
    return told


def ago(us: int | None, now_us: int) -> str:
    """How long ago, for people; '-' for never."""
    from overnight.model import times

    if us is None:
        return "-"
    return times.format_duration(max(0.0, (now_us - us) / 1e6))
