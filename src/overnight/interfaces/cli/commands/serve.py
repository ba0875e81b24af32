"""`overnight serve`."""

from __future__ import annotations

import functools
import pathlib

from overnight import errors
from overnight.interfaces.cli import pool_options, session, terminal, unit_options
from overnight.model import addresses, times

ORDER = 48


def serve(
    current: session.Session,
    listen: str = session.option("127.0.0.1:8416", "Address to listen on.", "[ADDRESS:]PORT"),
    tls_cert: pathlib.Path | None = session.option(None, "Certificate chain (PEM).", "FILE"),
    tls_key: pathlib.Path | None = session.option(None, "Private key of the certificate (PEM).", "FILE"),
    insecure: bool = session.flag("Allow plain HTTP beyond loopback: tokens are not encrypted."),
    trusted_proxy: list[str] | None = session.option(None, "Proxy whose X-Forwarded-For names clients (repeatable).", "ADDRESS"),
    database: pool_options.DatabaseOption = "",
    blobs: pathlib.Path | None = session.option(None, "Folder of uploaded windows. Default: one in the data home.", "DIR"),
    endpoint: str = session.option("", "URL that pool members and agents of reserved hosts use, if it differs.", "URL"),
    metrics: str = session.option("", "Address to serve metrics on without a token.", "[ADDRESS:]PORT"),
    interval: str = session.option("60s", "Tick of the reaper and of reservations; requests wake them at once.", "DURATION"),
    print_unit: bool = session.flag(unit_options.UNIT),
) -> None:  # fmt: skip
    """Serve a fleet, pools and reservations over HTTP.

    People need a token: overnight token create. Beyond loopback, TLS is required.
    """
    from overnight.app import serving

    if print_unit:
        secrets = ("--tls-cert", "--tls-key")
        unit_options.print_unit(current, "serve", secrets=secrets, writable=("--blobs",))
        return
    request = serving.Request(
        home=current.home,
        database=database,
        blobs=blobs,
        listen=listen,
        endpoint=endpoint.rstrip("/"),
        tls_cert=tls_cert,
        tls_key=tls_key,
        insecure=insecure,
        metrics=metrics,
        interval=times.parse_duration(interval),
        trusted_proxies=addresses.parse_networks(trusted_proxy or (), "--trusted-proxy"),
    )
    try:
        from overnight.interfaces.http import server
    except ImportError as error:
        raise errors.MissingToolError(
            "the server cannot start",
            why=f"a package is missing: {error}",
            todo="pip install 'overnight[server]'",
        ) from error
    server.run(request, functools.partial(terminal.print_line, current.notes()))


register = session.command(serve, "Fleet", "serve --listen 127.0.0.1:8416")
