"""Warm instance pools: ready hosts, claimed in milliseconds, never twice, never lost.

decisions.py is pure: what a pool holds and the clock in, instructions out. The rows are in a database
(SQLite or PostgreSQL); machines come from a provider, which is only ever called outside a transaction.
A provider is a module of `providers` with a `create(home)`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from overnight import errors

__all__ = ["Checks", "Cloud", "Machine", "Order", "Provider", "ProviderError"]


class ProviderError(errors.CannotError):
    """The provider said no. `reason` is one word for events and metrics: `provider_quota_exceeded`.

    `nothing_made`: it is certain that no machine came of the call.
    """

    def __init__(
        self, reason: str, message: str, *, todo: str = "", nothing_made: bool = False
    ) -> None:
        super().__init__(
            f"the provider failed: {message}",
            why=reason,
            todo=todo or "see the provider's own console; the reaper tries again",
        )
        self.reason = reason
        self.nothing_made = nothing_made


@dataclasses.dataclass(frozen=True, kw_only=True)
class Order:
    """What is asked of a provider: one machine for one member. `token` enrols it, once."""

    owner: str  # of the control plane; machines of another owner are never touched
    member_id: str
    pool: str
    template: str
    regions: tuple[str, ...] = ()  # to be tried in this order
    instance_type: str = ""
    lifecycle_class: str = "ephemeral"
    endpoint: str = ""
    token: str = dataclasses.field(default="", repr=False)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Machine:
    """A machine as its provider knows it; the member it was made for is a tag on it."""

    id: str
    member_id: str
    address: str = ""
    region: str = ""


class Provider(Protocol):
    """Where machines come from. Every call may take long, fail, or be cut off half-way.

    `launch` for a member that has a machine already returns that machine: a call that was cut off can
    be made again. `terminate` of a machine that is gone is a success. `inventory` has every machine of
    the owner that is not gone, or raises: an empty answer means that there is none.
    """

    name: str
    inventory_lag_seconds: float  # how long a new machine may be missing from the inventory

    def launch(self, order: Order) -> Machine:
        """Make one machine; raises ProviderError with the reason."""

    def terminate(self, machine_id: str) -> None:
        """End it; returns when the provider has taken the order."""

    def inventory(self, owner: str) -> Sequence[Machine]:
        """Every machine that was made for this owner."""


@runtime_checkable
class Checks(Protocol):
    """A provider that knows of some orders at once that they cannot be carried out."""

    def check(self, order: Order) -> None:
        """Refuse what could never be launched, before a pool is written; nobody is asked."""


@runtime_checkable
class Cloud(Provider, Checks, Protocol):
    """A provider in regions that are asked one by one, and that has more to say than others."""

    def inventory(self, owner: str, regions: Sequence[str] = ()) -> Sequence[Machine]:
        """Every machine of the owner in these regions: all that its pools have ever named."""

    def why_gone(self, machine_id: str) -> str:
        """One word for the end of a machine that is missing: `spot_interrupted`; '' when it is not known."""
