"""Named values that the control planes of one database share: owner, endpoint, providers and regions used."""

from __future__ import annotations

import sqlalchemy as sa

from overnight.database import statements
from overnight.model.pool import Pool, new_id
from overnight.pools.sql import schema

table = schema.control
SEEN = "reaper_seen_us"
REGION_USED = "region_used"
PROVIDER_USED = "provider_used "


def get(connection: sa.Connection, name: str) -> str:
    """Read a value; '' if there is none."""
    chosen = sa.select(table.c.value).where(table.c.name == name)
    return str(connection.execute(chosen).scalar() or "")


def put(connection: sa.Connection, name: str, value: str, *, keep: bool = False) -> None:
    """Write a value; with `keep` an existing one stays."""
    values = {"name": name, "value": value}
    if keep:
        statements.add_missing(connection, table, values)
    else:
        statements.upsert(connection, table, values)


def read_seen(connection: sa.Connection) -> int | None:
    """Return when a reaper last reported; None if none ever did."""
    seen = get(connection, SEEN)
    return int(seen) if seen else None


def owner(connection: sa.Connection) -> str:
    """Return the tag of this database's machines; creates it the first time."""
    put(connection, "owner", new_id("overnight"), keep=True)
    return get(connection, "owner")


def add_used(connection: sa.Connection, pool: Pool) -> None:
    """Record where this pool's machines may be: the sweep looks there from now on, for ever."""
    put(connection, PROVIDER_USED + pool.provider, "yes", keep=True)
    for region in (pool.region, *pool.preferred_regions):
        if region:
            put(connection, f"{REGION_USED} {pool.provider} {region}", "yes", keep=True)


def list_regions(connection: sa.Connection, provider: str) -> tuple[str, ...]:
    """Return every region that a pool of this provider has ever named."""
    return _names_after(connection, f"{REGION_USED} {provider} ")


def orphans_name(provider: str, host: str | None) -> str:
    return f"orphans_left {provider} {host or ''}"


def count_orphans(connection: sa.Connection, provider: str) -> int:
    """Add up what the last sweep on each host could not terminate."""
    prefix = orphans_name(provider, None)
    return sum(int(get(connection, prefix + host)) for host in _names_after(connection, prefix))


def list_providers(connection: sa.Connection) -> tuple[str, ...]:
    """Return every provider that a pool has ever named."""
    return _names_after(connection, PROVIDER_USED)


def _names_after(connection: sa.Connection, prefix: str) -> tuple[str, ...]:
    chosen = sa.select(table.c.name).where(table.c.name.startswith(prefix, autoescape=True))
    names = connection.execute(chosen).scalars()
    return tuple(sorted(str(name).removeprefix(prefix) for name in names))
