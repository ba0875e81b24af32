"""Addresses of clients: those that share limits, also behind trusted proxies."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping, Sequence
from typing import Any

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Networks = Sequence[ipaddress.IPv4Network | ipaddress.IPv6Network]


def parse(text: str) -> Address | None:
    try:
        address = ipaddress.ip_address(text.strip().partition("%")[0])
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address


def is_within(address: Address | None, networks: Networks) -> bool:
    return address is not None and any(address in network for network in networks)


def find_group(address: Address | None) -> str:
    """Return what shares limits: an address; of IPv6 its network, because a client has all addresses of it."""
    if isinstance(address, ipaddress.IPv6Address):
        return str(ipaddress.IPv6Network((int(address) >> 64 << 64, 64)))
    return str(address)


def find_client(scope: Mapping[str, Any], proxies: Networks) -> str:
    """Return the group of the client: the last address of X-Forwarded-For that is not a trusted proxy's."""
    address = parse(str((scope.get("client") or ("",))[0]))
    if is_within(address, proxies):
        sent = b",".join(value for name, value in scope["headers"] if name == b"x-forwarded-for")
        for hop in reversed(sent.decode("latin-1").split(",")):
            if (before := parse(hop)) is None:
                break
            address = before
            if not is_within(address, proxies):
                break
    return find_group(address)
