"""Serve pools: run the reaper, answer members, and save the address at which they find it."""

from __future__ import annotations

import contextlib
import functools
import json
import socket
import threading
import urllib.parse
from typing import TYPE_CHECKING

from overnight import errors, http_listener
from overnight.model import addresses, times
from overnight.pools import member_api, reaper
from overnight.pools import metrics as pool_metrics

if TYPE_CHECKING:
    from collections.abc import Callable

    from overnight.app import pools
    from overnight.model.pool import PoolEvent
    from overnight.pools import control

ENDPOINT = "endpoint"
ADVERTISED = "endpoint_advertised"  # given by --endpoint, not derived from --listen
LISTEN = "listen"
LOG_SECONDS = 5.0
# What callers and agents do: a busy pool has thousands of these, and each leads to a decision that is logged.
NOT_LOGGED = (
    "member_claimed", "claim_ended", "claim_renewed", "claim_reserved", "claim_missed", "claim_refused",
    "waiter_queued", "waiter_left", "member_enrolled", "member_console",
)  # fmt: skip


def serve(
    where: pools.Pools,
    stop: threading.Event,
    *,
    listen: str = "",
    endpoint: str = "",
    metrics: str = "",
    plain_http: bool = False,
    interval: float = 60.0,
    progress: Callable[[str], None] = lambda _: None,
) -> None:
    """Run the reaper and answer members until `stop` is set.

    The address is saved, so that members launched before a restart find it again. `endpoint` is the URL
    that members use, where it differs from the listen address: a name, another port, a load balancer.
    `metrics` is the address for metrics; without it there are none.
    """
    check(interval, endpoint)
    plane = where.plane
    saved = plane.get(LISTEN) or plane.endpoint.removeprefix("http://") or "127.0.0.1:0"
    address, port = addresses.parse_address(listen or saved, "--listen")
    chosen = bool(listen or endpoint)
    advertised = endpoint or ("" if listen else plane.get(ADVERTISED))
    if not plain_http:
        _check_encryption(address, advertised)
    with contextlib.ExitStack() as opened:
        scraped = ""
        if metrics:
            page = functools.partial(pool_metrics.render, plane)
            scraped = f", metrics at {open_metrics(opened, metrics, page)}"
        start = functools.partial(member_api.serve, plane.enrolment, address=address)
        try:
            server = start(port=port)
        except errors.CannotError:
            if chosen:
                raise
            server = start()
        opened.callback(server.close)
        if save_endpoint(plane, advertised, server.url, chosen=chosen):
            plane.set(LISTEN, f"{address}:{server.port}")
        url = advertised or server.url
        reaper.report_alive(plane)  # before callers read that they may order something
        progress(f"serving members at {url}{scraped}")
        run_reaper(where, stop, interval, progress)


def check(interval: float, endpoint: str) -> None:
    """Raise UsageError for options that are not valid."""
    if interval < 0.05:
        raise errors.UsageError(
            f"--interval must be at least 50ms (got {interval:g}s)",
            why="claims wake the reaper anyway; the tick only catches what they missed",
            todo="use --interval 60s",
        )
    if endpoint:
        _parse_url(endpoint)


def open_metrics(opened: contextlib.ExitStack, address: str, render: Callable[[], str]) -> str:
    """Serve a page of metrics until the stack is closed; return its URL."""
    listener = http_listener.Listener(
        *addresses.parse_address(address),
        http_listener.respond_metrics(render),
        serves="metrics",
        option="--metrics",
    )
    opened.callback(listener.close)
    return f"{listener.url}/metrics"


def save_endpoint(plane: control.ControlPlane, advertised: str, url: str, *, chosen: bool) -> bool:
    """Save the URL at which members find the server, unless another one answers at the saved one."""
    # Another reaper that answers keeps its address; the two share the work.
    if not chosen and _is_answering(plane.endpoint):
        return False
    plane.set(ENDPOINT, advertised or url)
    plane.set(ADVERTISED, advertised)
    return True


def run_reaper(
    where: pools.Pools, stop: threading.Event, interval: float, progress: Callable[[str], None]
) -> None:
    """Report pools that cannot be filled from here, then run the reaper and log decisions until `stop` is set."""
    plane = where.plane
    for details in plane.list():  # at once, not after a failed launch
        try:
            plane.check(details.pool.name)
        except errors.OvernightError as error:
            progress(f"pool {details.pool.name} cannot be filled: {error.what}; {error.todo}")
    logging = threading.Thread(
        target=_log_decisions, args=(where, stop, progress), name="decision log", daemon=True
    )
    logging.start()
    reaper.Reaper(plane, interval=interval).run(stop)
    logging.join(LOG_SECONDS)


def _log_decisions(
    where: pools.Pools, stop: threading.Event, progress: Callable[[str], None]
) -> None:
    """Write a line for each decision of the reapers of this database, once it is committed."""
    while not stop.is_set():
        try:
            for event in where.follow("", stop, 0):
                if event.kind not in NOT_LOGGED:
                    progress(format_event(event))
        except errors.OvernightError:  # the database is away
            stop.wait(LOG_SECONDS)


def format_event(event: PoolEvent) -> str:
    """Return an event as one line of NAME=VALUE; text that is not ours is quoted.

    >>> from overnight.model.pool import PoolEvent
    >>> format_event(PoolEvent(id=7, at_us=0, kind="launch_skipped", pool="ci", reason="at_maximum", detail="5 of 5"))
    '1970-01-01T00:00:00.000Z event=launch_skipped pool=ci reason=at_maximum detail="5 of 5"'
    """
    values = {
        "event": event.kind, "pool": event.pool, "member": event.member_id, "claim": event.claim_id,
        "reason": event.reason, "detail": event.detail and json.dumps(event.detail, ensure_ascii=False),
    }  # fmt: skip
    return " ".join(
        (times.format_instant(event.at_us), *(f"{n}={v}" for n, v in values.items() if v))
    )


def _check_encryption(address: str, endpoint: str) -> None:
    """Raise where members would send their credentials unencrypted over a network."""
    hosts = [address]
    if urllib.parse.urlsplit(endpoint).scheme == "http":
        hosts.append(_parse_url(endpoint)[0])
    for host in hosts:
        if not addresses.is_loopback(host):
            raise errors.UsageError(
                f"refusing plain HTTP beyond loopback: {host}",
                why="anyone on the network could read the tokens and credentials of members",
                todo="put a TLS proxy in front (--listen 127.0.0.1:8417 --endpoint https://NAME), "
                "or add --plain-http on a network that you trust",
            )


def _parse_url(text: str) -> tuple[str, int]:
    """Return host and port of an endpoint."""
    try:
        where = urllib.parse.urlsplit(text)
        host, port = where.hostname, where.port or (443 if where.scheme == "https" else 80)
    except ValueError:
        host, port = None, 0
    if not host or where.scheme not in ("http", "https") or where.path not in ("", "/"):
        raise errors.UsageError(
            f"invalid endpoint {text!r}",
            why="it must be an http or https URL without a path",
            todo="write it like https://pools.internal",
        )
    return host, port


def _is_answering(endpoint: str) -> bool:
    if not endpoint:
        return False
    try:
        with socket.create_connection(_parse_url(endpoint), timeout=1):
            return True
    except OSError:
        return False
