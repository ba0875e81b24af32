"""Requests of assistants that a person has to confirm, as frozen values. Times are µs since 1970."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Mapping
from typing import Any

from overnight import errors
from overnight.model.control_plane import Role  # noqa: TC001 - decoding reads the hints

SCHEMA = "overnight.confirmations/1"


class ConfirmationState(enum.StrEnum):
    """The values are stored. A request that is too old keeps its state."""

    PENDING = "pending"
    CONFIRMED = "confirmed"  # the same call, once, is carried out
    DECLINED = "declined"
    USED = "used"
    VOID = "void"  # the call would do something else now


@dataclasses.dataclass(frozen=True, kw_only=True)
class Effect:
    """What a call would do, computed from the state; equal effects do the same."""

    summary: str
    ends: tuple[str, ...] = ()  # members that are terminated
    claims: tuple[str, ...] = ()  # open claims that end, or whose members are not replaced
    hosts: tuple[str, ...] = ()  # hosts that are taken, emptied or changed
    most_hosts: int = 0  # that it launches, claims or reserves
    host_hours: float | None = None
    cost: float | None = None  # None: the price is not known
    concerns: tuple[str, ...] = ()  # disturbed workloads, changes of hosts or settings
    basis: str = ""  # what else must not change; not for people
    about: str = ""  # kind and id of the object, by whatever name it was called; not for people


@dataclasses.dataclass(frozen=True, kw_only=True)
class Confirmation:
    """A call that waits for a person; bound to its caller, its arguments and its effect."""

    id: str
    action: str  # such as pool.drain
    arguments: Mapping[str, Any]
    caller: str  # id of the credential
    caller_name: str
    role: Role  # that may confirm it
    effect: Effect
    state: ConfirmationState
    made_us: int
    expires_us: int
    decided_by: str = ""
    decided_us: int | None = None
    code: str = dataclasses.field(default="", repr=False)  # only for those who may confirm it

    def as_json(self) -> dict[str, Any]:
        """Return it without the code."""
        plain = dataclasses.asdict(self)
        del plain["code"], plain["effect"]["basis"], plain["effect"]["about"]
        return plain


class ConfirmationNeededError(errors.UnconfirmedError):
    """A person has to confirm the call; nothing was changed."""

    def __init__(self, confirmation: Confirmation, why: str = "") -> None:
        super().__init__(
            f"a person must confirm: {confirmation.effect.summary}",
            why=why or "the call of an assistant is destructive or costly, or disturbs others",
            todo="a person with another credential runs `overnight confirmations`; then repeat the same call",
        )
        self.confirmation = confirmation
        self.details = {"confirmation": confirmation.as_json()}  # in the answer of a server


class NoConfirmationNeededError(errors.ConflictError):
    """The call can be made directly."""

    def __init__(self, action: str) -> None:
        super().__init__(
            f"{action} needs no confirmation with these arguments",
            why="it is neither destructive nor costly",
            todo="make the call",
        )
