"""What every operation needs: database, providers, notifier, clock."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from overnight.model import times
from overnight.pools import pool_errors, provider_client, wakeups
from overnight.pools.sql import shared_values

if TYPE_CHECKING:
    from overnight import pools
    from overnight.database import engine
    from overnight.model.pool import Member


@dataclasses.dataclass(frozen=True)
class Context:
    """One control plane; several may use one database."""

    database: engine.Database
    providers: Mapping[str, provider_client.ProviderClient]
    notifier: wakeups.Notifier
    clock: Callable[[], int]
    owner: str

    def provider(self, name: str) -> provider_client.ProviderClient:
        """Return a provider by name; raises BadKnobError."""
        if name not in self.providers:
            known = ", ".join(sorted(self.providers))
            raise pool_errors.BadKnobError("provider", name, f"one of {known}")
        return self.providers[name]

    def reaches(self, member: Member) -> bool:
        """Whether this control plane can terminate the member's machine."""
        return member.host in (None, self.provider(member.provider).provider.host())


def make(
    where: engine.Database,
    providers: Mapping[str, pools.Provider],
    *,
    clock: Callable[[], int] = times.now_us,
) -> Context:
    with where.read() as connection:
        owner = shared_values.get(connection, "owner")
    if not owner:
        with where.write("owner") as connection:
            owner = shared_values.owner(connection)
    clients = {
        name: provider_client.ProviderClient(
            provider, where.steps, functools.partial(_regions, where, name)
        )
        for name, provider in providers.items()
    }
    return Context(where, clients, wakeups.open_notifier(where), clock, owner)


def _regions(where: engine.Database, provider: str) -> tuple[str, ...]:
    with where.read() as connection:
        return shared_values.list_regions(connection, provider)
