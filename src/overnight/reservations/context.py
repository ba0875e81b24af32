"""What every operation needs: database, providers, clock, and what other parts know about hosts."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from overnight import errors, reservations
from overnight.model import times
from overnight.model.reservation import Check, CheckState

if TYPE_CHECKING:
    from overnight.database import engine
    from overnight.model.reservation import Order, Reservation

DRIVER_SECONDS = 180  # lease of a driver, longer than any one call to a platform


@dataclasses.dataclass(frozen=True)
class Hooks:
    """What a reservation asks of parts that this package does not know."""

    # What the fleet last heard from a host; None if it does not know the host.
    heard: Callable[[str], reservations.Heard | None] = lambda _: None
    # Where an agent that is started on a host reports to.
    agent_setup: Callable[[str, str], reservations.AgentSetup] = lambda _host, server: (
        reservations.AgentSetup(server=server)
    )
    # Takes back what `agent_setup` gave, once the host is released.
    agent_ended: Callable[[str], None] = lambda _: None
    # Runs a load on a host and judges whether its footprint is constant.
    load_gate: Callable[[str, str], Check] = lambda _provider, _host: Check(
        "load-constancy", CheckState.UNKNOWN, "no load can be run"
    )


@dataclasses.dataclass(frozen=True)
class Context:
    database: engine.Database
    providers: Mapping[str, reservations.Provider]
    clock: Callable[[], int] = times.now_us
    sleep: Callable[[float], None] = time.sleep
    hooks: Hooks = dataclasses.field(default_factory=Hooks)

    def provider(self, name: str) -> reservations.Provider:
        return find_provider(self.providers, name)

    def find_obstacle(self, reservation: Reservation) -> str:
        """Return why another machine must drive a reservation, '' if this one can."""
        name = reservation.order.provider
        provider = self.providers.get(name)
        if provider is None:
            return f"this server has no provider {name}"
        if isinstance(provider, reservations.ReachesSome):
            away = [host.name for host in reservation.open if not provider.reaches(host.name)]
            return f"this machine does not reach {away[0]}" if away else ""
        return ""

    def hear(self, host: str, order: Order) -> reservations.Heard:
        """Return what the provider, or else the fleet, knows of the agent and the clock of a host."""
        provider = self.provider(order.provider)
        heard = (
            provider.hear(host, order) if isinstance(provider, reservations.HearsHosts) else None
        )
        return heard or self.hooks.heard(host) or reservations.Heard()


def find_provider(
    providers: Mapping[str, reservations.Provider], name: str
) -> reservations.Provider:
    if name not in providers:
        raise errors.UsageError(
            f"no provider {name!r}",
            why=f"there are {', '.join(sorted(providers))}",
            todo="choose one of them with --provider, or install the extra that has it",
        )
    return providers[name]
