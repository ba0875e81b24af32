"""Warm instance pools: hosts that are ready before they are needed, claimed in milliseconds.

`decisions` is pure: what a pool holds and the clock in, instructions out. The rows are in a database (SQLite
or PostgreSQL). Machines come from a provider, which is never called inside a transaction. A provider is a
module of `providers` with `NAME` and `create(home)`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from overnight import errors

if TYPE_CHECKING:
    from overnight.model.pool import Reason


class ProviderError(errors.CannotError):
    """A provider failed. Decisions use `reason`, `code` and `nothing_made`; the rest is for people."""

    def __init__(
        self,
        reason: Reason,
        message: str,
        *,
        todo: str = "",
        code: str = "",
        nothing_made: bool = False,
    ) -> None:
        super().__init__(
            f"the provider failed: {message}",
            why=reason,
            todo=todo or "check the provider's console; the reaper tries again",
        )
        self.reason = reason
        self.message = message
        self.code = code  # the provider's own
        self.nothing_made = nothing_made  # it is certain that the call left no machine


@dataclasses.dataclass(frozen=True, kw_only=True)
class Order:
    """A request for one machine for one member. `token` enrols it, once."""

    owner: str  # the control plane; machines of another owner are never touched
    member_id: str
    pool: str
    template: str
    regions: tuple[str, ...] = ()  # tried in this order
    instance_type: str = ""
    lifecycle_class: str = "ephemeral"
    endpoint: str = ""
    readiness_timeout_seconds: int = 300
    ignore_failed_units: bool = False
    token: str = dataclasses.field(default="", repr=False)

    def as_json(self) -> dict[str, object]:
        """Return `order.json`, which the member's agent reads."""
        names = (
            "member_id", "pool", "template", "endpoint", "token",
            "readiness_timeout_seconds", "ignore_failed_units",
        )  # fmt: skip
        return {name: getattr(self, name) for name in names}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Machine:
    """A machine as its provider lists it; `member_id` is a tag on it."""

    id: str
    member_id: str
    address: str = ""
    region: str = ""


class Provider(Protocol):
    """A source of machines. Every call may take long, fail, or be killed half-way.

    `launch` for a member that already has a machine returns that machine, so that an interrupted call can
    be repeated. `terminate` of a machine that is gone succeeds. `inventory` lists every machine of the
    owner that is not gone, or raises: an empty list means that there are none.
    """

    name: str
    inventory_lag_seconds: float = 0.0  # how long a new machine may be missing from the inventory
    fixed: Mapping[str, object] = {}  # field of a pool -> its only value: others would be ignored

    def launch(self, order: Order) -> Machine:
        """Create one machine; raises ProviderError."""

    def terminate(self, machine_id: str) -> None:
        """Terminate a machine; returns when the provider has accepted the request."""

    def inventory(self, owner: str) -> Sequence[Machine]:
        """List every machine of this owner."""

    def check(self, order: Order) -> None:  # noqa: ARG002  a default
        """Raise for an order that could never be launched, without calling out."""
        return

    def console(self, machine_id: str) -> str | None:  # noqa: ARG002  a default
        """Return the end of what the machine wrote to its console; None if the provider has none."""
        return None

    def host(self, *, create: bool = False) -> str | None:  # noqa: ARG002  a default
        """Return the name of this host if only a server on it can list and terminate the machines.

        The same after a restart; None without `create` if it has none yet. Raises ProviderError.
        """
        return None


@runtime_checkable
class Cloud(Provider, Protocol):
    """A provider with regions, which are queried one by one, and with reasons for lost machines."""

    def inventory(self, owner: str, regions: Sequence[str] = ()) -> Sequence[Machine]:
        """List every machine of the owner in these regions: all that its pools have ever named."""

    def why_gone(self, machine_id: str) -> Reason | None:
        """Say why a missing machine is gone, e.g. SPOT_INTERRUPTED; None when that is not known."""
