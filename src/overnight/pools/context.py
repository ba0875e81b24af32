"""What every operation needs: the database, the providers, the clock, the bell."""

from __future__ import annotations

import dataclasses
import functools
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from overnight.pools import database, pool_errors, provider_client, wakeups
from overnight.pools.sql import records

if TYPE_CHECKING:
    from overnight import pools

__all__ = ["Context", "make", "now_us"]


def now_us() -> int:
    """µs since 1970: rows are shared by processes, so it is the wall clock."""
    return time.time_ns() // 1000


@dataclasses.dataclass(frozen=True)
class Context:
    """One control plane; several may work on one database."""

    database: database.Database
    providers: Mapping[str, provider_client.ProviderClient]
    notifier: wakeups.Notifier
    clock: Callable[[], int]
    owner: str

    def provider(self, name: str) -> provider_client.ProviderClient:
        """A provider by name."""
        found = self.providers.get(name)
        if found is None:
            known = ", ".join(sorted(self.providers))
            raise pool_errors.BadKnobError("provider", name, f"one of {known}")
        return found


def make(
    where: database.Database,
    providers: Mapping[str, pools.Provider],
    *,
    clock: Callable[[], int] = now_us,
) -> Context:
    """A control plane on a database."""
    with where.read() as connection:
        owner = records.setting(connection, "owner")
    if not owner:
        with where.write("owner") as connection:
            owner = records.owner(connection)
    callers = {
        name: provider_client.ProviderClient(
            one, where.steps, functools.partial(_regions, where, name)
        )
        for name, one in providers.items()
    }
    return Context(where, callers, wakeups.open_notifier(where), clock, owner)


def _regions(where: database.Database, provider: str) -> tuple[str, ...]:
    with where.read() as connection:
        return records.regions_used(connection, provider)
