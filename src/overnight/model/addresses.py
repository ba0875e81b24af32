"""Addresses to listen on."""

from __future__ import annotations

import ipaddress

from overnight import errors


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


def is_loopback(host: str) -> bool:
    """Whether only this host can reach an address; a name is not resolved.

    >>> [is_loopback(host) for host in ("127.1.2.3", "::1", "::ffff:127.0.0.1", "LOCALHOST.", "a.localhost")]
    [True, True, True, True, True]
    >>> [is_loopback(host) for host in ("0.0.0.0", "::", "10.0.0.5", "db-7", "localhost.example.com")]
    [False, False, False, False, False]
    """
    name = host.lower().rstrip(".")
    try:
        address = ipaddress.ip_address(name)
    except ValueError:
        return name == "localhost" or name.endswith(".localhost")
    return (getattr(address, "ipv4_mapped", None) or address).is_loopback
