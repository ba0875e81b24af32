"""Addresses to listen on, and URLs of servers."""

from __future__ import annotations

import ipaddress
import urllib.parse
from collections.abc import Iterable

from overnight import errors
from overnight.model import secrets


def parse_address(text: str, option: str = "--metrics") -> tuple[str, int]:
    """Parse `PORT`, `:PORT` or `ADDRESS:PORT`; the default address is loopback.

    >>> parse_address("9464"), parse_address("0.0.0.0:9464"), parse_address("[::1]:9464")
    (('127.0.0.1', 9464), ('0.0.0.0', 9464), ('::1', 9464))
    """
    address, _, port = text.rpartition(":")
    if not (port.isascii() and port.isdigit()) or len(port) > 5 or int(port) > 65535:
        raise errors.UsageError(
            f"{option} {text!r} is not [ADDRESS:]PORT",
            why="the port must be a number from 0 to 65535",
            todo=f"use for example {option} 9464 or {option} 127.0.0.1:9464",
        )
    return address.strip("[]") or "127.0.0.1", int(port)


def parse_networks(
    texts: Iterable[str], option: str
) -> tuple[ipaddress.IPv4Network | ipaddress.IPv6Network, ...]:
    """Parse addresses and networks.

    >>> parse_networks(["10.0.0.5", "fd00::/8"], "--trusted-proxy")
    (IPv4Network('10.0.0.5/32'), IPv6Network('fd00::/8'))
    """
    try:
        return tuple(map(ipaddress.ip_network, texts))
    except ValueError as error:
        raise errors.UsageError(
            f"invalid {option}: {error}",
            why="it is an address or a network",
            todo=f"use for example {option} 10.0.0.5 or {option} 10.0.0.0/24",
        ) from error


def is_loopback(host: str) -> bool:
    """Whether only this host can reach an address; a name is not resolved.

    >>> [is_loopback(host) for host in ("127.1.2.3", "::1", "::ffff:127.0.0.1", "LOCALHOST.")]
    [True, True, True, True]
    >>> [is_loopback(host) for host in ("0.0.0.0", "::", "10.0.0.5", "localhost.example.com", "a.localhost")]
    [False, False, False, False, False]
    """
    name = host.lower().rstrip(".")
    try:
        address = ipaddress.ip_address(name)
    except ValueError:
        return name == "localhost"  # some resolvers ask the network for a.localhost
    return (getattr(address, "ipv4_mapped", None) or address).is_loopback


def parse_server_url(url: str, *, insecure: bool = False) -> urllib.parse.SplitResult:
    """Check a server's URL; raise UsageError, also for plain HTTP to another host unless `insecure`."""
    example = "use for example --server https://overnight.example.com:8416"
    try:
        parts = urllib.parse.urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        parts, host = urllib.parse.urlsplit(""), None
    if parts.scheme not in ("http", "https") or not host or not url.isascii() or " " in url:
        raise errors.UsageError(
            f"{secrets.mask_url(url)!r} is not the URL of a server",
            why="it has the form http[s]://HOST[:PORT][/PATH]",
            todo=example,
        )
    if parts.username is not None or parts.query or parts.fragment:
        raise errors.UsageError(
            f"the URL of {host} has more than a host and a path",
            why="URLs end up in logs, so they must not hold secrets",
            todo=f"{example}, and a token in a file",
        )
    if parts.scheme == "http" and not insecure and not is_loopback(host):
        raise errors.UsageError(
            f"refusing plain HTTP to {host}",
            why="everyone on the network could read the credential and change answers",
            todo=f"use https://{parts.netloc}, or --insecure in a network that you trust",
        )
    return parts
